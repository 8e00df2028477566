// What terrace cg will do with its options: checked, and said for --plan.
#pragma once
#include "src/commands/cg_inputs.hpp"
#include "src/program/plan.hpp"

namespace terrace::cg {

/// Refuses options that do not go together (usage), before any file is opened.
void check_request(const Run& run, const CgCommand& options, const CLI::App& command);
/// ... or not with the matrix; completes options.solve, reports it and notes the run's settings.
void check_request(Run& run, CgCommand& options, const CgInputs& in, const CLI::App& command);

struct CgMemory {
  OperatorMemory matrix;
  Index vectors = 0, host = 0;  ///< on the backend; on the host beside
  [[nodiscard]] Index backend() const { return matrix.backend + vectors; }
};
/// Of the rank with most, among so many.
template <class B>
CgMemory cg_memory(const CgInputs& in, const CgCommand& options, int ranks);
/// b and x: what they take on a backend, or otherwise on the host.
OperatorMemory given_vectors(const CgInputs& in, const CgCommand& options, int ranks);
template <class B>
PlanNeeds cg_needs(const CgInputs& in, const CgCommand& options, int ranks);
Work cg_work(const Run& run, const CgInputs& in, const CgCommand& options, const Machine& on);
/// Lines of --plan before memory and seconds.
void describe_cg(const Run& run, const CgInputs& in, const CgCommand& options,
                 const CgMemory& memory);
/// ... and behind: against a direct solve, by the same rates.
void compare_with_direct(Run& run, const CgInputs& in, const CgCommand& options, const Machine& on,
                         const Rates& rates);

}  // namespace terrace::cg
