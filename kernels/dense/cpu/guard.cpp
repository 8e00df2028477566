// Check sums over rows on the CPU. Roofline: memory bandwidth, each row is read once.
#include "kernels/dense/guard.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/parallel.hpp"

namespace terrace::dense {

void column_sizes(const Stream<Cpu>& stream, GuardRows<Cpu> a, Index columns, double* largest) {
  stream.run([=] {
    parallel_ranges(columns, 512, [&](Index from, Index to) {
      for (Index i = 0; i < a.slots; ++i)
        for (Index j = from; j < to; ++j)
          largest[j] = std::max(largest[j], std::fabs(a.data[i * a.ld + j]));
    });
  });
}

void weigh_rows(const Stream<Cpu>& stream, GuardRows<Cpu> a, Index from, Index to,
                const double* weight, double* sum, double* size, const Index* begin) {
  if (to <= from) return;
  stream.run([=] {
    parallel_ranges(a.slots, 16, [&](Index first, Index last) {
      constexpr Index lanes = 8;  // running sums side by side
      for (Index i = first; i < last; ++i) {
        const double* const row = a.data + i * a.ld;
        double s[lanes] = {}, z[lanes] = {};
        Index j = begin ? std::max(from, begin[i]) : from;
        for (; j + lanes <= to; j += lanes)
          for (Index l = 0; l < lanes; ++l) {
            const double term = row[j + l] * weight[j + l];
            s[l] += term;
            z[l] += std::fabs(term);
          }
        for (; j < to; ++j) {
          const double term = row[j] * weight[j];
          s[0] += term;
          z[0] += std::fabs(term);
        }
        for (Index l = 0; l < lanes; ++l) sum[i] += s[l], size[i] += z[l];
      }
    });
  });
}

void weigh_columns(const Stream<Cpu>& stream, const double* n, Index ld, Index slots, Index width,
                   const double* weight, double* sum, double* size) {
  stream.run([=] {
    for (Index t = 0; t < width; ++t)
      for (Index i = 0; i < slots; ++i) {
        const double term = n[t * ld + i] * weight[t];
        sum[i] += term;
        size[i] += std::fabs(term);
      }
  });
}

void follow_column(const Stream<Cpu>& stream, GuardRows<Cpu> a, Index column, double* largest) {
  stream.run([=] {
    for (Index i = 0; i < a.slots; ++i)
      largest[i] = std::max(largest[i], std::fabs(a.data[i * a.ld + column]));
  });
}

void assign_weights(const Stream<Cpu>& stream, Index slots, const Index* column_of, const double* w,
                    const double* v, double* weight, double* more) {
  stream.run([=] {
    for (Index i = 0; i < slots; ++i) {
      const Index j = column_of[i];
      if (j >= 0) weight[j] = v[i];
      more[i] = j >= 0 ? w[j] : v[i];
    }
  });
}

void judge_rows(const Stream<Cpu>& stream, GuardRows<Cpu> a, Index column, const double* sum,
                const double* more, const double* size, double* largest, double tolerance,
                double* worst) {
  stream.run([=] {
    *worst = 0;
    for (Index i = 0; i < a.slots; ++i) {
      const double off = std::fabs(sum[i] + more[i] - a.data[i * a.ld + column]);
      largest[i] = std::max(largest[i], size[i] + std::fabs(more[i]));
      if (!std::isfinite(off) || !std::isfinite(largest[i]))
        *worst = guard_not_finite;
      else if (off > 0)
        *worst = std::max(*worst, off / (tolerance * largest[i]));
    }
  });
}

}  // namespace terrace::dense
