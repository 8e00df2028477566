#include "distrib/deal.hpp"

#include <algorithm>

#include "distrib/imagined.hpp"
#include "distrib/mpi.hpp"
#include "kernels/base/error.hpp"

namespace terrace {

std::vector<LargeVector<char>> deal_bytes(const Control& control,
                                          std::vector<LargeVector<char>> to) {
  if (control.size() == 1) return to;
  if (is_imagined(control))
    throw Error(Exit::internal,
                "bytes for ranks that are only planned for; distrib/deal.cpp; report the command "
                "line");
  constexpr Index largest = Index(1) << 28;  // of one message
  const auto ranks = std::size_t(control.size());
  const MPI_Comm comm = mpi_comm(control);
  std::vector<Index> sent(ranks), received(ranks);
  for (std::size_t r = 0; r < ranks; ++r) sent[r] = Index(to[r].size());
  check_mpi(MPI_Alltoall(sent.data(), 1, MPI_INT64_T, received.data(), 1, MPI_INT64_T, comm),
            "MPI_Alltoall");
  std::vector<LargeVector<char>> from(ranks);
  const auto own = std::size_t(control.rank());
  from[own] = std::move(to[own]);
  std::vector<MPI_Request> requests;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == own) continue;
    from[r].resize(std::size_t(received[r]));
    for (Index at = 0; at < received[r]; at += largest)
      check_mpi(MPI_Irecv(from[r].data() + at, int(std::min(largest, received[r] - at)), MPI_BYTE,
                          int(r), 0, comm, &requests.emplace_back()),
                "MPI_Irecv");
  }
  for (std::size_t r = 0; r < ranks; ++r)
    for (Index at = 0; r != own && at < sent[r]; at += largest)
      check_mpi(MPI_Isend(to[r].data() + at, int(std::min(largest, sent[r] - at)), MPI_BYTE, int(r),
                          0, comm, &requests.emplace_back()),
                "MPI_Isend");
  check_mpi(MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  return from;
}

}  // namespace terrace
