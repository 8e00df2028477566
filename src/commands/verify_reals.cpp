// Results over the reals: residuals scaled as LAPACK scales them, below 30 for a good result.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "src/commands/verify_reals.hpp"
#include "src/program/summary.hpp"

namespace terrace {

namespace {

constexpr Word real_probe_seed = 0x76657269667932ull;

}  // namespace

double largest(const std::vector<double>& v) {
  double most = 0;
  for (const double x : v) most = std::isnan(x) ? x : std::max(most, std::abs(x));
  return most;
}

Block read_block(const ResultFile& result, const io::DenseInput& input) {
  Block x(result, input.rows(), input.columns());
  const Range slice = result.slice(x.n);
  result.read(input, slice, [&](Index position, Index count, const double* data) {
    std::copy_n(data, count * x.k, x.row(slice.first + position));
  });
  result.control.reduce(x.data, Reduce::sum);
  return x;
}

Block random_block(const ResultFile& result, Index n, Index k) {
  Block z(result, n, k);
  for (Index i = 0; i < n * k; ++i)
    z.data[std::size_t(i)] = random_uniform(real_probe_seed, i / k, i % k);
  return z;
}

namespace {

/// The largest over all ranks.
long double widest(const Control& control, long double value) {
  int power = 0;
  const long double part = std::frexp(value, &power);
  const Index mine = value > 0 ? power : std::numeric_limits<int>::min();
  const Index most = control.reduce(mine, Reduce::max);
  const double found = control.reduce(mine == most ? double(part) : 0.0, Reduce::max);
  return std::ldexp(static_cast<long double>(found), int(std::max<Index>(most, -1 << 20)));
}
long double widest(const Control& control, const std::vector<long double>& values) {
  return widest(control, values.empty() ? 0.0L : *std::max_element(values.begin(), values.end()));
}

}  // namespace

double times_power(double value, Index power) {
  return power == 0 ? value : std::ldexp(value, int(std::clamp<Index>(power, -5000, 5000)));
}
Index power_to_one(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  int exponent = 0;
  (void)std::frexp(largest, &exponent);
  return -exponent;
}
namespace {

/// Brings every column near one; the powers.
std::vector<Index> bring_near_one(Block& x) {
  std::vector<Index> powers;
  for (Index c = 0; c < x.k; ++c) {
    double most = 0;
    for (Index i = 0; i < x.n; ++i) most = std::max(most, std::abs(x.row(i)[c]));
    powers.push_back(power_to_one(most));
    for (Index i = 0; i < x.n; ++i) x.row(i)[c] = times_power(x.row(i)[c], powers.back());
  }
  return powers;
}

}  // namespace

void add_scaled(double* to, const double* from, double factor, Index k) {
  for (Index c = 0; c < k; ++c) to[c] += factor * from[c];
}

Product dense_times(const ResultFile& result, const io::DenseInput& a, const Block& x,
                    Index power) {
  Product p{Block(result, a.rows(), x.k), 0, 0, power};
  const Range slice = result.slice(a.rows());
  std::vector<long double> sums(std::size_t(slice.count), 0.0L);
  std::vector<double> most(std::size_t(slice.count), 0.0);
  result.read(a, slice, [&](Index position, Index count, const double* data) {
    parallel_ranges(count, 4, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i)
        for (Index j = 0; j < x.n; ++j) {
          const double entry = times_power(data[i * x.n + j], power);
          most[std::size_t(position + i)] =
              std::max(most[std::size_t(position + i)], std::abs(data[i * x.n + j]));
          sums[std::size_t(position + i)] += std::abs(entry);
          add_scaled(p.y.row(slice.first + position + i), x.row(j), entry, x.k);
        }
    });
  });
  result.control.reduce(p.y.data, Reduce::sum);
  p.norm = widest(result.control, sums);
  p.largest = result.control.reduce(largest(most), Reduce::max);
  return p;
}

