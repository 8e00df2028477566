// Numbers of one drawn case.
#pragma once
#include "kernels/base/random.hpp"

namespace terrace::test {

class Draw {
 public:
  explicit Draw(Word seed) : seed_(seed) {}
  double uniform() { return random_uniform(seed_, next_++, 1); }  ///< in (-1, 1)
  Index below(Index end) { return Index((random_word(seed_, next_++, 2) >> 8) % Word(end)); }
  Index between(Index from, Index to) { return from + below(to - from + 1); }
  bool one_in(Index n) { return below(n) == 0; }
  template <class T, std::size_t count>
  T of(const T (&choices)[count]) {
    return choices[below(Index(count))];
  }

 private:
  Word seed_;
  Index next_ = 0;
};

}  // namespace terrace::test
