// The only place that includes mpi.h for the rest of distrib and io.
#pragma once
#include <mpi.h>

#include "distrib/control.hpp"

namespace terrace {

struct Control::State {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1, local_rank = 0, local_size = 1, host = 0;
  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

/// Throws Error(fault) naming the call when an MPI call failed.
void check_mpi(int code, const char* call);
MPI_Op mpi_op(Reduce op);
inline MPI_Comm mpi_comm(const Control& control) { return control.state().comm; }

}  // namespace terrace
