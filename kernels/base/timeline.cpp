#include "kernels/base/timeline.hpp"

#include <algorithm>
#include <mutex>

#include "kernels/base/clock.hpp"

namespace terrace {

namespace {

const double loaded = clock_seconds();

struct Notes {
  std::mutex mutex;
  std::vector<Span> spans;
};
/// Never freed: threads may end after the program's statics.
Notes& notes() {
  static Notes* const all = new Notes;
  return *all;
}

}  // namespace

double timeline_now() { return clock_seconds() - loaded; }

void note_span(const std::string& lane, const std::string& what, double from) {
  constexpr double near = 1e-3;
  constexpr std::size_t most = 4096;
  const double to = timeline_now();
  Notes& all = notes();
  const std::lock_guard lock(all.mutex);
  const auto last = std::find_if(all.spans.rbegin(), all.spans.rend(),
                                 [&](const Span& s) { return s.lane == lane; });
  if (last != all.spans.rend() && last->what == what && from - last->to < near)
    last->to = std::max(last->to, to);
  else if (all.spans.size() < most)
    all.spans.push_back({lane, what, from, to});
}

std::vector<Span> timeline() {
  Notes& all = notes();
  const std::lock_guard lock(all.mutex);
  std::vector<Span> spans = all.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.from < b.from; });
  return spans;
}

double overlapped_seconds(std::span<const Span> given) {
  std::vector<Span> spans;
  for (const Span& s : given)
    if (s.lane != "run") spans.push_back(s);
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.from < b.from; });
  double sum = 0, covered = 0, end = 0;
  for (const Span& s : spans) {
    sum += s.to - s.from;
    covered += std::max(0.0, s.to - std::max(end, s.from));
    end = std::max(end, s.to);
  }
  return sum - covered;
}

}  // namespace terrace
