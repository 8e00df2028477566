// Results over the reals: residuals scaled as LAPACK scales them, below 30 for a good result.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "src/commands/verify.hpp"

namespace terrace {

namespace {

constexpr double threshold = 30;
constexpr double eps = std::numeric_limits<double>::epsilon();
constexpr Index probes = 16;
constexpr Word real_probe_seed = 0x76657269667932ull;

/// n x k, row-major, whole on every rank.
struct Block {
  Index n = 0, k = 0;
  std::vector<double> data;
  Block(const ResultFile& result, Index rows, Index columns) : n(rows), k(columns) {
    data = collectively(result.control, [&] { return std::vector<double>(std::size_t(n * k)); });
  }
  double* row(Index i) { return data.data() + i * k; }
  [[nodiscard]] const double* row(Index i) const { return data.data() + i * k; }
};

double largest(const std::vector<double>& v) {
  double most = 0;
  for (const double x : v) most = std::isnan(x) ? x : std::max(most, std::abs(x));
  return most;
}

/// The Block of a stored vector or matrix.
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

/// y = 2^power A x for any kind of matrix, y whole on every rank, and the infinity norm of
/// 2^power A.
struct Product {
  Block y;
  long double norm = 0;  // rows of large entries add up to more than doubles hold
  double largest = 0;    // of A itself
  Index power = 0;
};

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

double times_power(double value, Index power) {
  return power == 0 ? value : std::ldexp(value, int(std::clamp<Index>(power, -5000, 5000)));
}
/// The power of two that brings `largest` near one.
Index power_to_one(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  int exponent = 0;
  (void)std::frexp(largest, &exponent);
  return -exponent;
}
/// times(power), with numbers far from one once more by the power that brings them there.
template <class Times>
Product in_range(const Times& times) {
  Product p = times(Index(0));
  const Index power = power_to_one(p.largest);
  return power < -300 || power > 300 ? times(power) : p;
}
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

void add_scaled(double* to, const double* from, double factor, Index k) {
  for (Index c = 0; c < k; ++c) to[c] += factor * from[c];
}

Product dense_times(const ResultFile& result, const io::DenseInput& a, const Block& x,
                    Index power = 0) {
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

/// visit(j, column) for this rank's columns of a lower band.
template <class F>
void each_column(const ResultFile& result, const io::BandInput& a, const F& visit) {
  const Range slice = result.slice(a.n());
  const Index height = a.half_bandwidth() + 1;
  result.read(a, slice, [&](Index position, Index count, const double* data) {
    for (Index c = 0; c < count; ++c) visit(slice.first + position + c, data + c * height);
  });
}

/// Symmetric A from its lower band.
Product band_times(const ResultFile& result, const io::BandInput& a, const Block& x,
                   Index power = 0) {
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

Product sparse_times(const ResultFile& result, const io::SparseInput& a, const Block& x) {
  Product p{Block(result, a.rows(), x.k)};
  const Range slice = result.slice(a.rows());
  io::SparseRows part;
  // Rows in pieces of bounded size, the same number of pieces on every rank; all of them at once
  // where each piece would read the whole file.
  const Index rows_a_piece = a.by_rows() ? Index(1) << 18 : std::max<Index>(1, a.rows());
  const Index pieces = ceil_div(result.control.reduce(slice.count, Reduce::max), rows_a_piece);
  long double norm = 0;
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

/// Largest over the columns of |b - y| / (n eps (norm |x| + |b|)), infinity norms; not a number
/// counts as infinite.
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

Verdict judge(double ratio, const std::string& what) {
  return {ratio < threshold,
          fmt::format("{}: residual {:.3g}, below {} is good", what, ratio, threshold)};
}

}  // namespace

Verdict verify_factor(const ResultFile& result) {
  const io::BandInput a = io::open_band(result.control, result.input("input"));
  const io::BandInput l = result.band("factor");
  const Index n = a.n(), m = l.half_bandwidth();
  if (l.n() != n || m != a.half_bandwidth())
    return {false, "the shapes of the matrix and its factor do not fit"};
  const Block z = random_block(result, n, probes);
  const Product az = in_range([&](Index power) { return band_times(result, a, z, power); });
  // u = L^T z, then w = L u.
  Block u(result, n, probes), w(result, n, probes);
  Index not_positive = 0;
  each_column(result, l, [&](Index j, const double* column) {
    if (!(column[0] > 0)) ++not_positive;
    for (Index i = j; i <= std::min(n - 1, j + m); ++i)
      add_scaled(u.row(j), z.row(i), column[i - j], probes);
  });
  result.control.reduce(u.data, Reduce::sum);
  not_positive = result.control.reduce(not_positive, Reduce::sum);
  if (not_positive > 0)
    return {false,
            fmt::format("{} diagonal elements of the factor are not positive", not_positive)};
  const Index by = power_to_one(largest(u.data));
  for (double& value : u.data) value = times_power(value, by);
  each_column(result, l, [&](Index j, const double* column) {
    for (Index i = j; i <= std::min(n - 1, j + m); ++i)
      add_scaled(w.row(i), u.row(j), column[i - j], probes);
  });
  result.control.reduce(w.data, Reduce::sum);
  for (double& value : w.data) value = times_power(value, az.power - by);
  return judge(residual_ratio(w, az, z),
               fmt::format("L (L^T z) = A z on {} random vectors", probes));
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
  return judge(residual_ratio(b, ax, x), fmt::format("A x = b, {} right-hand sides", b.k));
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

Verdict verify_lu(const ResultFile& result) {
  const io::DenseInput a = io::open_dense(result.control, result.input("input"));
  const io::DenseInput f = io::open_dense(result.control, result.at("factor"));
  const io::DenseInput pivots = io::open_dense(result.control, result.at("pivots"));
  const Index n = a.rows();
  if (a.columns() != n || f.rows() != n || f.columns() != n || pivots.rows() != n)
    return {false, "the shapes of the matrix, its factor and the pivots do not fit"};
  const io::Attributes stored = io::read_attributes(result.control, f.location());
  const auto power = stored.find("power");
  if (power == stored.end() || !std::holds_alternative<Index>(power->second))
    return {false, "the factor does not say which power of two it has"};
  const Block z = random_block(result, n, probes), p = read_block(result, pivots);
  const Product az = in_range([&](Index by) { return dense_times(result, a, z, by); });
  // u = U z, then w = L u; row j is row p(j) of A z.
  Block u(result, n, probes), w(result, n, probes);
  const auto each_row = [&](const auto& visit) {
    const Range own = result.slice(n);
    f.read(result.control, {&own, 1}, [&](Index position, Index count, const double* rows) {
      for (Index i = 0; i < count; ++i) visit(own.first + position + i, rows + i * n);
    });
  };
  each_row([&](Index j, const double* row) {
    for (Index k = j; k < n; ++k) add_scaled(u.row(j), z.row(k), row[k], probes);
  });
  result.control.reduce(u.data, Reduce::sum);
  each_row([&](Index j, const double* row) {
    add_scaled(w.row(j), u.row(j), 1, probes);
    for (Index k = 0; k < j; ++k) add_scaled(w.row(j), u.row(k), row[k], probes);
  });
  result.control.reduce(w.data, Reduce::sum);
  Block b(result, n, probes);
  for (Index j = 0; j < n; ++j) {
    const double row = p.row(j)[0];
    if (!(row >= 0 && row < double(n))) return {false, "a pivot is no row of the matrix"};
    for (Index c = 0; c < probes; ++c)
      b.row(Index(row))[c] = times_power(w.row(j)[c], az.power - std::get<Index>(power->second));
  }
  return judge(residual_ratio(b, az, z),
               fmt::format("P^-1 L (U z) = A z on {} random vectors", probes));
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
