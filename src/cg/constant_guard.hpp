// --guard of solvers that read their matrix and right-hand sides and never write them.
#pragma once
#include <optional>
#include <vector>

#include "distrib/access.hpp"
#include "distrib/context.hpp"
#include "kernels/base/guard.hpp"
#include "src/frame/guard.hpp"

namespace terrace::cg {

/// The matrix and its preconditioner: sums of their words must stay what they were at first.
///
/// The XOR of the arrays' words, folded to fold_words of them. One bit that flips is always seen.
/// A check reads the arrays once, on context.bulk, and nobody waits: its verdict is read when the
/// next one begins. On the CPU an access outside memory, by a number that is an index, asks for the
/// sums at once.
template <class B>
class ConstantGuard {
 public:
  static constexpr Index fold_words = 4096;
  static constexpr Index interval = 64;  ///< products with the matrix between checks: 1.6 %
  static constexpr Index bytes = 8 * (guard_height + 1) * fold_words;  ///< on the backend
  static constexpr Index host_bytes = 8 * 3 * fold_words;

  explicit ConstantGuard(const Context<B>& context);
  ConstantGuard(const ConstantGuard&) = delete;
  ConstantGuard& operator=(const ConstantGuard&) = delete;
  /// Backend memory that is watched, 64-byte aligned, with room for a whole last word.
  template <class T>
  void watch(const Buffer<T, B>& array) {
    if (array.size() > 0)
      arrays_.push_back(
          {reinterpret_cast<Word*>(array.data()), ceil_div(array.size() * Index(sizeof(T)), 8)});
  }
  /// Of what is watched since the last call, the sums as they are now.
  void begin();
  /// `k` steps are launched.
  void step(Index k);
  /// A last check, and all verdicts; throws Error(fault), which ends the job. Collective.
  void finish(Index k);

 private:
  void sum(std::size_t first = 0);
  void look();
  void flip_for_tests(Index k);
  static bool broken(void* guard);

  const Context<B>& context_;
  std::vector<View<Word, B>> arrays_;
  std::size_t begun_ = 0;          // arrays
  Buffer<Word, B> parts_, total_;  // parts_: the total so far, then a row a group
  PinnedBuffer<Word> seen_;
  std::vector<Word> right_, now_;
  std::optional<AccessWatch> access_;
  Event<B> known_;
  Index last_ = 0, checked_ = 0, due_ = 0;
  bool pending_ = false;
};

/// The vectors that one solve reads and never writes: copies on the host are what they must still be
/// at its end. (A wrong direction ends in a true residual that is too large; a wrong b does not.)
template <class B>
class VectorGuard {
 public:
  /// On the host, of so many numbers: finish() brings the longest vector there once more.
  static constexpr Index bytes(Index numbers, Index longest) { return 8 * (numbers + longest); }
  /// Copies them.
  void begin(const Context<B>& context, const std::vector<View<const double, B>>& vectors);
  /// Throws the agreed Error(fault). Collective.
  void finish(const Context<B>& context) const;

 private:
  std::vector<View<const double, B>> vectors_;
  std::vector<std::vector<double>> right_;
};

}  // namespace terrace::cg
