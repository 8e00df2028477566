#include "src/frame/stages.hpp"

#include <algorithm>
#include <utility>

#include "kernels/base/clock.hpp"

namespace terrace {

namespace {

constexpr Index spans_per_panel = 6;  // panel, share, widen, two updates, guard

double between(double begin, double end) { return end - begin; }
[[maybe_unused]] double between(const Event<Cuda>& begin, const Event<Cuda>& end) {
  return seconds_between(begin, end);
}

}  // namespace

const char* to_string(Stage stage) {
  switch (stage) {
    case Stage::panel:
      return "panel";
    case Stage::share:
      return "share";
    case Stage::widen:
      return "widen";
    case Stage::update:
      return "update";
    case Stage::guard:
      return "guard";
  }
  return "";
}

namespace {
bool recording = false;
StageSeconds recorded;
}  // namespace

void record_stages(bool on) { recording = on; }
bool recording_stages() { return recording; }
void add_recorded_stages(const StageSeconds& s) {
  recorded.panel += s.panel;
  recorded.share += s.share;
  recorded.widen += s.widen;
  recorded.update += s.update;
  recorded.guard += s.guard;
  recorded.hidden += s.hidden;
  recorded.loop += s.loop;
  recorded.panels += s.panels;
  recorded.host_synchronizations += s.host_synchronizations;
}
StageSeconds recorded_stages() { return recorded; }

template <class B>
StageTimes<B> StageTimes<B>::on() {
  StageTimes times;
  times.marks_ = std::make_shared<Marks>();
  return times;
}

template <class B>
void StageTimes<B>::set(const Stream<B>& lane, Mark& mark) {
  if constexpr (std::is_same_v<B, Cpu>)
    lane.run([&mark] { mark = clock_seconds(); });
  else
    mark = lane.record();
}

template <class B>
void StageTimes<B>::begin(const Context<B>& context, Index panels) const {
  if (!marks_) return;
  marks_->spans.clear();
  marks_->spans.reserve(std::size_t(spans_per_panel * panels + 2));
  set(context.bulk, marks_->begin);
  context.bulk.synchronize();
  marks_->synchronizations = host_synchronizations();
}

template <class B>
void StageTimes<B>::end(const Context<B>& context) const {
  if (!marks_) return;
  marks_->synchronizations = host_synchronizations() - marks_->synchronizations;
  set(context.bulk, marks_->end);
  context.bulk.synchronize();
}

// The spans stay where they are: begin() made room, and the lanes write into them later.
template <class B>
Index StageTimes<B>::open(const Stream<B>& lane, Stage stage) const {
  if (marks_->spans.size() == marks_->spans.capacity()) return -1;
  marks_->spans.push_back({stage, {}, {}});
  set(lane, marks_->spans.back().begin);
  return Index(marks_->spans.size()) - 1;
}
template <class B>
void StageTimes<B>::close(const Stream<B>& lane, Index span) const {
  if (span >= 0) set(lane, marks_->spans[std::size_t(span)].end);
}

template <class B>
StageSeconds StageTimes<B>::seconds() const {
  StageSeconds sum;
  if (!marks_) return sum;
  sum.loop = between(marks_->begin, marks_->end);
  sum.host_synchronizations = marks_->synchronizations;
  // Updates follow each other on one lane.
  std::vector<std::pair<double, double>> updates;
  for (const Span& span : marks_->spans)
    if (span.stage == Stage::update)
      updates.emplace_back(between(marks_->begin, span.begin), between(marks_->begin, span.end));
  std::size_t next = 0;
  for (const Span& span : marks_->spans) {
    const double seconds = between(span.begin, span.end);
    switch (span.stage) {
      case Stage::panel:
        sum.panel += seconds;
        break;
      case Stage::share:
        sum.share += seconds, ++sum.panels;
        break;
      case Stage::widen:
        sum.widen += seconds, sum.share -= seconds;
        continue;
      case Stage::update:
        sum.update += seconds;
        continue;
      case Stage::guard:
        sum.guard += seconds;
        continue;
    }
    const double from = between(marks_->begin, span.begin);
    const double to = between(marks_->begin, span.end);
    while (next < updates.size() && updates[next].second <= from) ++next;
    for (std::size_t u = next; u < updates.size() && updates[u].first < to; ++u)
      sum.hidden +=
          std::max(0.0, std::min(to, updates[u].second) - std::max(from, updates[u].first));
  }
  return sum;
}

#define TERRACE_INSTANTIATE(B) template class StageTimes<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
