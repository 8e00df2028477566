// Powers of two around a solve: norms of what conjugate gradients see neither overflow nor
// underflow, and 2^i A and 2^j b make the same iteration.
#pragma once
#include <vector>

#include "src/cg/column.hpp"
#include "src/cg/columns.hpp"

namespace terrace::cg {

/// The system solved is (2^-power A) (2^(power - shift) x) = 2^-shift b, with a shift per column
/// such that the largest |b_i| is in [1, 2).
template <class B>
class CgScale {
 public:
  /// A = 2^power times the numbers stored; `b` and `x`: this rank's rows of all columns, x a start where
  /// it is `given`. Gives each column its shift, and settles those that need no iteration or allow none.
  /// Collective.
  CgScale(const Context<B>& context, int power, const CgRows<const double>& b,
          const CgRows<double>& x, bool given, std::vector<CgColumn>& columns);
  [[nodiscard]] double largest_of_b(std::size_t v) const { return b_most_[v]; }
  [[nodiscard]] bool x_is_zero() const { return x_is_zero_; }
  /// Columns without an iteration are zero there.
  void load_b(const CgRows<const double>& b, View<double, B> to) { load(b, b_down_, told_, to); }
  void load_x(const CgRows<double>& x, View<double, B> to) {
    load({x.data, x.size, x.there}, x_down_, open_, to);
  }
  /// x in the user's units; where b was refused it stays as it was. Overwrites `from`.
  void store(View<double, B> from, const CgRows<double>& x);
  /// The same where no column has an iteration.
  void store_zeros(const CgRows<double>& x) const;

  /// Largest magnitude per column over all ranks. Collective.
  [[nodiscard]] std::vector<double> largest(View<const double, B> block) const;
  /// Whether x, of these magnitudes, meets an end of the range of doubles in the user's units.
  [[nodiscard]] bool near_an_end(const std::vector<double>& x_most) const;
  /// `x` as it comes back from the user's units; zero where it is infinite there.
  struct Rounded {
    std::vector<double> x;
    std::vector<double> lost;  ///< per column, of all ranks. 1: rounded, 2: too large
    [[nodiscard]] bool any() const;
  };
  [[nodiscard]] Rounded rounded(const std::vector<double>& x) const;

 private:
  std::vector<double> largest_given(const double* rows, Index size, bool there) const;
  /// `chosen`: columns that may go up as they are.
  void load(const CgRows<const double>& from, const std::vector<int>& power,
            const std::vector<bool>& chosen, View<double, B> to);
  [[nodiscard]] bool scaled_there(const std::vector<int>& power,
                                  const std::vector<bool>& chosen) const;
  void scale_there(View<double, B> block, const std::vector<int>& power) const;

  const Context<B>& context_;
  const std::size_t width_;
  std::vector<double> b_most_;
  std::vector<int> b_down_, x_down_, x_up_;  // powers of two
  std::vector<bool> open_, told_;            // has iterations; x is ours to say
  bool x_is_zero_ = true;
  std::vector<double> host_;
};

}  // namespace terrace::cg
