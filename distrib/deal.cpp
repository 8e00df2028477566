#include "distrib/deal.hpp"

#include <algorithm>

#include "distrib/imagined.hpp"
#include "distrib/mpi.hpp"
#include "kernels/base/error.hpp"

namespace terrace {

void deal_parcels(const Control& control, const std::vector<Parcel>& to,
                  const std::function<void*(int rank, Index bytes)>& room) {
  if (control.size() == 1) return;
  if (is_imagined(control))
    throw Error(Exit::internal,
                "bytes for ranks that are only planned for; distrib/deal.cpp; report the command "
                "line");
  constexpr Index largest = Index(1) << 28;  // of one message
  const auto ranks = std::size_t(control.size());
  const MPI_Comm comm = mpi_comm(control);
  std::vector<Index> sent(ranks), received(ranks);
  for (std::size_t r = 0; r < ranks; ++r) sent[r] = to[r].bytes;
  check_mpi(MPI_Alltoall(sent.data(), 1, MPI_INT64_T, received.data(), 1, MPI_INT64_T, comm),
            "MPI_Alltoall");
  const auto own = std::size_t(control.rank());
  std::vector<MPI_Request> requests;
  const auto each = [&](std::size_t r, void* data, Index bytes, bool sending) {
    for (Index from = 0; from < bytes; from += largest) {
      char* const piece = static_cast<char*>(data) + from;
      const int count = int(std::min(largest, bytes - from));
      requests.emplace_back();
      check_mpi(sending ? MPI_Isend(piece, count, MPI_BYTE, int(r), 0, comm, &requests.back())
                        : MPI_Irecv(piece, count, MPI_BYTE, int(r), 0, comm, &requests.back()),
                sending ? "MPI_Isend" : "MPI_Irecv");
    }
  };
  for (std::size_t r = 0; r < ranks; ++r)
    if (r != own) each(r, room(int(r), received[r]), received[r], false);
  for (std::size_t r = 0; r < ranks; ++r)
    if (r != own) each(r, to[r].data, sent[r], true);
  check_mpi(MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

}  // namespace terrace
