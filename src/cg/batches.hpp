// Batches of iterations: launched ahead of the host, which reads their scalars behind.
#pragma once
#include "distrib/traffic.hpp"
#include "src/cg/engine.hpp"

namespace terrace::cg {

/// Iterations that are launched at once: enough that the host keeps ahead, few enough that little
/// is wasted at the end.
struct BatchPlan {
  Index size = 1;
  bool graph = false;  ///< launches would show
};
template <class B, class A>
BatchPlan plan_batches(const Context<B>& c, const A& a, const CgWork<B>& w,
                       const CgEngine<B, A>& engine) {
  if (std::is_same_v<B, Cpu> || (c.size() > 1 && c.device.shared)) return {};
  if (engine.resident()) return {64, true};  // its launch costs as much as two iterations
  // The same on all ranks, whichever rows they have.
  const double share = A::replicated ? 1.0 : double(c.size()), rows = double(a.n()) / share;
  const double seconds =
      2e-5 + (a.bytes() / double(c.size()) + 64.0 * double(w.columns) * rows) / 4e12;
  // With a general preconditioner iterations take longer, and few of them are left at the end.
  return {w.general || seconds > 6e-5 ? 4 : seconds > 3e-5 ? 8 : 16, seconds < 3e-4};
}

/// Launches iterations ahead and reads their scalars behind.
template <class B, class A>
class Batches {
 public:
  Batches(const Context<B>& c, const A& a, CgWork<B>& w, const CgEngine<B, A>& engine)
      : c_(c), w_(w), engine_(engine), plan_(plan_batches(c, a, w, engine)) {}
  [[nodiscard]] Index size() const { return plan_.size; }
  void forget() { graph_ = {}; }
  /// Iterations first .. first + count - 1 (count <= size()).
  void launch(Index first, Index count) {
    const auto work = [&] {
      for (Index i = 0; i < count; ++i) engine_.iterate(first + i);
    };
    if (engine_.resident()) return engine_.run_resident(first, count);
    if (plan_.graph && count == plan_.size && first % 4 == 1) {
      if (!graph_.recorded()) {
        const bool pays = ++seen_ >= worth_recording();
        if (!pays) work();
        if (pays) {
          const Traffic before = traffic();
          graph_ = Graph<B>(c_.ahead, work);  // nothing is sent yet
          const Traffic after = traffic();
          batch_ = {after.sent - before.sent, after.received - before.received};
          count_traffic(-batch_.sent, -batch_.received);
        }
      }
      if (graph_.recorded()) {
        graph_.launch(c_.ahead);
        count_traffic(batch_.sent, batch_.received);
      }
    } else {
      work();
    }
  }
  /// Copies the rows of these iterations to the host, behind what is on the lane now.
  void observe(Index first, Index count) {
    w_.observer.wait(c_.ahead.record());
    const Index size = engine_.size(), ring = w_.ring_rows;
    for (Index i = 0; i < count;) {
      const Index slot = (first + i) % ring, run = std::min(count - i, ring - slot);
      download(w_.observer, w_.seen.data() + slot * size,
               w_.ring.view().slice(slot * size, run * size));
      i += run;
    }
  }
  void wait(Index first, Index count) {
    w_.observer.synchronize();
    if (c_.size() == 1) return;
    const Index size = engine_.size(), ring = w_.ring_rows;
    for (Index i = 0; i < count; ++i)  // the word of rank 0
      c_.control.broadcast(w_.seen.data() + (first + i) % ring * size, size * Index(sizeof(double)),
                           0);
  }
  [[nodiscard]] const double* row(Index i) const {
    return w_.seen.data() + i % w_.ring_rows * engine_.size();
  }

 private:
  /// A batch is recorded when it comes so often: that takes as long as launching it several times, and the
  /// first uses of libraries may not be recorded. With a general preconditioner, whose iterations have many
  /// launches, most solves have ended before.
  [[nodiscard]] Index worth_recording() const { return w_.general ? 16 : 4; }

  const Context<B>& c_;
  CgWork<B>& w_;
  const CgEngine<B, A>& engine_;
  BatchPlan plan_;
  Graph<B> graph_;
  Traffic batch_;  // of one launch
  Index seen_ = 0;
};

}  // namespace terrace::cg
