#include "src/dense/check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/random.hpp"

namespace terrace::dense {

namespace {

constexpr double eps = 0x1.0p-53;
constexpr Index slice = 256, probes = 32;

/// max that keeps NaN.
double larger(double a, double b) { return b <= a || std::isnan(a) ? a : b; }
double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = larger(most, v);
  return most;
}
double ratio(double residual, double n, double norm_a, double norm_x) {
  if (residual == 0) return 0;
  const double value = residual / (n * eps * norm_a) / norm_x;
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

double probe(Word seed, Index i, Index p) {
  return random_word(0x7e22acd + seed, i, p) & 1 ? 1.0 : -1.0;
}

template <class B>
std::vector<double> to_host(const Stream<B>& lane, View<double, B> data) {
  std::vector<double> values(static_cast<std::size_t>(data.size));
  if (data.size > 0) download(lane, values.data(), data);
  lane.synchronize();
  return values;
}

/// Column sums (by_column) or row sums of scaled absolute values, on the host.
template <class B>
std::vector<double> sums(const Stream<B>& lane, bool by_column, Index rows, Index columns,
                         double scale, View<const double, B> a, Index ld) {
  const Buffer<double, B> out(by_column ? columns : rows);
  if (rows == 0) return std::vector<double>(std::size_t(out.size()), 0.0);
  if (by_column) {
    column_sums<B>(lane, rows, columns, scale, a, ld, out.view());
  } else {
    row_sums<B>(lane, rows, columns, scale, a, ld, out.view());
  }
  return to_host(lane, out.view());
}

void add_to(std::vector<double>& total, const std::vector<double>& part) {
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
}

/// Rows of X that meet all of A at once.
Index batch_of(Index n, Index most) {
  const Index budget = std::clamp<Index>(most * n * 4, Index(8) << 20, Index(64) << 20);
  return std::min(most, std::max<Index>(slice, budget / (8 * std::max<Index>(1, n))));
}

/// The exact residuals, A in slices of rows that every rank reads. For A X a slice times the rank's
/// rows of X is summed over the ranks; for X A the rank's rows of X, a batch at a time, gather the
/// products with all slices.
template <class B>
InverseResidual check_exactly(Context<B>& context, const InverseRows<B>& x, const RowReader& read_a,
                              double scale) {
  const Stream<B>& lane = context.ahead;
  const Index n = x.n, slots = x.slots, most = x.rows.slots(0);
  const Index batch = batch_of(n, most);
  const std::span<const Index> row_of = x.destination;
  Buffer<double, B> a, mine, product, gathered;
  Buffer<Index, B> diagonal;
  std::vector<double> packed;
  collectively(context.control, [&] {
    a = Buffer<double, B>(slice * n);
    mine = Buffer<double, B>(slice * slots);
    product = Buffer<double, B>(slice * n);
    gathered = Buffer<double, B>(batch * n);
    diagonal = Buffer<Index, B>(std::max(slice, batch));
    packed.resize(std::size_t(slice * std::max<Index>(1, slots)));
  });
  const auto one_column_each = [&](Index rows, auto column) {
    std::vector<Index> list(static_cast<std::size_t>(rows));
    for (Index i = 0; i < rows; ++i) list[std::size_t(i)] = column(i);
    if (rows > 0) upload(lane, diagonal.view().slice(0, rows), list.data());
    lane.synchronize();
  };
  std::vector<double> norm_a(std::size_t(n), 0.0), right = norm_a, left = norm_a;
  for (Index first = 0; first < most; first += batch) {
    const Index height = std::clamp<Index>(slots - first, 0, batch);
    fill_zero(lane, gathered.view());
    for (Index top = 0; top < n; top += slice) {
      const Range range{top, std::min(slice, n - top)};
      read_a({&range, 1}, [&](Index position, Index count, const double* rows) {
        upload(lane, a.view().slice(position * n, count * n), rows);
        for (Index i = 0; i < count; ++i)
          for (Index s = 0; s < slots; ++s)
            packed[std::size_t((position + i) * slots + s)] = rows[i * n + row_of[std::size_t(s)]];
        lane.synchronize();
      });
      if (height > 0)
        multiply<B>(lane, height, n, range.count, 1.0, x.data.slice(first * x.ld + top, 0), x.ld, a,
                    n, 1.0, gathered.view(), n);
      if (first > 0) continue;
      add_to(norm_a, sums<B>(lane, true, range.count, n, scale, a.view(), n));
      fill_zero(lane, product.view());
      if (slots > 0) {
        upload(lane, mine.view().slice(0, range.count * slots),
               static_cast<const double*>(packed.data()));
        multiply<B>(lane, range.count, n, slots, 1.0, mine, slots, x.data, x.ld, 0.0,
                    product.view(), n);
      }
      context.comm.all_reduce(lane, Reduce::sum, product.view());
      one_column_each(range.count, [&](Index i) { return top + i; });
      subtract_identity<B>(lane, diagonal.view().slice(0, range.count), product.view(), n);
      add_to(right, sums<B>(lane, true, range.count, n, 1.0, product.view(), n));
    }
    one_column_each(height, [&](Index i) { return row_of[std::size_t(first + i)]; });
    subtract_identity<B>(lane, diagonal.view().slice(0, height), gathered.view(), n);
    add_to(left, sums<B>(lane, true, height, n, 1.0, gathered.view(), n));
  }
  context.control.reduce(left, Reduce::sum);
  const double norm_x = norm_of_inverse(context, Norm::one, x) / scale, order = double(n);
  return {ratio(largest(right), order, largest(norm_a), norm_x),
          ratio(largest(left), order, largest(norm_a), norm_x), "exact, 1-norm"};
}

/// out (n x columns on all ranks) := the rank's rows of X times v, at their places, summed.
template <class B>
std::vector<double> times_inverse(Context<B>& context, const InverseRows<B>& x, Index columns,
                                  const std::vector<double>& v) {
  const Stream<B>& lane = context.ahead;
  const Index n = x.n, slots = x.slots;
  const Matrix<B> factor(lane, n, columns, v), product(lane, slots, columns);
  multiply<B>(lane, slots, columns, n, 1.0, x.data, x.ld, factor.view(), columns, 0.0,
              product.view(), columns);
  const std::vector<double> mine = product.values();
  std::vector<double> out(std::size_t(n * columns), 0.0);
  for (Index s = 0; s < slots; ++s)
    std::copy_n(mine.begin() + s * columns, columns,
                out.begin() + x.destination[std::size_t(s)] * columns);
  context.control.reduce(out, Reduce::sum);
  return out;
}

/// For every piece of A's rows, as they arrive or were kept: product(position, count, A v) with v n x
/// columns; and the largest scaled row sum of A.
template <class B>
double rows_times(Context<B>& context, Index n, Index columns, std::span<const Range> ranges,
                  const std::vector<double>& v, const RowReader& read_a, const KeptInput<B>* kept,
                  double scale, const std::function<void(Index, Index, const double*)>& product) {
  const Stream<B>& lane = context.ahead;
  const bool here = kept && kept->holds();
  const Index piece = (here ? Index(1) << 30 : Index(16) << 20) / std::max<Index>(1, n * 8);
  const Index height = std::clamp<Index>(piece, 1, 4096);
  const auto [factor, a, out] = collectively(context.control, [&] {
    return std::make_tuple(Matrix<B>(lane, n, columns, v), Buffer<double, B>(here ? 0 : height * n),
                           Buffer<double, B>(height * columns));
  });
  double norm_a = 0;
  const auto meet = [&, &factor = factor, &out = out](Index position, Index some,
                                                      View<const double, B> rows) {
    norm_a = larger(norm_a, largest(sums<B>(lane, false, some, n, scale, rows, n)));
    multiply<B>(lane, some, columns, n, 1.0, rows, n, factor.view(), columns, 0.0, out.view(),
                columns);
    product(position, some, to_host(lane, out.view().slice(0, some * columns)).data());
  };
  if (here) {
    const View<const double, B> rows = kept->doubles();
    for (Index from = 0; from * n < rows.size; from += height) {
      const Index some = std::min(height, rows.size / n - from);
      meet(from, some, rows.slice(from * n, some * n));
    }
    return context.control.reduce(norm_a, Reduce::max);
  }
  read_a.for_copying(ranges, [&, &a = a](Index position, Index count, const double* rows) {
    for (Index from = 0; from < count; from += height) {
      const Index some = std::min(height, count - from);
      upload(lane, a.view().slice(0, some * n), rows + from * n);
      meet(position + from, some, a.view());
    }
  });
  return context.control.reduce(norm_a, Reduce::max);
}

template <class B>
InverseResidual check_by_probes(Context<B>& context, const InverseRows<B>& x,
                                const RowReader& read_a, const KeptInput<B>* kept, double scale,
                                Word seed) {
  const Index n = x.n;
  std::vector<double> v(std::size_t(n * probes));
  for (Index i = 0; i < n; ++i)
    for (Index p = 0; p < probes; ++p) v[std::size_t(i * probes + p)] = probe(seed, i, p);
  const std::vector<double> xv = times_inverse(context, x, probes, v);
  std::vector<double> both(std::size_t(2 * n * probes));  // [V | X V]
  for (Index i = 0; i < n; ++i)
    for (Index p = 0; p < probes; ++p) {
      both[std::size_t(2 * i * probes + p)] = v[std::size_t(i * probes + p)];
      both[std::size_t((2 * i + 1) * probes + p)] = xv[std::size_t(i * probes + p)];
    }
  std::vector<double> av(std::size_t(n * probes), 0.0);
  double right = 0, left = 0;
  const std::vector<Range> ranges = x.rows.ranges(context.rank());
  const double norm_a = rows_times(
      context, n, 2 * probes, ranges, both, read_a, kept, scale,
      [&](Index position, Index count, const double* product) {
        for (Index r = 0; r < count; ++r) {
          const Index i = x.rows.global(position + r, context.rank());
          for (Index p = 0; p < probes; ++p) {
            av[std::size_t(i * probes + p)] = product[2 * r * probes + p];
            right = larger(right, std::fabs(product[(2 * r + 1) * probes + p] - probe(seed, i, p)));
          }
        }
      });
  context.control.reduce(av, Reduce::sum);
  const std::vector<double> xav = times_inverse(context, x, probes, av);
  for (std::size_t i = 0; i < v.size(); ++i) left = larger(left, std::fabs(xav[i] - v[i]));
  right = context.control.reduce(std::isnan(right) ? INFINITY : right, Reduce::max);
  const double norm_x = norm_of_inverse(context, Norm::infinity, x) / scale, order = double(n);
  return {ratio(right, order, norm_a, norm_x), ratio(left, order, norm_a, norm_x),
          "32 probe vectors, infinity norm"};
}

}  // namespace

template <class B>
double norm_of_rows(Context<B>& context, Norm norm, Index slots, Index n,
                    std::type_identity_t<View<const double, B>> a, Index ld) {
  std::vector<double> own = sums<B>(context.ahead, norm == Norm::one, slots, n, 1.0, a, ld);
  if (norm == Norm::infinity) return context.control.reduce(largest(own), Reduce::max);
  context.control.reduce(own, Reduce::sum);
  return largest(own);
}

template <class B>
InverseResidual check_inverse(Context<B>& context, const std::type_identity_t<InverseRows<B>>& x,
                              const RowReader& read_a, double scale, bool exact, Word seed,
                              std::type_identity_t<const KeptInput<B>*> kept) {
  if (x.n == 0) return {0, 0, "exact, 1-norm"};
  return exact || is_checked_exactly(x.n)
             ? check_exactly(context, x, read_a, scale)
             : check_by_probes<B>(context, x, read_a, kept, scale, seed);
}

Index exact_check_bytes(Index n, Index slots) {
  return 8 * (slice * (2 * n + slots) + batch_of(n, slots) * (n + 1));
}

template <class B>
double check_solution(Context<B>& context, Index n, Index right, std::span<const Range> ranges,
                      const std::function<void(Index, Index, double*)>& own_rows,
                      const RowReader& read_a, const RowReader& read_b, double scale,
                      std::type_identity_t<const KeptInput<B>*> kept) {
  Index slots = 0;
  for (const Range& range : ranges) slots += range.count;
  double worst = 0;
  for (Index first = 0; first < right; first += 64) {
    const Index count = std::min<Index>(64, right - first);
    std::vector<double> x(std::size_t(n * count), 0.0), r(std::size_t(slots * count));
    own_rows(first, count, x.data());
    context.control.reduce(x, Reduce::sum);
    const double norm_a =
        rows_times(context, n, count, ranges, x, read_a, kept, scale,
                   [&](Index position, Index rows, const double* product) {
                     std::copy_n(product, rows * count, r.begin() + position * count);
                   });
    std::vector<double> residual(std::size_t(count), 0.0), norm_x = residual;
    read_b(ranges, [&](Index position, Index rows, const double* b) {
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < count; ++j) {
          const double d = b[i * right + first + j] - r[std::size_t((position + i) * count + j)];
          residual[std::size_t(j)] = larger(residual[std::size_t(j)], std::fabs(d));
        }
    });
    for (double& value : residual)
      if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    context.control.reduce(residual, Reduce::max);
    for (Index i = 0; i < n * count; ++i)
      norm_x[std::size_t(i % count)] =
          larger(norm_x[std::size_t(i % count)], std::fabs(x[std::size_t(i)]));
    for (Index j = 0; j < count; ++j)
      worst = larger(worst, ratio(residual[std::size_t(j)], double(n), norm_a,
                                  norm_x[std::size_t(j)] / scale));
  }
  return worst;
}

#define INSTANTIATE(B)                                                                             \
  template InverseResidual check_inverse(Context<B>&, const InverseRows<B>&, const RowReader&,     \
                                         double, bool, Word, const KeptInput<B>*);                 \
  template double check_solution(Context<B>&, Index, Index, std::span<const Range>,                \
                                 const std::function<void(Index, Index, double*)>&,                \
                                 const RowReader&, const RowReader&, double, const KeptInput<B>*); \
  template double norm_of_rows(Context<B>&, Norm, Index, Index, View<const double, B>, Index);
TERRACE_FOR_EACH_BACKEND(INSTANTIATE)
#undef INSTANTIATE

}  // namespace terrace::dense
