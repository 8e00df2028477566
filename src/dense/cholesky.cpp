#include "src/dense/cholesky.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "distrib/layout.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"

namespace terrace::dense {
namespace {

Word bits_of(double value) {
  const double positive_zero = value + 0.0;  // -0 is 0
  Word bits = 0;
  std::memcpy(&bits, &positive_zero, sizeof bits);
  return bits;
}

}  // namespace

/// Whether A[i, j] = A[j, i], bit by bit, from rows in any order: a sum over all pairs of the bits
/// of one times r(smaller) s(larger), random odd numbers, must be that of the other. It misses a
/// difference once in 2^60.
class SymmetryCheck {
 public:
  explicit SymmetryCheck(Index n) : r_(static_cast<std::size_t>(n)), s_(r_) {
    for (Index i = 0; i < n; ++i) {
      r_[std::size_t(i)] = random_word(0x5ea1, i, 0) | 1;
      s_[std::size_t(i)] = random_word(0x5ea1, i, 1) | 1;
    }
  }
  /// Row i, all of it.
  void take(Index i, const double* row) {
    const Index n = Index(r_.size());
    ++taken_;
    Word below = 0, above = 0;
    for (Index j = 0; j < i; ++j) below += r_[std::size_t(j)] * bits_of(row[j]);
    for (Index j = i + 1; j < n; ++j) above += s_[std::size_t(j)] * bits_of(row[j]);
    difference_ += r_[std::size_t(i)] * above - s_[std::size_t(i)] * below;
  }
  /// Whether every row was taken as often, by any rank. Collective, like the next.
  [[nodiscard]] bool whole(const Control& control) const {
    return control.reduce(taken_.load(), Reduce::sum) % Index(r_.size()) == 0;
  }
  [[nodiscard]] bool holds(const Control& control) const {
    std::vector<Word> sum{difference_.load()};
    control.reduce(sum, Reduce::sum);
    return sum[0] == 0;
  }

 private:
  std::vector<Word> r_, s_;
  std::atomic<Word> difference_{0};
  std::atomic<Index> taken_{0};
};

namespace {

RowReader columns_of(Index n, RowReader rows, std::shared_ptr<SymmetryCheck> check) {
  return [n, rows = std::move(rows), check = std::move(check)](std::span<const Range> ranges,
                                                               const io::Sink<double>& sink) {
    std::vector<Index> numbers;  // of the rows of this rank
    for (const Range& range : ranges)
      for (Index i = range.first; i < range.end(); ++i) numbers.push_back(i);
    PinnedBuffer<double> columns;
    rows(ranges, [&](Index position, Index count, const double* data) {
      if (columns.size() < count * n) columns = PinnedBuffer<double>(count * n);
      parallel_ranges(count, 8, [&](Index begin, Index end) {
        for (Index k = begin; k < end; ++k) {
          const Index i = numbers[std::size_t(position + k)];
          check->take(i, data + k * n);
          double* const out = columns.data() + k * n;
          std::copy(data + k * n + i, data + (k + 1) * n, out);
          std::fill(out + (n - i), out + n, 0.0);
        }
      });
      sink(position, count, columns.data());
    });
  };
}

}  // namespace

std::string NotDefinite::words() const {
  return minor > 0 ? fmt::format(
                         "not positive definite: its leading minor of order {} is not "
                         "positive",
                         minor)
                   : std::string("not symmetric");
}

SymmetricMatrix::SymmetricMatrix(const Control& control, Index n, RowReader rows)
    : control_(control),
      n_(n),
      rows_(std::move(rows)),
      check_(std::make_shared<SymmetryCheck>(n)) {}

RowReader SymmetricMatrix::columns() const { return columns_of(n_, rows_, check_); }

bool SymmetricMatrix::is_symmetric() const {
  if (n_ == 0) return true;
  if (check_->whole(control_)) return check_->holds(control_);
  const auto again = std::make_shared<SymmetryCheck>(n_);
  const Range own = contiguous(n_, control_.size()).ranges(control_.rank()).front();
  columns_of(n_, rows_, again)({&own, 1}, [](Index, Index, const double*) {});
  return again->holds(control_);
}

std::optional<NotDefinite> SymmetricMatrix::refused(Index failed_minor) const {
  if (!is_symmetric()) return NotDefinite{};
  if (failed_minor > 0) return NotDefinite{failed_minor};
  return {};
}

bool SymmetricMatrix::looks_definite() const {
  constexpr Index most = 8;
  const Index count = std::min(most, n_);
  if (n_ == 0) return false;
  std::vector<Range> ranges;
  if (control_.rank() == 0)
    for (Index k = 0; k < count; ++k) ranges.push_back({k * n_ / count, 1});
  std::vector<double> values;
  rows_(ranges, [&](Index, Index rows, const double* data) {
    values.insert(values.end(), data, data + rows * n_);
  });
  Index good = 1;
  for (std::size_t k = 0; k < ranges.size(); ++k)
    for (std::size_t l = 0; l < ranges.size(); ++l) {
      const double* const row = values.data() + Index(k) * n_;
      const double other = values[l * std::size_t(n_) + std::size_t(ranges[k].first)];
      if (!(row[ranges[l].first] == other) || (k == l && !(other > 0))) good = 0;
    }
  return control_.reduce(good, Reduce::min) == 1;
}

}  // namespace terrace::dense
