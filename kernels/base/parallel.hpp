// Threads of the CPU backend. Work is cut by the caller into fixed pieces, so results do not depend
// on the number of threads. OpenBLAS itself is kept on one thread: the pieces call it in parallel.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace {

/// Threads that parallel_for may use (at least 1).
int thread_count();
/// Set before the first parallel_for; also puts OpenBLAS on one thread.
void set_thread_count(int count);
/// "OpenBLAS 0.3.21 ... (header 0.3.21)".
std::string blas_version();
/// piece(i) for i in [0, count), in any order, by up to thread_count() threads; returns when all
/// are done. The first exception is rethrown. Nested or concurrent calls run in the calling thread.
void parallel_for(Index count, const std::function<void(Index)>& piece);
/// This thread is one of several that have a share of the work each: in it, the functions here run
/// alone from now on.
void work_alone();
/// piece(from, to) over [0, count) cut into pieces of at most `grain`.
void parallel_ranges(Index count, Index grain, const std::function<void(Index, Index)>& piece);

/// Threads that run the same work at the same time and may wait for each other.
class Team {
 public:
  struct Shared {
    alignas(64) std::atomic<Index> arrived{0};
    alignas(64) std::atomic<Index> round{0};
  };
  Team(Index rank, Index size, Shared& shared) : rank(rank), size(size), shared_(shared) {}
  const Index rank, size;
  void barrier() const;
  /// Until another thread of the team has set `flag` to `value`; true when that took so long (50 us
  /// or more) that the other thread may have lost its core.
  static bool await(const std::atomic<Index>& flag, Index value);

 private:
  Shared& shared_;
};
/// work(team) on up to `most` threads at once; alone in the calling thread where parallel_for would
/// be. `work` must not throw.
void parallel_team(Index most, const std::function<void(const Team&)>& work);

}  // namespace terrace
