// Roofline: products D T_d: 24 (few: 40) bytes an entry of a tile, HBM, about 1/30 of a
// substitution in a wide band, a third or more in a narrow one.
#include <algorithm>

#include "kernels/band/cuda/parts_solve.cuh"

namespace terrace::band {
namespace {

/// D T_d (or its like going backward), d = blockIdx.z + 1, as the kernels read them: for many, the
/// left tile of TileProduct; for few, (column / 8, row, column % 8).
template <bool transposed, bool few>
__global__ void __launch_bounds__(256, 2) product_kernel(const __grid_constant__ SolveParts s) {
  using Product = TileProduct<transposed>;
  extern __shared__ __align__(16) double shared[];
  double* const left = shared;
  double* const right = left + Product::left_size;
  const SolvePart& p = s.part[blockIdx.y];
  const int t = blockIdx.x, d = blockIdx.z + 1;
  if (t >= p.tiles) return;
  double* const out = p.product + (Index(t) * gridDim.z + d - 1) * kTileSize;
  if (t - d < (transposed ? -p.window : 0)) {
    for (int at = threadIdx.x; at < kTileSize; at += blockDim.x) out[at] = 0.0;
    return;
  }
  const double* const tile = tile_of<transposed>(p, s.reach, t, d);
  copy_tile<256>(left, Product::left_ld, p.inverse + column_of<transposed>(p, t) * kTileSize, -1, 0,
                 threadIdx.x);
  if constexpr (transposed) {
    copy_tile<256>(right, Product::right_ld, tile, s.reach, d, threadIdx.x);
  } else {
#pragma unroll 8
    for (int at = threadIdx.x; at < kTileSize; at += 256) {
      const int c = at / kTile, r = at % kTile;
      const bool inside = Index(d) * kTile + r - c <= s.reach;
      right[r * Product::right_ld + c] = inside ? tile[c * s.reach + r] : 0.0;
    }
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Product product(warp, lane);
  double c[2][2][4] = {};
  product.subtract(c, left, right, warp, lane);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int i = product.row_of(m, h), j = product.column + e;
        const double2 both{-c[m][0][2 * h + e / 2], -c[m][1][2 * h + e / 2]};
        if constexpr (few || transposed) {
          const int at = few ? j / 8 * 8 * kTile + i * 8 + j % 8 : i * kTile + j;
          *reinterpret_cast<double2*>(out + at) = both;
        } else {
          out[j * kTile + i] = both.x;
          out[(j + 1) * kTile + i] = both.y;
        }
      }
}

template <bool transposed, bool few>
void launch_products(cudaStream_t stream, const SolveParts& s) {
  using Product = TileProduct<transposed>;
  constexpr int bytes = 8 * (Product::left_size + Product::right_size);
  static OncePerDevice<int> once;
  (void)once([] { return resident_blocks(product_kernel<transposed, few>, 256, bytes); });
  int tiles = 0;
  for (int p = 0; p < s.count; ++p) tiles = std::max(tiles, s.part[p].tiles);
  if (tiles == 0) return;
  product_kernel<transposed, few>
      <<<dim3(unsigned(tiles), unsigned(s.count), few ? few_distances(s.reach) : 1), 256, bytes,
         stream>>>(s);
  check_launch();
}

}  // namespace

void form_products(cudaStream_t stream, const SolveParts& s, bool transposed, bool few) {
  if (transposed)
    few ? launch_products<true, true>(stream, s) : launch_products<true, false>(stream, s);
  else
    few ? launch_products<false, true>(stream, s) : launch_products<false, false>(stream, s);
}

}  // namespace terrace::band