Product band_times(const ResultFile& result, const io::BandInput& a, const Block& x, Index power) {
  const Index n = a.n(), m = a.half_bandwidth();
  Product p{Block(result, n, x.k), 0, 0, power};
  std::vector<long double> sums(std::size_t(n), 0.0L);
  each_column(result, a, [&](Index j, const double* column) {
    for (Index i = j; i <= std::min(n - 1, j + m); ++i) {
      const double entry = times_power(column[i - j], power);
      p.largest = std::max(p.largest, std::abs(column[i - j]));
      add_scaled(p.y.row(i), x.row(j), entry, x.k);
      sums[std::size_t(i)] += std::abs(entry);
      if (i == j) continue;
      add_scaled(p.y.row(j), x.row(i), entry, x.k);
      sums[std::size_t(j)] += std::abs(entry);
    }
  });
  result.control.reduce(p.y.data, Reduce::sum);
  const long double unit = widest(result.control, sums);
  std::vector<double> parts(std::size_t(n), 0.0);  // in this unit, so that they add up to a double
  for (std::size_t i = 0; i < parts.size() && unit > 0; ++i) parts[i] = double(sums[i] / unit);
  result.control.reduce(parts, Reduce::sum);
  p.norm = unit * largest(parts);
  p.largest = result.control.reduce(p.largest, Reduce::max);
  return p;
}

namespace {

Product sparse_times(const ResultFile& result, const io::SparseInput& a, const Block& x) {
  Product p{Block(result, a.rows(), x.k)};
  const Range slice = result.slice(a.rows());
  io::SparseRows part;
  // Rows in pieces of bounded size, the same number of pieces on every rank; all of them at once
  // where each piece would read the whole file.
  const Index rows_a_piece = a.by_rows() ? Index(1) << 18 : std::max<Index>(1, a.rows());
  const Index pieces = ceil_div(result.control.reduce(slice.count, Reduce::max), rows_a_piece);
  long double norm = 0;
  const double bytes = 16.0 * double(a.nonzeros());
  if (result.show) result.show(a.location(), bytes / result.control.size(), bytes);
  for (Index piece = 0; piece < pieces; ++piece) {
    const Index from = std::min(slice.count, piece * rows_a_piece);
    const Range rows{slice.first + from, std::min(rows_a_piece, slice.count - from)};
    a.read(result.control, rows, part);
    for (Index i = 0; i < rows.count; ++i) {
      long double sum = 0;
      for (Index e = part.start[std::size_t(i)]; e < part.start[std::size_t(i) + 1]; ++e) {
        const double value = part.values[std::size_t(e)];
        sum += std::abs(value);
        add_scaled(p.y.row(rows.first + i), x.row(part.columns[std::size_t(e)]), value, x.k);
      }
      norm = std::max(norm, sum);
    }
  }
  result.control.reduce(p.y.data, Reduce::sum);
  p.norm = widest(result.control, norm);
  return p;
}

/// The matrix of any kind times x; `kind_named`: what the run was told where the file does not say.
/// `scale`: by a power of two, where its numbers are far from one (CSR: never).
Product any_times(const ResultFile& result, const io::Location& location,
                  const std::string& kind_named, const Block& x, bool scale = false) {
  const Control& control = result.control;
  io::Kind kind = io::Kind::dense;
  if (kind_named.empty())
    kind = io::kind_of(control, location, true);
  else if (kind_named == "band")
    kind = io::Kind::band;
  else if (kind_named == "csr")
    kind = io::Kind::sparse;
  const auto fit = [&](Index rows, Index columns) {
    if (rows == x.n && columns == x.n) return;
    fail_together(Exit::input,
                  fmt::format("the matrix is {} x {}, the solution has {} rows; {}; name "
                              "the input of this result",
                              rows, columns, x.n, io::to_string(location)));
  };
  if (kind == io::Kind::band) {
    const auto a = io::open_band(control, location);
    fit(a.n(), a.n());
    if (scale) return in_range([&](Index power) { return band_times(result, a, x, power); });
    return band_times(result, a, x);
  }
  if (kind == io::Kind::sparse) {
    const auto a = io::open_sparse(control, location);
    fit(a.rows(), a.columns());
    return sparse_times(result, a, x);
  }
  const auto a = io::open_dense(control, location);
  fit(a.rows(), a.columns());
  if (scale) return in_range([&](Index power) { return dense_times(result, a, x, power); });
  return dense_times(result, a, x);
}

}  // namespace

