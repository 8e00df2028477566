// combine() on CUDA: the Method of the Four Russians, tables in shared memory, rows in registers.
//
// Roofline: a strip of a row reads its width from shared memory for every k columns; 32.7 TB/s on
// an H200 allow 2.1e15 bit-MAC/s at k = 8. Tables cost a quarter of that again (1,024 rows a tile);
// each row is read and written once a call.
#include <cuda_pipeline_primitives.h>

#include <array>

#include "kernels/bits.hpp"
#include "kernels/cuda/runtime.cuh"

namespace terrace {
namespace {

struct Combine {
  BitRows<Word, Cuda> out;
  BitRows<const Word, Cuda> multipliers, source;
  Index out_word, source_word, words;
  const Word* stored;  // tables from build_tables(), or null
  Index strips;        // that `stored` has
};

__device__ __forceinline__ void add(uint4& a, const uint4& b) {
  a.x ^= b.x, a.y ^= b.y, a.z ^= b.z, a.w ^= b.w;
}
__device__ __forceinline__ void add(uint2& a, const uint2& b) { a.x ^= b.x, a.y ^= b.y; }

/// One launch shape: T tables of 2^K combinations a stage, strips of L lanes of type V, R rows a
/// thread.
template <int K, int T, class V, int L, int R, int Threads, int Blocks>
struct Launch {
  static constexpr int k = K, tables = T, lanes = L, rows = R, threads = Threads, blocks = Blocks;
  using Part = V;
  static constexpr int strip_words = L * int(sizeof(V)) / 8;
  static constexpr int groups = threads / L;  // rows at a time
  static constexpr int tile_rows = groups * R;
  static constexpr int entries = T << K;
  static constexpr int table_bytes = entries * L * int(sizeof(V));
  static constexpr int source_bytes = 2 * T * K * L * int(sizeof(V));
};

/// All combinations of source rows K t .. K t + K - 1 (parts `rows`, T K x L), t < T, to
/// table[t][2^K][L]: a thread walks 16 of them in Gray-code order (one row changes), which is
/// computed, not stored; neighbouring threads write neighbouring entries.
template <class S>
__device__ __forceinline__ void build(const typename S::Part* rows, typename S::Part* table) {
  constexpr int gray = S::k < 4 ? S::k : 4, low = S::k - gray;
  for (int item = int(threadIdx.x); item < (S::tables << low) * S::lanes; item += int(blockDim.x)) {
    const int lane = item % S::lanes, h = item / S::lanes % (1 << low),
              t = item / (S::lanes << low);
    const typename S::Part* from = rows + t * S::k * S::lanes + lane;
    typename S::Part entry{}, changing[gray];
#pragma unroll
    for (int j = 0; j < low; ++j)
      if ((h >> j) & 1) add(entry, from[j * S::lanes]);
#pragma unroll
    for (int j = 0; j < gray; ++j) changing[j] = from[(low + j) * S::lanes];
    typename S::Part* to = table + ((t << S::k) + h) * S::lanes + lane;
    to[0] = entry;
#pragma unroll
    for (int step = 1; step < 1 << gray; ++step) {
      const int changed = (step & 1) ? 0 : (step & 2) ? 1 : (step & 4) ? 2 : 3;
      add(entry, changing[changed % gray]);
      to[(step ^ (step >> 1)) * (S::lanes << low)] = entry;
    }
  }
}

/// Source rows stage T K ... on their way to `rows`; zero beyond the source and the strip.
template <class S>
__device__ __forceinline__ void fetch(const BitRows<const Word, Cuda>& source, Index stage,
                                      Index word, Index words, typename S::Part* rows) {
  using V = typename S::Part;
  for (int x = int(threadIdx.x); x < S::tables * S::k * S::lanes; x += int(blockDim.x)) {
    const Index q = stage * S::tables * S::k + x / S::lanes;
    const Index at = word + x % S::lanes * Index(sizeof(V) / 8);
    const bool there = q < source.count && at < words;
    const Word* from = there ? source.data + source.row(q) * source.stride + at : source.data;
    __pipeline_memcpy_async(rows + x, from, sizeof(V), there ? 0 : sizeof(V));
  }
  __pipeline_commit();
}

template <class S, bool stored>
__global__ void __launch_bounds__(S::threads, S::blocks) combine_kernel(const Combine p) {
  using V = typename S::Part;
  constexpr int stage_bits = S::tables * S::k;
  constexpr unsigned mask = (1u << S::k) - 1;
  extern __shared__ uint4 memory[];
  V* table = reinterpret_cast<V*>(memory);  // [tables][2^k][lanes]
  V* source = table + S::entries * S::lanes;
  const int lane = int(threadIdx.x) % S::lanes, group = int(threadIdx.x) / S::lanes;
  // Stored tables have strips of their own: the first may begin before the range.
  const Index skip = stored ? p.source_word % S::strip_words : 0;
  const Index strip_word = Index(blockIdx.x) * S::strip_words - skip;
  const Index word = strip_word + lane * Index(sizeof(V) / 8);
  const bool inside = word >= 0 && word < p.words;
  const Index first_row = Index(blockIdx.y) * S::tile_rows + group;
  const int rows_left = int(min(p.out.count - first_row, Index(S::tile_rows)));
  const Word* multipliers = p.multipliers.data + first_row * p.multipliers.stride;
  const Index multiplier_step = S::groups * p.multipliers.stride;
  const Index multiplier_words = ceil_div(p.source.count, 64);
  const auto place = [&](int r) {
    return reinterpret_cast<V*>(p.out.data + p.out.row(first_row + r * S::groups) * p.out.stride +
                                p.out_word + word);
  };

  V sum[S::rows];
#pragma unroll
  for (int r = 0; r < S::rows; ++r) {
    sum[r] = V{};
    if (inside && r * S::groups < rows_left) sum[r] = *place(r);
  }
  const BitRows<const Word, Cuda> strip{p.source.data + p.source_word, p.source.stride,
                                        p.source.count, p.source.list};
  const Index stages = ceil_div(p.source.count, stage_bits);
  if (!stored) fetch<S>(strip, 0, strip_word, p.words, source);
  for (Index stage = 0; stage < stages; ++stage) {
    if constexpr (stored) {
      const uint4* from = reinterpret_cast<const uint4*>(
          p.stored + (stage * p.strips + p.source_word / S::strip_words + Index(blockIdx.x)) *
                         (S::table_bytes / 8));
      __syncthreads();
      for (int x = int(threadIdx.x); x < S::table_bytes / 16; x += S::threads)
        __pipeline_memcpy_async(memory + x, from + x, 16, 0);
      __pipeline_commit();
      __pipeline_wait_prior(0);
    } else {
      const int turn = int(stage % 2) * stage_bits * S::lanes;
      __pipeline_wait_prior(0);
      __syncthreads();
      build<S>(source + turn, table);
      if (stage + 1 < stages)  // on its way while the tables are read
        fetch<S>(strip, stage + 1, strip_word, p.words, source + (stage_bits * S::lanes - turn));
    }
    __syncthreads();
    const Index bit = stage * stage_bits, at = bit / 64;
    const int offset = int(bit % 64);
    const bool straddles =
        64 % stage_bits != 0 && offset + stage_bits > 64 && at + 1 < multiplier_words;
#pragma unroll
    for (int r = 0; r < S::rows; ++r) {
      Word m = 0;
      if (r * S::groups < rows_left) {
        m = multipliers[r * multiplier_step + at] >> offset;
        if (straddles) m |= multipliers[r * multiplier_step + at + 1] << (64 - offset);
      }
      const V* from = table + lane;
#pragma unroll
      for (int t = 0; t < S::tables; ++t)
        add(sum[r], from[((t << S::k) + int(unsigned(m >> (t * S::k)) & mask)) * S::lanes]);
    }
  }
#pragma unroll
  for (int r = 0; r < S::rows; ++r)
    if (inside && r * S::groups < rows_left) *place(r) = sum[r];
}

/// Tables of stage blockIdx.y and strip blockIdx.x.
template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    store_kernel(BitRows<const Word, Cuda> source, Index words, Word* out) {
  using V = typename S::Part;
  extern __shared__ uint4 memory[];
  V* rows = reinterpret_cast<V*>(memory);
  fetch<S>(source, blockIdx.y, Index(blockIdx.x) * S::strip_words, words, rows);
  __pipeline_wait_prior(0);
  __syncthreads();
  build<S>(rows, reinterpret_cast<V*>(out + (Index(blockIdx.y) * gridDim.x + blockIdx.x) *
                                                (S::table_bytes / 8)));
}

struct Entry {
  TableShape shape;
  int threads, strip_words, tile_rows, table_bytes, source_bytes;
  void (*local)(Combine);
  void (*stored)(Combine);
  void (*store)(BitRows<const Word, Cuda>, Index, Word*);
};

template <class S>
constexpr Entry entry() {
  return {{S::k, S::tables, S::rows},
          S::threads,
          S::strip_words,
          S::tile_rows,
          S::table_bytes,
          S::source_bytes,
          combine_kernel<S, false>,
          combine_kernel<S, true>,
          store_kernel<S>};
}

// The first of each k is its default.
constexpr Entry launches[] = {
    entry<Launch<1, 32, uint4, 8, 8, 512, 2>>(),  entry<Launch<2, 32, uint4, 8, 8, 512, 2>>(),
    entry<Launch<3, 21, uint4, 8, 8, 512, 2>>(),  entry<Launch<4, 16, uint4, 8, 8, 512, 2>>(),
    entry<Launch<4, 8, uint4, 8, 16, 512, 1>>(),  entry<Launch<5, 12, uint4, 8, 8, 512, 2>>(),
    entry<Launch<6, 10, uint4, 8, 8, 512, 2>>(),  entry<Launch<6, 10, uint4, 8, 16, 512, 1>>(),
    entry<Launch<7, 8, uint4, 8, 16, 512, 1>>(),  entry<Launch<7, 4, uint4, 8, 8, 512, 2>>(),
    entry<Launch<8, 4, uint4, 8, 16, 512, 1>>(),  entry<Launch<8, 2, uint4, 8, 8, 512, 2>>(),
    entry<Launch<8, 6, uint4, 8, 16, 512, 1>>(),  entry<Launch<8, 4, uint4, 8, 8, 1024, 1>>(),
    entry<Launch<9, 3, uint4, 8, 16, 512, 1>>(),  entry<Launch<10, 3, uint4, 4, 16, 512, 1>>(),
    entry<Launch<10, 1, uint4, 8, 16, 512, 1>>(), entry<Launch<11, 3, uint4, 2, 16, 512, 1>>(),
    entry<Launch<12, 3, uint4, 1, 16, 512, 1>>(), entry<Launch<13, 3, uint2, 1, 32, 512, 1>>(),
    entry<Launch<14, 1, uint2, 1, 32, 512, 1>>(),
};

const Entry& find_entry(TableShape shape) {
  if (shape.k == 0) shape.k = 8;
  for (const Entry& e : launches)
    if (e.shape.k == shape.k && (shape.tables == 0 || e.shape.tables == shape.tables) &&
        (shape.rows == 0 || e.shape.rows == shape.rows))
      return e;
  throw Error(Exit::internal, "no tables of this shape");
}

void launch(const Stream<Cuda>& stream, const Entry& e, const Combine& what) {
  const bool stored = what.stored != nullptr;
  const int bytes = e.table_bytes + (stored ? 0 : e.source_bytes);
  auto* kernel = stored ? e.stored : e.local;
  static std::array<bool, 2 * std::size(launches)> prepared{};
  bool& ready = prepared[std::size_t(&e - launches) * 2 + stored];
  if (!ready) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    ready = true;
  }
  const Index skip = stored ? what.source_word % e.strip_words : 0;
  const dim3 grid(unsigned(ceil_div(skip + what.words, e.strip_words)),
                  unsigned(ceil_div(what.out.count, e.tile_rows)));
  kernel<<<grid, unsigned(e.threads), std::size_t(bytes), native(stream)>>>(what);
  check_launch();
}

}  // namespace

