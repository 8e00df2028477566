// A streamed factorization that tries again what fails, the matrix read once more each time: from
// one end, which knows the leading minor; then scaled by a power of two, if a pivot may be bad for
// its size alone.
#pragma once
#include "io/scratch.hpp"
#include "src/band/stream.hpp"

namespace terrace {

struct StreamFailure {
  Index minor = 0;          ///< not definite, or the row whose pivot is out of range; 0: none
  bool unscalable = false;  ///< the latter, and the entries are too far apart for one scale
  bool passing = false;     ///< it did not fail twice
};

template <class B>
struct StreamTries {
  Context<B>& c;
  const io::BandInput& matrix;
  BandPlan plan;
  Index kept;          ///< slabs of an end that the host keeps, a scratch file the rest; 0: all
  std::string folder;  ///< of that file
  Progress& progress;
  std::function<void(const std::string&)> note;  ///< what is tried next, in words
  io::ScratchFile file{};
  BandStream<B> band = BandStream<B>();
  int exponent = 0;    ///< of the scale
  bool lost = false;   ///< scaled, some entries left the range of normal numbers
  double reading = 0;  ///< seconds of the last try in which the file was read

  /// What the matrix is multiplied by.
  [[nodiscard]] double scale() const;
  /// Takes the memory; with `goes_on`, for the ends of the checkpoint that the run continues. This
  /// is not moved any more. Collective.
  void take(bool goes_on);
  /// band := the factor, and Y := L^-1 Y if there is one. begin(): Y once more, times scale(),
  /// before each further try. `twice`: what fails has to fail twice. Collective.
  StreamFailure factor(BandStreamRows<B>* y, const std::function<void()>& begin, bool twice);

 private:
  void take_ends();
  Index attempt(BandStreamRows<B>* y);
  bool choose_scale(Index failed);
};

}  // namespace terrace
