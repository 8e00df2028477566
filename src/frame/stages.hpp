// Where the time of an elimination goes: marks on the lanes around the stages of
// src/frame/eliminate.hpp.
#pragma once
#include <memory>
#include <type_traits>
#include <vector>

#include "distrib/context.hpp"
#include "kernels/base/ranges.hpp"

namespace terrace {

enum class Stage {
  panel,   ///< choosing the pivots of a panel, or factoring it
  share,   ///< bringing the panel to all ranks
  widen,   ///< inside share: what makes the pivot rows into the update's factor
  update,  ///< applying the panel
  guard    ///< check sums of --guard
};

const char* to_string(Stage stage);

/// One rank's seconds on its lanes, from the first panel to the end of the last update.
struct StageSeconds {
  double panel = 0, share = 0, widen = 0, update = 0, guard = 0;  ///< share without widen
  double hidden = 0;  ///< of panel, share and widen: while an update was under way
  double loop = 0;    ///< the whole loop
  Index panels = 0;   ///< panels that were shared
  Index host_synchronizations = 0;
};

/// Whether eliminations of this process time their stages unasked, for --report; and the sum of
/// what they found.
void record_stages(bool on);
bool recording_stages();
void add_recorded_stages(const StageSeconds& seconds);
StageSeconds recorded_stages();

/// Off unless made by on(): time() then only names a range for profilers and runs its work. Copies
/// share the marks. A lane's stages are timed where the work runs, so waiting for another lane
/// counts only inside a stage. On: two events a stage on CUDA, two readings of the clock on the
/// CPU.
template <class B>
class StageTimes {
 public:
  StageTimes() = default;
  [[nodiscard]] static StageTimes on();
  [[nodiscard]] bool is_on() const { return marks_ != nullptr; }

  /// Room for the marks of `panels` panels; the loop begins.
  void begin(const Context<B>& context, Index panels) const;
  template <class Work>
  void time(const Stream<B>& lane, Stage stage, Work&& work) const {
    const ProfileRange range(to_string(stage));
    const Index span = marks_ ? open(lane, stage) : 0;
    work();
    if (marks_) close(lane, span);
  }
  /// The loop ends; its lanes are idle.
  void end(const Context<B>& context) const;

  /// After end(). Local.
  [[nodiscard]] StageSeconds seconds() const;

 private:
  using Mark = std::conditional_t<std::is_same_v<B, Cpu>, double, Event<Cuda>>;
  struct Span {
    Stage stage;
    Mark begin{}, end{};
  };
  struct Marks {
    std::vector<Span> spans;
    Mark begin{}, end{};
    Index synchronizations = 0;
  };
  Index open(const Stream<B>& lane, Stage stage) const;
  void close(const Stream<B>& lane, Index span) const;
  static void set(const Stream<B>& lane, Mark& mark);

  std::shared_ptr<Marks> marks_;
};

}  // namespace terrace
