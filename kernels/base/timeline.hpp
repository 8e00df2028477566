// What the threads of this process did when: the timeline of --report.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// Work of a lane, in seconds since this program was loaded. Lanes are "run" (the phases, one after
/// the other), "host" (the thread that calls), "file" (threads that read and write beside it) and
/// "device" (what is prepared beside it).
struct Span {
  std::string lane, what;
  double from = 0, to = 0;
};

/// Notes work that ends now. Spans of one lane and name that are less than a millisecond apart become
/// one; the first 4,096 are kept. Any thread.
void note_span(const std::string& lane, const std::string& what, double from);
/// Seconds since this program was loaded.
double timeline_now();

/// Notes what is done until the end of its scope.
class Noted {
 public:
  Noted(const char* lane, std::string what)
      : lane_(lane), what_(std::move(what)), from_(timeline_now()) {}
  ~Noted() { note_span(lane_, what_, from_); }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  const char* lane_;
  std::string what_;
  double from_;
};

/// What was noted so far, by its beginning.
std::vector<Span> timeline();
/// Seconds that lanes other than "run" worked side by side: the sum of their spans less what these
/// cover together.
double overlapped_seconds(std::span<const Span> spans);

}  // namespace terrace