template <>
std::vector<TableShape> table_shapes<Cuda>() {
  std::vector<TableShape> shapes;
  for (const Entry& e : launches) shapes.push_back(e.shape);
  return shapes;
}

template <>
Index stored_table_words<Cuda>(Index inner, Index words, TableShape shape) {
  const Entry& e = find_entry(shape);
  return ceil_div(inner, e.shape.k * e.shape.tables) * ceil_div(words, e.strip_words) *
         (e.table_bytes / 8);
}

void build_tables(const Stream<Cuda>& stream, BitRows<const Word, Cuda> source, Index words,
                  TableShape shape, Word* tables) {
  if (source.count <= 0 || words <= 0) return;
  const Entry& e = find_entry(shape);
  const dim3 grid(unsigned(ceil_div(words, e.strip_words)),
                  unsigned(ceil_div(source.count, e.shape.k * e.shape.tables)));
  e.store<<<grid, unsigned(e.threads), std::size_t(e.source_bytes), native(stream)>>>(source, words,
                                                                                      tables);
  check_launch();
}

void combine_stored(const Stream<Cuda>& stream, BitRows<Word, Cuda> out,
                    BitRows<const Word, Cuda> multipliers, Index inner, const Word* tables,
                    Index table_words, Index out_word, Index source_word, Index words,
                    TableShape shape) {
  if (out.count <= 0 || inner <= 0 || words <= 0) return;
  const Entry& e = find_entry(shape);
  launch(stream, e,
         {out,
          multipliers,
          {nullptr, 0, inner, nullptr},
          out_word,
          source_word,
          words,
          tables,
          ceil_div(table_words, e.strip_words)});
}

void combine(const Stream<Cuda>& stream, BitRows<Word, Cuda> out,
             BitRows<const Word, Cuda> multipliers, BitRows<const Word, Cuda> source,
             Index out_word, Index source_word, Index words, TableShape shape) {
  if (out.count <= 0 || source.count <= 0 || words <= 0) return;
  launch(stream, find_entry(shape),
         {out, multipliers, source, out_word, source_word, words, nullptr, 0});
}

}  // namespace terrace