double residual_ratio(const Block& b, const Product& ax, const Block& x) {
  double worst = 0;
  for (Index c = 0; c < b.k; ++c) {
    double difference = 0, size_x = 0, size_b = 0;
    for (Index i = 0; i < b.n; ++i) {
      const double d = std::abs(b.row(i)[c] - ax.y.row(i)[c]);
      difference =
          std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(difference, d);
      size_b = std::max(size_b, std::abs(b.row(i)[c]));
    }
    for (Index i = 0; i < x.n; ++i) size_x = std::max(size_x, std::abs(x.row(i)[c]));
    const long double scale = double(std::max<Index>(1, b.n)) * eps * (ax.norm * size_x + size_b);
    if (difference == 0) continue;
    const double ratio = double(difference / scale);
    worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
  }
  return worst;
}

namespace {

/// x(:, c) *= 2^power[c] where A x would come close to an end of the range of doubles.
std::vector<int> away_from_the_ends(Block& x, const Block& b) {
  std::vector<int> power(std::size_t(x.k), 0);
  for (Index c = 0; c < x.k; ++c) {
    double size_x = 0, size_b = 0;
    for (Index i = 0; i < x.n; ++i) {
      size_x = std::max(size_x, std::abs(x.row(i)[c]));
      size_b = std::max(size_b, std::abs(b.row(i)[c]));
    }
    if (!(size_x > 0 && size_b > 0) || std::isinf(size_x)) continue;
    int& up = power[std::size_t(c)];
    if (std::ilogb(size_b) > 700) up = -300;
    if (std::ilogb(size_b) < -500) up = std::min(500, 900 - std::ilogb(size_x));
    for (Index i = 0; i < x.n && up != 0; ++i) x.row(i)[c] = std::ldexp(x.row(i)[c], up);
  }
  return power;
}

}  // namespace

Verdict judge(double ratio, const std::string& what) {
  return {ratio < threshold,
          fmt::format("{}: residual {:.3g}, below {} is good", what, ratio, threshold)};
}

Verdict verify_solution(const ResultFile& result) {
  const io::DenseInput rhs =
      io::open_dense(result.control, result.input("rhs"), io::Role::right_hand_side);
  const io::DenseInput solution = result.dense("x", io::Role::right_hand_side);
  if (rhs.columns() != solution.columns()) return {false, "b and x have not equally many columns"};
  Block x = read_block(result, solution), b = read_block(result, rhs);
  const std::vector<Index> powers = bring_near_one(x);
  const std::string kind = result.text("command").rfind("band", 0) == 0 ? "band" : "dense";
  const Product ax = any_times(result, result.input("input"), kind, x, true);
  if (ax.y.n != b.n) return {false, "b and the matrix have not equally many rows"};
  for (Index i = 0; i < b.n; ++i)
    for (Index c = 0; c < b.k; ++c)
      b.row(i)[c] = times_power(b.row(i)[c], ax.power + powers[std::size_t(c)]);
  return judge(residual_ratio(b, ax, x), "A x = b, " + counted(b.k, "right-hand side"));
}

