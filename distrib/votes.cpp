#include "distrib/votes.hpp"

#include <utility>

#include "distrib/mpi.hpp"

namespace terrace {

struct Votes::State {
  MPI_Comm comm = MPI_COMM_NULL;
  int size = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  Word sent = 0, received = 0;

  Word wait() {
    check_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    return std::exchange(received, 0);
  }
};

Votes::Votes(const Control& control) : state_(new State) {
  state_->size = control.size();
  if (control.size() == 1) return;
  check_mpi(MPI_Comm_dup(mpi_comm(control), &state_->comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN);
}

Votes::~Votes() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized || state_->comm == MPI_COMM_NULL) return;
  MPI_Wait(&state_->request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&state_->comm);
}

Word Votes::poll(Word mine) {
  State& s = *state_;
  if (s.size == 1) return mine;
  const Word agreed = s.wait();
  s.sent = mine;
  check_mpi(
      MPI_Iallreduce(&s.sent, &s.received, 1, MPI_UINT64_T, MPI_BOR, s.comm, &s.request),  // NOLINT
      "MPI_Iallreduce");
  return agreed;
}

}  // namespace terrace
