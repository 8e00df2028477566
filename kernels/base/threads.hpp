// Who says how many threads a rank has.
#pragma once
#include <string>

namespace terrace {

/// The first of these variables that names a positive number; 0: none does, and the cores count.
int named_threads();
/// Its name, or "cores".
std::string threads_named_by();
inline constexpr const char* thread_variables[] = {"TERRACE_THREADS", "OMP_NUM_THREADS",
                                                   "SLURM_CPUS_PER_TASK"};

}  // namespace terrace
