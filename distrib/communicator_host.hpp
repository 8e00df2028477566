// Blocking collectives on host memory over a communicator of their own; counts are 64-bit.
#pragma once
#include <span>

#include "distrib/communicator.hpp"
#include "distrib/mpi.hpp"

namespace terrace {

/// Bytes that one MPI call or one staging buffer takes at most: `usual`, or less where
/// TERRACE_TEST_PIECE_BYTES says so, for tests of longer messages.
Index piece_limit(Index usual);

struct MpiLane {
  explicit MpiLane(const Control& control);
  ~MpiLane();
  MpiLane(const MpiLane&) = delete;
  MpiLane& operator=(const MpiLane&) = delete;

  void broadcast(int root, void* data, Index bytes) const;
  void all_gather(const void* send, Index bytes, void* recv) const;
  void all_reduce(Reduce op, DataType type, void* data, Index count) const;  ///< 8-byte types
  void reduce_scatter(Reduce op, DataType type, const void* send, void* recv, Index count) const;
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives) const;

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
};

}  // namespace terrace
