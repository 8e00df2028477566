#include "src/commands/dense_cholesky.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "distrib/layout.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "src/commands/band_job.hpp"

namespace terrace::dense {
namespace {

Word bits_of(double value) {
  const double positive_zero = value + 0.0;  // -0 is 0
  Word bits = 0;
  std::memcpy(&bits, &positive_zero, sizeof bits);
  return bits;
}

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

/// Column j of the lower band, from the diagonal down, is row j of A from there on.
band::BandReader whole_band(const Run& run, const io::DenseInput& a,
                            const std::shared_ptr<SymmetryCheck>& symmetry) {
  const Index n = a.rows();
  return {n, n - 1,
          [&run, &a, symmetry, n](std::span<const Range> ranges, const io::Sink<double>& sink) {
            std::vector<Index> numbers;  // of the rows of this rank
            for (const Range& range : ranges)
              for (Index i = range.first; i < range.end(); ++i) numbers.push_back(i);
            PinnedBuffer<double> columns;
            a.read(run.control, ranges, [&](Index position, Index count, const double* rows) {
              if (columns.size() < count * n) columns = PinnedBuffer<double>(count * n);
              parallel_ranges(count, 8, [&](Index begin, Index end) {
                for (Index k = begin; k < end; ++k) {
                  const Index i = numbers[std::size_t(position + k)];
                  symmetry->take(i, rows + k * n);
                  double* const out = columns.data() + k * n;
                  std::copy(rows + k * n + i, rows + (k + 1) * n, out);
                  std::fill(out + (n - i), out + n, 0.0);
                }
              });
              sink(position, count, columns.data());
            });
          }};
}

/// A run that is continued has not read all rows: then they are read once more.
bool is_symmetric(const Run& run, const io::DenseInput& a, const SymmetryCheck& seen) {
  if (seen.whole(run.control)) return seen.holds(run.control);
  const auto again = std::make_shared<SymmetryCheck>(a.rows());
  const Range own = contiguous(a.rows(), run.control.size()).ranges(run.control.rank()).front();
  whole_band(run, a, again).read({&own, 1}, [](Index, Index, const double*) {});
  return again->holds(run.control);
}

}  // namespace

bool looks_definite(const Run& run, const io::DenseInput& a) {
  constexpr Index most = 8;
  const Index n = a.rows(), count = std::min(most, n);
  if (n == 0) return false;
  std::vector<Range> ranges;
  if (run.control.rank() == 0)
    for (Index k = 0; k < count; ++k) ranges.push_back({k * n / count, 1});
  std::vector<double> values;
  a.read(run.control, ranges, [&](Index, Index rows, const double* data) {
    values.insert(values.end(), data, data + rows * n);
  });
  Index good = 1;
  for (std::size_t k = 0; k < ranges.size(); ++k)
    for (std::size_t l = 0; l < ranges.size(); ++l) {
      const double* const row = values.data() + Index(k) * n;
      const double other = values[l * std::size_t(n) + std::size_t(ranges[k].first)];
      if (!(row[ranges[l].first] == other) || (k == l && !(other > 0))) good = 0;
    }
  return run.control.reduce(good, Reduce::min) == 1;
}

void solve_by_cholesky(Run& run, const io::DenseInput& a, const io::DenseInput& b) {
  const bool asked = run.options.method == "cholesky";
  const auto symmetry = std::make_shared<SymmetryCheck>(a.rows());
  const std::string where = io::to_string(a.location());
  band::BandFiles files;
  files.matrix = whole_band(run, a, symmetry);
  files.location = a.location();
  files.whole = true;
  files.rhs.emplace(b);
  files.judge = [&](Index minor) {
    if (!is_symmetric(run, a, *symmetry)) {
      if (!asked) throw NotDefinite{};
      fail_together(Exit::input, fmt::format("the matrix is not symmetric; {}; use --method lu, or "
                                             "mend the matrix",
                                             where));
    }
    if (minor > 0 && !asked) throw NotDefinite{minor};
  };
  const std::string method = std::exchange(run.options.method, "auto");
  band::BandRequest request;
  request.method = run.options.block > 0 ? "tile-columns" : "auto";  // the others' widths are fixed
  request.block = run.options.block;
  request.ranks = run.control.size();
  band::adopt_band_settings(run, request);
  band::check_request(request);
  run.settings["assume"] = "spd";
  band::conduct_band(run, files, band::BandOptions(), request);
  run.options.method = method;
}

}  // namespace terrace::dense
