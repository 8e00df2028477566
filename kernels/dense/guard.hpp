// Check sums of --guard over the rows of a dense elimination: each kernel reads the rows once.
#pragma once
#include "kernels/base/stream.hpp"

namespace terrace::dense {

/// `slots` rows of doubles, ld apart.
template <class B>
struct GuardRows {
  double* data = nullptr;
  Index slots = 0, ld = 0;
};
/// largest[j] = max(largest[j], |a_ij|) over the rows, j < columns.
void column_sizes(const Stream<Cpu>&, GuardRows<Cpu> a, Index columns, double* largest);
void column_sizes(const Stream<Cuda>&, GuardRows<Cuda> a, Index columns, double* largest);
/// sum[i] += a[i, from ... to) . weight[from ... to), size[i] += the same of absolute values; row i
/// begins at column `begin`[i] where that is given and larger.
void weigh_rows(const Stream<Cpu>&, GuardRows<Cpu> a, Index from, Index to, const double* weight,
                double* sum, double* size, const Index* begin = nullptr);
void weigh_rows(const Stream<Cuda>&, GuardRows<Cuda> a, Index from, Index to, const double* weight,
                double* sum, double* size, const Index* begin = nullptr);
/// The same of a panel that is stored by columns, ld apart.
void weigh_columns(const Stream<Cpu>&, const double* n, Index ld, Index slots, Index width,
                   const double* weight, double* sum, double* size);
void weigh_columns(const Stream<Cuda>&, const double* n, Index ld, Index slots, Index width,
                   const double* weight, double* sum, double* size);
/// largest[i] = max(largest[i], |a[i, column]|): the size of what a row was made of.
void follow_column(const Stream<Cpu>&, GuardRows<Cpu> a, Index column, double* largest);
void follow_column(const Stream<Cuda>&, GuardRows<Cuda> a, Index column, double* largest);
/// For slots with j = column_of[slot] >= 0: weight[j] = v[slot], more[slot] = w[j]; for the others
/// more[slot] = v[slot].
void assign_weights(const Stream<Cpu>&, Index slots, const Index* column_of, const double* w,
                    const double* v, double* weight, double* more);
void assign_weights(const Stream<Cuda>&, Index slots, const Index* column_of, const double* w,
                    const double* v, double* weight, double* more);
/// largest[i] = max(largest[i], size[i] + |more[i]|); *worst = the largest of |sum[i] + more[i] -
/// a[i, column]| / (tolerance * largest[i]); guard_not_finite where one of them is not finite.
constexpr double guard_not_finite = 1e300;
void judge_rows(const Stream<Cpu>&, GuardRows<Cpu> a, Index column, const double* sum,
                const double* more, const double* size, double* largest, double tolerance,
                double* worst);
void judge_rows(const Stream<Cuda>&, GuardRows<Cuda> a, Index column, const double* sum,
                const double* more, const double* size, double* largest, double tolerance,
                double* worst);

}  // namespace terrace::dense
