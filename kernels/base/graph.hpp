// A recorded sequence of kernels and collectives that is launched as one piece: no host between
// them. On the CPU it is the function itself.
#pragma once
#include <functional>
#include <memory>

#include "kernels/base/stream.hpp"

namespace terrace {

template <class B>
class Graph;

template <>
class Graph<Cpu> {
 public:
  Graph() = default;
  Graph(const Stream<Cpu>&, std::function<void()> work) : work_(std::move(work)) {}
  [[nodiscard]] bool recorded() const { return bool(work_); }
  void launch(const Stream<Cpu>&) const { work_(); }

 private:
  std::function<void()> work_;
};

/// Records what `work` enqueues on `stream` (and on streams that wait for it and that it waits for
/// again). `work` must neither allocate nor synchronise.
template <>
class Graph<Cuda> {
 public:
  Graph() = default;
  Graph(const Stream<Cuda>& stream, const std::function<void()>& work);
  [[nodiscard]] bool recorded() const { return graph_ != nullptr; }
  void launch(const Stream<Cuda>& stream) const;

 private:
  std::shared_ptr<void> graph_;  // cudaGraphExec_t
};
/// Whether a Graph records what is enqueued on it now.
bool is_recording(const Stream<Cuda>& stream);

}  // namespace terrace
