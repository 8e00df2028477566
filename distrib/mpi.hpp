// The only place that includes mpi.h for the rest of distrib and io.
#pragma once
#include <mpi.h>

#include "distrib/control.hpp"

namespace terrace {

struct Control::State {
  MPI_Comm comm = MPI_COMM_NULL;  ///< null: Control::alone()
  int rank = 0, size = 1, local_rank = 0, local_size = 1, host = 0;
  bool imagined = false;  ///< the others are not there: distrib/imagined.hpp
  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  static Control duplicate(MPI_Comm from);
  [[nodiscard]] bool is_alone() const { return size == 1 || imagined; }
};

/// The ranks of a communicator, which is duplicated. MPI is started, and is not ended before the last
/// copy is gone. Collective over it.
inline Control control_of(MPI_Comm comm) { return Control::State::duplicate(comm); }

/// Throws Error(fault) naming the call when an MPI call failed.
void check_mpi(int code, const char* call);
MPI_Op mpi_op(Reduce op);
inline MPI_Comm mpi_comm(const Control& control) { return control.state().comm; }

}  // namespace terrace
