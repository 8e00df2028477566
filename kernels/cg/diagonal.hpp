// The diagonal of a matrix, looked at and inverted where it stands. 8 bytes a number and pass.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace::cg {

// Each function has one overload a backend, specialised in kernels/cg/{cpu,cuda}/diagonal.*.

/// first[0] = min(first[0], the first i with d[i] < 0); first[1] the same of d[i] that is not
/// positive or has no finite inverse. NaN is of the second kind alone.
template <class B>
void judge_diagonal(const Stream<B>&, View<const double, B> d, View<Index, B> first);
/// to[i] = 1 / d[i]; `to` may be d.
template <class B>
void invert_each(const Stream<B>&, View<const double, B> d, View<double, B> to);
/// v[i] = value.
template <class B>
void fill(const Stream<B>&, View<double, B> v, double value);

}  // namespace terrace::cg
