#include "src/dense/cholesky.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "distrib/layout.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "kernels/dense/probes.hpp"
#include "kernels/dense/symmetry.hpp"

namespace terrace::dense {
/// What the rows say of symmetry and norm, in any order and on any rank.
class SymmetryCheck {
 public:
  explicit SymmetryCheck(Index n) : r_(static_cast<std::size_t>(n)), s_(r_) {
    for (Index i = 0; i < n; ++i) {
      r_[std::size_t(i)] = random_word(0x5ea1, i, 0) | 1;
      s_[std::size_t(i)] = random_word(0x5ea1, i, 1) | 1;
    }
  }
  /// Rows first, first + 1 ..., all of each; `out`: as take_row() leaves them.
  void take(Index first, Index count, const double* rows, double* out) {
    const Index n = Index(r_.size());
    Word difference = 0;
    long double norm = 0;
    for (Index k = 0; k < count; ++k) {
      const WholeRow row{n, first + k, rows + k * n, r_.data(), s_.data(), out ? out + k * n : out};
      take_row(row);
      difference += row.hash;
      norm = std::max(norm, std::isfinite(row.norm) ? row.norm : long_norm(row));
    }
    const std::lock_guard lock(mutex_);
    difference_ += difference;
    norm_ = std::max(norm_, norm);
    taken_ += count;
  }
  /// Whether every row was taken as often, by any rank. Collective, like the others.
  [[nodiscard]] bool whole(const Control& control) {
    const Index taken = control.reduce(taken_, Reduce::sum);
    settled_ = taken > 0 && taken % Index(r_.size()) == 0;
    return taken % Index(r_.size()) == 0;
  }
  [[nodiscard]] bool holds(const Control& control) const {
    std::vector<Word> sum{difference_};
    control.reduce(sum, Reduce::sum);
    return sum[0] == 0;
  }
  /// Whether whole() found all rows: what is read again need not be taken.
  [[nodiscard]] bool settled() const { return settled_; }
  /// The infinity norm as m 2^p, as it may be more than doubles hold.
  [[nodiscard]] std::pair<double, int> norm(const Control& control) const {
    int power = 0;
    const double part = double(std::frexp(norm_, &power));
    const Index mine = norm_ > 0 ? power : std::numeric_limits<int>::min();
    const Index most = control.reduce(mine, Reduce::max);
    return {control.reduce(mine == most ? part : 0.0, Reduce::max), int(most)};
  }

 private:
  static long double long_norm(const WholeRow& row) {
    long double sum = 0;
    for (Index j = 0; j < row.n; ++j) sum += std::fabs(row.row[j]);
    return sum;
  }

  std::vector<Word> r_, s_;
  std::mutex mutex_;
  Word difference_ = 0;
  long double norm_ = 0;
  Index taken_ = 0;
  bool settled_ = false;
};

namespace {

RowReader columns_of(Index n, RowReader rows, std::shared_ptr<SymmetryCheck> check) {
  // Kept from call to call: memory that a GPU reads takes long to get.
  const auto columns = std::make_shared<PinnedBuffer<double>>();
  return [n, rows = std::move(rows), check = std::move(check), columns](
             std::span<const Range> ranges, const io::Sink<double>& sink) {
    std::vector<Index> numbers;  // of the rows of this rank
    for (const Range& range : ranges)
      for (Index i = range.first; i < range.end(); ++i) numbers.push_back(i);
    SymmetryCheck* const taking = check && !check->settled() ? check.get() : nullptr;
    rows(ranges, [&](Index position, Index count, const double* data) {
      if (columns->size() < count * n) *columns = PinnedBuffer<double>(count * n);
      double* const to = columns->data();
      // A piece is of one range.
      parallel_ranges(count, 8, [&](Index begin, Index end) {
        const Index first = numbers[std::size_t(position + begin)];
        if (taking) return taking->take(first, end - begin, data + begin * n, to + begin * n);
        for (Index k = begin; k < end; ++k) {
          const Index i = first + k - begin;
          std::copy(data + k * n + i, data + (k + 1) * n, to + k * n);
          std::fill(to + (k + 1) * n - i, to + (k + 1) * n, 0.0);
        }
      });
      sink(position, count, to);
    });
  };
}

}  // namespace

RowReader lower_columns(Index n, RowReader upper_rows) {
  return columns_of(n, std::move(upper_rows), nullptr);
}

io::Source<double> upper_rows(Index n, std::span<const Range> ranges, io::Source<double> columns) {
  std::vector<Index> numbers;  // of this rank's rows
  for (const Range& range : ranges)
    for (Index j = range.first; j < range.end(); ++j) numbers.push_back(j);
  return [n, numbers = std::move(numbers), columns = std::move(columns)](Index position,
                                                                         Index count, double* out) {
    columns(position, count, out);
    parallel_ranges(count, 8, [&](Index from, Index to) {
      for (Index k = from; k < to; ++k) {
        const Index j = numbers[std::size_t(position + k)];
        double* const row = out + k * n;
        std::copy_backward(row, row + (n - j), row + n);
        std::fill(row, row + j, 0.0);
      }
    });
  };
}

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

bool SymmetricMatrix::is_symmetric() {
  if (n_ == 0) return true;
  if (!check_->whole(control_)) {
    check_ = std::make_shared<SymmetryCheck>(n_);
    const auto own = contiguous(n_, control_.size()).ranges(control_.rank());
    columns()(own, [](Index, Index, const double*) {});
  }
  return check_->holds(control_);
}

std::optional<NotDefinite> SymmetricMatrix::refused(Index failed_minor) {
  if (!is_symmetric()) return NotDefinite{};
  if (failed_minor > 0) return NotDefinite{failed_minor};
  return {};
}

double SymmetricMatrix::reciprocal_condition(
    std::span<const Range> ranges, const std::function<void(std::vector<double>&)>& solve) const {
  if (n_ == 0) return 1;
  const auto [part, power] = check_->norm(control_);
  if (part == 0) return 0;
  // 2^scale z in place of z, so that y is near A^-1 of a matrix near one.
  const int scale = std::clamp(power, -900, 900);
  std::vector<double> y;
  for (const Range& range : ranges)
    for (Index i = range.first; i < range.end(); ++i)
      for (Index p = 0; p < condition_probes; ++p)
        y.push_back(std::ldexp(cauchy_probe(i, p), scale));
  const Index rows = Index(y.size()) / condition_probes;
  solve(y);
  const double of_inverse =
      control_.reduce(norm_from_probes(rows, y.data(), condition_probes), Reduce::max);
  return std::ldexp(safe_reciprocal(part, of_inverse), scale - power);
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
