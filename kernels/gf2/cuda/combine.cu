// combine() on CUDA: the Method of the Four Russians, tables in shared memory, rows in registers.
//
// Roofline: a strip of a row reads its width from shared memory for every k columns; 32.7 TB/s on
// an H200 allow 2.1e15 bit-MAC/s at k = 8. Tables cost a quarter of that again (1,024 rows a tile);
// each row is read and written once a call.
#include <array>

#include "kernels/gf2/cuda/combine.cuh"

namespace terrace::gf2 {
namespace {

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

template <class S, bool with_stored>
constexpr Entry entry_of() {
  Entry e{{S::k, S::tables, S::rows, S::threads},
          S::threads,
          S::strip_words,
          S::tile_rows,
          S::table_bytes,
          S::source_bytes,
          combine_kernel<S, false>,
          nullptr,
          nullptr};
  if constexpr (with_stored) {
    e.stored = combine_kernel<S, true>;
    e.store = store_kernel<S>;
  }
  return e;
}
/// The default of its k, which also works from stored tables.
template <class S>
constexpr Entry first() {
  return entry_of<S, true>();
}
template <class S>
constexpr Entry other() {
  return entry_of<S, false>();
}

constexpr Entry launches[] = {
    first<Launch<1, 32, uint4, 8, 8, 512, 2>>(),  first<Launch<2, 32, uint4, 8, 8, 512, 2>>(),
    first<Launch<3, 21, uint4, 8, 8, 512, 2>>(),  first<Launch<4, 16, uint4, 8, 8, 512, 2>>(),
    other<Launch<4, 8, uint4, 8, 16, 512, 1>>(),  first<Launch<5, 12, uint4, 8, 8, 512, 2>>(),
    other<Launch<5, 12, uint4, 8, 16, 512, 1>>(), first<Launch<6, 10, uint4, 8, 8, 512, 2>>(),
    other<Launch<6, 5, uint4, 8, 8, 512, 2>>(),   other<Launch<6, 10, uint4, 8, 8, 1024, 1>>(),
    first<Launch<7, 4, uint4, 8, 8, 512, 2>>(),   other<Launch<7, 6, uint4, 8, 8, 512, 2>>(),
    other<Launch<7, 8, uint4, 8, 8, 1024, 1>>(),  other<Launch<7, 8, uint4, 8, 16, 512, 1>>(),
    first<Launch<8, 4, uint4, 8, 8, 1024, 1>>(),  other<Launch<8, 2, uint4, 8, 8, 512, 2>>(),
    other<Launch<8, 3, uint4, 8, 8, 512, 2>>(),   other<Launch<8, 4, uint4, 8, 16, 512, 1>>(),
    other<Launch<8, 6, uint4, 8, 8, 1024, 1>>(),  first<Launch<9, 3, uint4, 8, 16, 512, 1>>(),
    first<Launch<10, 3, uint4, 4, 16, 512, 1>>(), other<Launch<10, 1, uint4, 8, 16, 512, 1>>(),
    first<Launch<11, 3, uint4, 2, 16, 512, 1>>(), first<Launch<12, 3, uint4, 1, 16, 512, 1>>(),
    first<Launch<13, 3, uint2, 1, 32, 512, 1>>(), first<Launch<14, 1, uint2, 1, 32, 512, 1>>(),
};

const Entry& find_entry(TableShape shape) {
  if (shape.k == 0) shape.k = 8;
  for (const Entry& e : launches)
    if (e.shape.k == shape.k && (shape.tables == 0 || e.shape.tables == shape.tables) &&
        (shape.rows == 0 || e.shape.rows == shape.rows) &&
        (shape.threads == 0 || e.shape.threads == shape.threads))
      return e;
  throw Error(Exit::internal, "no tables of this shape");
}

const Entry& stored_entry(TableShape shape) { return find_entry({shape.k}); }

void launch(const Stream<Cuda>& stream, const Entry& e, const Combine& what) {
  const bool stored = what.stored != nullptr;
  const int bytes = e.table_bytes + (stored ? 0 : e.source_bytes);
  auto* kernel = stored ? e.stored : e.local;
  static std::array<OncePerDevice<bool>, 2 * std::size(launches)> once;
  (void)once[std::size_t(&e - launches) * 2 + stored]([&] { return allow_shared(kernel, bytes); });
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
  const Entry& e = stored_entry(shape);
  return ceil_div(inner, e.shape.k * e.shape.tables) * ceil_div(words, e.strip_words) *
         (e.table_bytes / 8);
}

void build_tables(const Stream<Cuda>& stream, BitRows<const Word, Cuda> source, Index words,
                  TableShape shape, Word* tables) {
  if (source.count <= 0 || words <= 0) return;
  const Entry& e = stored_entry(shape);
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
  const Entry& e = stored_entry(shape);
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

}  // namespace terrace::gf2
