// Tables of columns in shared memory, and lists of rows, for products of sparse matrices.
#pragma once
#include <cstdint>

#include "kernels/cg/cuda/coarsening.cuh"

namespace terrace::cg {
namespace sparse_product_detail {

using coarsening::Lanes;

constexpr std::int32_t empty_place = -1;

/// Where the search for a column begins. `slots` is a power of two.
template <int slots>
__device__ __forceinline__ int first_place(std::int32_t column) {
  return int((unsigned(column) * 0x9e3779b1u) >> 15) & (slots - 1);
}
/// Finds or makes the place of a column: its number, or ~number where it is new; -slots - 1 where the
/// table is full.
template <int slots>
__device__ __forceinline__ int find_place(std::int32_t* key, std::int32_t column) {
  int place = first_place<slots>(column);
  for (int tries = 0; tries < slots; ++tries) {
    std::int32_t seen = *reinterpret_cast<volatile std::int32_t*>(key + place);
    if (seen == empty_place) {
      seen = atomicCAS(key + place, empty_place, column);
      if (seen == empty_place) return ~place;
    }
    if (seen == column) return place;
    place = (place + 1) & (slots - 1);
  }
  return -slots - 1;
}

/// Rows 0 ... rows - 1, or those listed.
struct RowList {
  const std::int32_t* row;
  const int* count;
  Index rows;
  __device__ __forceinline__ Index size() const { return row ? Index(*count) : rows; }
  __device__ __forceinline__ Index operator[](Index k) const { return row ? Index(row[k]) : k; }
};

/// Entries of a row of the left factor that `width` lanes hold, one each, with the row of the right factor
/// that it multiplies.
template <int width>
struct HeldEntries {
  Index from = 0;
  int length = 0;
  double factor = 0;
  __device__ __forceinline__ HeldEntries(const CsrRows<Cuda>& a, const CsrRows<Cuda>& b, Index own,
                                         Index end, bool values) {
    if (own >= end) return;
    const std::int32_t c = a.column.data[own];
    if (values) factor = a.value.data[own];
    from = b.start.data[c];
    length = int(b.start.data[c + 1] - from);
  }
};

}  // namespace sparse_product_detail
}  // namespace terrace::cg