Verdict verify_inverse(const ResultFile& result) {
  const io::DenseInput a = io::open_dense(result.control, result.input("input"));
  const io::DenseInput inverse = result.dense("inverse");
  const Index n = a.rows();
  if (a.columns() != n || inverse.rows() != n || inverse.columns() != n)
    return {false, "the shapes of the matrix and its inverse do not fit"};
  const Block z = random_block(result, n, probes);
  const auto times = [&](const io::DenseInput& matrix, const Block& x) {
    return in_range([&](Index power) { return dense_times(result, matrix, x, power); });
  };
  const Product xz = times(inverse, z), axz = times(a, xz.y);
  const Product az = times(a, z), xaz = times(inverse, az.y);
  // |A X z - z| / (n eps |A| |X| |z|), and from the left, where cond(A) |A| |X| may enter once
  // more.
  const auto ratio = [&](const Product& once, const Product& twice) {
    const Index power = -once.power - twice.power;
    double difference = 0;
    for (std::size_t i = 0; i < z.data.size(); ++i) {
      const double d = std::abs(times_power(twice.y.data[i], power) - z.data[i]);
      difference =
          std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(difference, d);
    }
    if (difference == 0) return 0.0;  // of order zero, too
    return double(difference / (double(std::max<Index>(1, n)) * eps *
                                std::ldexp(once.norm * twice.norm, int(power)) *
                                std::max(largest(z.data), eps)));
  };
  const double right = ratio(xz, axz), left = ratio(az, xaz);
  return {right < threshold,
          fmt::format(
              "A X = I on {} random vectors: residual {:.3g} (X A = I: {:.3g}), below {} is good",
              probes, right, left, threshold)};
}

Verdict verify_cg(const ResultFile& result) {
  const std::string reason = result.text("reason");
  if (reason != "rtol" && reason != "atol") return {false, "not converged: " + reason};
  const io::DenseInput rhs =
      io::open_dense(result.control, result.input("rhs"), io::Role::right_hand_side);
  const io::DenseInput solution = result.dense("x", io::Role::right_hand_side);
  if (rhs.columns() != solution.columns() || rhs.rows() != solution.rows())
    return {false, "b and x have not the same shape"};
  Block x = read_block(result, solution);
  const Block b = read_block(result, rhs);
  const std::vector<int> power = away_from_the_ends(x, b);
  const Product ax = any_times(result, result.input("input"), result.text("format"), x);
  const double rtol = result.number("rtol", 1e-10), atol = result.number("atol", 0);
  // Other norms need the preconditioner: then the residual itself is what the solver said it is.
  const double said = result.number("relative_residual", -1);
  bool pass = said < 1 || reason == "atol";
  double worst = 0;
  for (Index c = 0; c < b.k; ++c) {
    // Squares of doubles need the wider range.
    const int up = power[std::size_t(c)];
    long double difference = 0, size_b = 0, size_x = 0;
    for (Index i = 0; i < b.n; ++i) {
      const long double right = std::ldexp(static_cast<long double>(b.row(i)[c]), up),
                        d = right - ax.y.row(i)[c], at = x.row(i)[c];
      difference += d * d;
      size_b += right * right;
      size_x += at * at;
    }
    difference = std::sqrt(difference);
    const long double norm_b = std::sqrt(size_b);
    // The solver's own sum rounds differently by this much.
    const long double rounding = 4 * eps * ax.norm * std::sqrt(size_x),
                      absolute = std::ldexp(static_cast<long double>(atol), up),
                      allowed = said < 0 ? std::max(rtol * norm_b, absolute) : said * norm_b;
    pass = pass && difference <= 1.01L * allowed + rounding;
    const double ratio = double(norm_b > 0 ? difference / norm_b : difference);
    worst = ratio <= worst ? worst : ratio;  // a NaN is kept
  }
  return {pass,
          fmt::format("converged ({}), relative residual {:.3g} from the matrix, tolerance {:.3g}",
                      reason, worst, rtol)};
}

Verdict verify_problem(const ResultFile& result) {
  const auto names = io::members(result.control, result.base);
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!has("A")) return {false, "the matrix A is missing"};
  if (!has("b") || !has("x_true")) return {true, "stored content unchanged"};
  if (result.text("command").find("gf2") != std::string::npos) return verify_bit_problem(result);
  const Block x = read_block(result, result.dense("x_true", io::Role::right_hand_side));
  const Block b = read_block(result, result.dense("b", io::Role::right_hand_side));
  const Product ax = result.own([&] { return any_times(result, result.at("A"), "", x); });
  if (b.n != ax.y.n || b.k != x.k) return {false, "the shapes of A, b and x_true do not fit"};
  return judge(residual_ratio(b, ax, x), "b = A x_true");
}

}  // namespace terrace
