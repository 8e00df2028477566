// CSR rows in strips: rows next to each other, each with the columns of the one above, one further
// on, as most rows of a mesh in a good order. A product on CUDA with 8 or 16 vectors takes each row of
// p for several of a strip's rows, and reads few columns.
#pragma once
#include "kernels/cg/products.hpp"

namespace terrace::cg {

template <class B>
struct Strips {
  Buffer<CsrStrip, B> strip;    ///< as CsrRows has it
  Buffer<std::int32_t, B> run;  ///< with room behind for copies of whole lines
  Index entries = 0, runs = 0;  ///< at most so many of a block's strips
};

/// Of all rows (no list). Nothing where a strip would have fewer than 2.5 rows on average, where those of
/// a block would not fit into shared memory, or where less memory than `room` bytes would be left. Waits.
Strips<Cuda> csr_strips(const Stream<Cuda>&, const CsrRows<Cuda>&, Index room);
/// The CPU's product reads columns.
inline Strips<Cpu> csr_strips(const Stream<Cpu>&, const CsrRows<Cpu>&, Index) { return {}; }

}  // namespace terrace::cg
