// The part of a matrix that couples a rank's own rows, on the host: what preconditioners are made
// of.
#pragma once
#include "kernels/cg/preconditioner.hpp"
#include "src/cg/operators.hpp"
#include "src/cg/operators_triangle.hpp"

namespace terrace::cg {

/// Entries at and below the diagonal between rows of this rank; with block > 0 only those within
/// blocks of so many rows, counted from the rank's first row. Dense matrices: block > 0.
/// Collective.
template <class B>
LocalRows local_rows(const Context<B>& context, const DenseOperator<B>& a, Index block);
template <class B>
LocalRows local_rows(const Context<B>& context, const TriangleOperator<B>& a, Index block);
template <class B>
LocalRows local_rows(const Context<B>& context, const BandOperator<B>& a, Index block);
template <class B>
LocalRows local_rows(const Context<B>& context, const CsrOperator<B>& a, Index block);

}  // namespace terrace::cg
