// Threads of the CPU backend. Work is cut by the caller into fixed pieces, so results do not depend
// on the number of threads. OpenBLAS itself is kept on one thread: the pieces call it in parallel.
#pragma once
#include <functional>

#include "kernels/backend.hpp"

namespace terrace {

/// Threads that parallel_for may use (at least 1).
int thread_count();
/// Set before the first parallel_for; also puts OpenBLAS on one thread.
void set_thread_count(int count);
/// piece(i) for i in [0, count), in any order, by up to thread_count() threads; returns when all
/// are done. The first exception is rethrown. Nested or concurrent calls run in the calling thread.
void parallel_for(Index count, const std::function<void(Index)>& piece);
/// piece(from, to) over [0, count) cut into pieces of at most `grain`.
void parallel_ranges(Index count, Index grain, const std::function<void(Index, Index)>& piece);

}  // namespace terrace
