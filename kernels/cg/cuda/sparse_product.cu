// T A P on CUDA, as T (A P). A few lanes make a row of a product: they walk along the row of the left
// factor, and each step adds a row of the right one to a table of columns in shared memory. A lane has a
// column of its own in a step, so every sum has the order of the left factor's entries and bits repeat.
// Rows are counted first, tables as small as will do, longer rows again in larger ones.
//
// Floor: the left factor twice, 12 bytes an entry; the right one from L2 mostly; the result 12 bytes an
// entry. Seven points on 200^3: 56 M + 52 M entries twice, 2.6 GB, 1 ms with the results. Tables: 170 M
// and 160 M operations, twice each. Not measured yet.
#include "kernels/cg/cuda/coarsening.cuh"

namespace terrace::cg {
namespace {

using coarsening::Lanes;

constexpr std::int32_t empty_place = -1;
constexpr int product_bytes = 24 * 1024;  // of shared memory a block: nine blocks a multiprocessor

/// Finds or makes the place of a column: its number, or ~number where it is new; -slots - 1 where the
/// table is full. `slots` is a power of two.
template <int slots>
__device__ __forceinline__ int find_place(std::int32_t* key, std::int32_t column) {
  int place = int((unsigned(column) * 0x9e3779b1u) >> 15) & (slots - 1);
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

template <int width, int slots>
__device__ __forceinline__ void clear_table(const Lanes<width>& lanes, std::int32_t* key) {
  static_assert(slots % 4 == 0);
  for (int s = lanes.lane; s < slots / 4; s += width)
    reinterpret_cast<int4*>(key)[s] = make_int4(empty_place, empty_place, empty_place, empty_place);
}

/// Rows 0 ... rows - 1, or those listed.
struct RowList {
  const std::int32_t* row;
  const int* count;
  Index rows;
  __device__ __forceinline__ Index size() const { return row ? Index(*count) : rows; }
  __device__ __forceinline__ Index operator[](Index k) const { return row ? Index(row[k]) : k; }
};

template <int width, int slots>
constexpr int count_threads = std::min(256, product_bytes / (4 * slots) * width);

/// count[i]: columns of row i of A B; rows that fill more than 3/4 of the table go to `more`.
template <int width, int slots>
__global__ void __launch_bounds__(count_threads<width, slots>)
    count_product_kernel(CsrRows<Cuda> a, CsrRows<Cuda> b, RowList list, Index* count,
                         std::int32_t* more, int* more_count) {
  constexpr int groups = count_threads<width, slots> / width;
  __shared__ __align__(16) std::int32_t keys[groups * slots];
  const Lanes<width> lanes;
  std::int32_t* const key = keys + int(threadIdx.x) / width * slots;
  const Index all = list.size();
  for (Index k = Index(blockIdx.x) * groups + threadIdx.x / width; k < all;
       k += Index(gridDim.x) * groups) {
    const Index i = list[k];
    clear_table<width, slots>(lanes, key);
    lanes.sync();
    int mine = 0;
    bool full = false;
    const Index end = a.start.data[i + 1];
    for (Index e = a.start.data[i] + lanes.lane; e < end && !full; e += width) {
      const Index c = a.column.data[e], last = b.start.data[c + 1];
      for (Index f = b.start.data[c]; f < last && !full; ++f) {
        const int place = find_place<slots>(key, b.column.data[f]);
        mine += place < 0;
        full = place < -slots || mine > slots / 4 * 3;
      }
    }
    lanes.sync();
    const int found = lanes.sum(mine);
    full = lanes.any(full) || found > slots / 4 * 3;
    if (lanes.lane == 0) {
      if (full)
        more[atomicAdd(more_count, 1)] = std::int32_t(i);
      else
        count[i] = found;
    }
    lanes.sync();
  }
}

// Classes of rows by their nonzeros: lanes and slots of each.
constexpr int product_classes = 5;
template <int which>
struct ProductClass {
  static constexpr int slots = which == 0   ? 32
                               : which == 1 ? 64
                               : which == 2 ? 128
                               : which == 3 ? 512
                                            : 2048;
  static constexpr int width = which == 0 ? 4 : which < 3 ? 8 : 32;
  static constexpr int most = slots / 4 * 3;
  static constexpr int threads = std::min(256, product_bytes / (12 * slots) * width);
};
static_assert(ProductClass<4>::most == coarsening_result);

__device__ __forceinline__ int product_class(Index count) {
  return count == 0                       ? -1
         : count <= ProductClass<0>::most ? 0
         : count <= ProductClass<1>::most ? 1
         : count <= ProductClass<2>::most ? 2
         : count <= ProductClass<3>::most ? 3
                                          : 4;
}

/// Rows of each class: their number, or (with `lists`) which they are, from lists.begin on.
struct ClassLists {
  std::int32_t* row;
  Index begin[product_classes];
};
template <bool listed>
__global__ void __launch_bounds__(block_threads)
    classify_kernel(Index rows, const Index* __restrict__ start, int* count, ClassLists lists) {
  const Lanes<32> warp;
  for (Index first = first_item() - warp.lane; first < rows; first += item_stride()) {
    const Index i = first + warp.lane;
    const int own = i < rows ? product_class(listed ? start[i + 1] - start[i] : start[i]) : -1;
#pragma unroll
    for (int c = 0; c < product_classes; ++c) {
      int all = 0;
      const int before = warp.before(own == c, all);
      if (all == 0) continue;
      int to = 0;
      if (warp.lane == 0) to = atomicAdd(count + c, all);
      to = __shfl_sync(warp.mask, to, 0);
      if (listed && own == c) lists.row[lists.begin[c] + to + before] = std::int32_t(i);
    }
  }
}

/// Rows of A B, of one class; `sorted`: by columns.
template <int which, bool sorted>
__global__ void __launch_bounds__(ProductClass<which>::threads)
    fill_product_kernel(CsrRows<Cuda> a, CsrRows<Cuda> b, RowList list,
                        const Index* __restrict__ start, std::int32_t* column, double* value) {
  using Class = ProductClass<which>;
  constexpr int slots = Class::slots, width = Class::width, groups = Class::threads / width;
  __shared__ double sums[groups * slots];
  __shared__ __align__(16) std::int32_t keys[groups * slots];
  const Lanes<width> lanes;
  const int group = int(threadIdx.x) / width;
  std::int32_t* const key = keys + group * slots;
  double* const sum = sums + group * slots;
  const Index all = list.size();
  for (Index k = Index(blockIdx.x) * groups + group; k < all; k += Index(gridDim.x) * groups) {
    const Index i = list[k];
    clear_table<width, slots>(lanes, key);
    lanes.sync();
    const Index end = a.start.data[i + 1];
    for (Index e = a.start.data[i]; e < end; ++e) {
      const Index c = a.column.data[e], last = b.start.data[c + 1];
      const double factor = a.value.data[e];
      for (Index f = b.start.data[c] + lanes.lane; f < last; f += width) {
        const int place = find_place<slots>(key, b.column.data[f]);
        const double term = factor * b.value.data[f];
        if (place >= 0)
          sum[place] += term;
        else if (place >= -slots)
          sum[~place] = term;
      }
      lanes.sync();
    }
    Index to = start[i];
    for (int s = lanes.lane; s < slots; s += width) {
      const std::int32_t own = key[s];
      int rank = 0;
      if (sorted) {
        if (own == empty_place) continue;
        for (int t = 0; t < slots; ++t) rank += unsigned(key[t]) < unsigned(own);
      } else {
        int found = 0;
        rank = lanes.before(own != empty_place, found);
        to += found;
        rank -= found;  // from the new `to`
        if (own == empty_place) continue;
      }
      column[to + rank] = own;
      value[to + rank] = sum[s];
    }
    lanes.sync();
  }
}

unsigned product_blocks(Index items, int groups) {
  return unsigned(std::min(ceil_div(items, Index(groups)), Index(132) * 64));
}

template <int width, int slots>
void count_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
                const RowList& list, Index* count, std::int32_t* more, int* more_count) {
  constexpr int threads = count_threads<width, slots>;
  count_product_kernel<width, slots>
      <<<product_blocks(a.rows(), threads / width), threads, 0, native(stream)>>>(a, b, list, count,
                                                                                  more, more_count);
  check_launch();
}

template <int which, bool sorted>
void fill_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
               const std::int32_t* rows, const int* count, int host_count, const Index* start,
               std::int32_t* column, double* value) {
  if (host_count == 0) return;
  using Class = ProductClass<which>;
  fill_product_kernel<which, sorted>
      <<<product_blocks(host_count, Class::threads / Class::width), Class::threads, 0,
         native(stream)>>>(a, b, RowList{rows, count, 0}, start, column, value);
  check_launch();
}

/// A B; the result's memory is make(entries), which has start, column and value. False where a row is too
/// long.
template <bool sorted, class Make>
bool multiply_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
                   Index* start, Scratch<Cuda>& scratch, const Make& make) {
  const Index rows = a.rows();
  if (rows == 0) return fill_zero(stream, View<Index, Cuda>{start, 1}), (void)make(0), true;
  constexpr int tries = 4;
  struct Counts {
    int more[tries], of_class[product_classes];
    Index entries;
  };
  const View<Counts, Cuda> counts = scratch.take<Counts>(1);
  int* const more = counts.data->more;  // addresses alone
  int* const of_class = counts.data->of_class;
  const View<std::int32_t, Cuda> lists = scratch.take<std::int32_t>(rows);
  {
    const typename Scratch<Cuda>::Scope scope(scratch);
    const View<std::int32_t, Cuda> other = scratch.take<std::int32_t>(rows);
    fill_zero(stream, counts);
    fill_zero(stream, View<Index, Cuda>{start, rows + 1});
    count_rows<4, 64>(stream, a, b, {nullptr, nullptr, rows}, start, lists.data, more);
    count_rows<8, 256>(stream, a, b, {lists.data, more, 0}, start, other.data, more + 1);
    count_rows<32, 1024>(stream, a, b, {other.data, more + 1, 0}, start, lists.data, more + 2);
    count_rows<32, 2048>(stream, a, b, {lists.data, more + 2, 0}, start, other.data, more + 3);
  }
  classify_kernel<false>
      <<<blocks_for(rows), block_threads, 0, native(stream)>>>(rows, start, of_class, {});
  check_launch();
  coarsening::sum_before(stream, {start, rows + 1}, scratch);
  copy(stream, View<Index, Cuda>{&counts.data->entries, 1},
       View<const Index, Cuda>{start + rows, 1});
  const Counts found = coarsening::read_one(stream, counts.data);
  if (found.more[tries - 1] > 0) return false;
  ClassLists to{lists.data, {}};
  for (int c = 1; c < product_classes; ++c) to.begin[c] = to.begin[c - 1] + found.of_class[c - 1];
  fill_zero(stream, View<int, Cuda>{of_class, product_classes});
  classify_kernel<true>
      <<<blocks_for(rows), block_threads, 0, native(stream)>>>(rows, start, of_class, to);
  check_launch();
  const auto [column, value] = make(found.entries);
  const auto fill = [&]<int which>() {
    fill_rows<which, sorted>(stream, a, b, lists.data + to.begin[which], of_class + which,
                             found.of_class[which], start, column, value);
  };
  fill.template operator()<0>();
  fill.template operator()<1>();
  fill.template operator()<2>();
  fill.template operator()<3>();
  fill.template operator()<4>();
  return true;
}

/// Where a product's entries go.
struct Place {
  std::int32_t* column;
  double* value;
};

__global__ void __launch_bounds__(block_threads)
    damp_kernel(Index rows, const Index* __restrict__ start,
                const std::int32_t* __restrict__ column, double* value, CsrRows<Cuda> t,
                const double* __restrict__ diagonal, double weight) {
  for (Index i = first_item(); i < rows; i += item_stride()) {
    Index f = t.start.data[i];
    const Index end = t.start.data[i + 1];
    const double factor = f < end ? -weight / diagonal[i] : 0;
    for (Index e = start[i]; e < start[i + 1]; ++e) {
      double v = factor * value[e];
      while (f < end && t.column.data[f] < column[e]) ++f;
      if (f < end && t.column.data[f] == column[e]) v += t.value.data[f];
      value[e] = v;
    }
  }
}

constexpr int sample_slots = 8192, sample_threads = 256;

/// A block for each of some rows of T: columns of its row of T A P, at most those of a table.
__global__ void __launch_bounds__(sample_threads)
    sample_kernel(CsrRows<Cuda> t, CsrRows<Cuda> a, CsrRows<Cuda> p, Index step,
                  unsigned long long* sum) {
  __shared__ __align__(16) std::int32_t key[sample_slots];
  __shared__ int found;
  const Lanes<32> warp;
  const int number = int(threadIdx.x) / 32;
  const Index s = Index(blockIdx.x) * step;
  for (int k = int(threadIdx.x); k < sample_slots; k += sample_threads) key[k] = empty_place;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  int mine = 0;
  bool full = false;
  for (Index e = t.start.data[s] + number; e < t.start.data[s + 1] && !full;
       e += sample_threads / 32) {
    const Index i = t.column.data[e];
    for (Index f = a.start.data[i] + warp.lane; f < a.start.data[i + 1] && !full; f += 32) {
      const Index k = a.column.data[f];
      for (Index g = p.start.data[k]; g < p.start.data[k + 1] && !full; ++g) {
        const int place = find_place<sample_slots>(key, p.column.data[g]);
        mine += place < 0 && place >= -sample_slots;
        full = place < -sample_slots;
      }
    }
  }
  __syncwarp();
  mine = warp.sum(mine);
  if (warp.lane == 0 && mine > 0) atomicAdd(&found, mine);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, (unsigned long long)found);
}

}  // namespace

template <>
double expected_nonzeros(const Stream<Cuda>& stream, const CsrRows<Cuda>& t, const CsrRows<Cuda>& a,
                         const CsrRows<Cuda>& p, Index, Scratch<Cuda>& scratch) {
  constexpr Index samples = 200;
  const Index rows = t.rows();
  if (rows == 0) return 0;
  const Index step = std::max<Index>(1, rows / samples), some = ceil_div(rows, step);
  const typename Scratch<Cuda>::Scope scope(scratch);
  const auto sum = scratch.take<unsigned long long>(1);
  fill_zero(stream, sum);
  sample_kernel<<<unsigned(some), sample_threads, 0, native(stream)>>>(t, a, p, step, sum.data);
  check_launch();
  return double(coarsening::read_one(stream, sum.data)) * double(rows) / double(some);
}

template <>
std::optional<SparseRows<Cuda>> sparse_product(const Stream<Cuda>& stream, const CsrRows<Cuda>& a,
                                               const CsrRows<Cuda>& b, Index columns,
                                               Scratch<Cuda>& scratch) {
  const typename Scratch<Cuda>::Scope scope(scratch);
  SparseRows<Cuda> result;
  result.columns = columns;
  result.start = Buffer<Index, Cuda>(a.rows() + 1);
  const bool made =
      multiply_rows<true>(stream, a, b, result.start.data(), scratch, [&](Index entries) -> Place {
        result.column = Buffer<std::int32_t, Cuda>(entries);
        result.value = Buffer<double, Cuda>(entries);
        return {result.column.data(), result.value.data()};
      });
  if (!made) return {};
  stream.synchronize();
  return result;
}

template <>
void damp_rows(const Stream<Cuda>& stream, SparseRows<Cuda>& p, const CsrRows<Cuda>& t,
               View<const double, Cuda> diagonal, double weight) {
  coarsening::launch(stream, p.rows(), damp_kernel, p.rows(), p.start.data(), p.column.data(),
                     p.value.data(), t, diagonal.data, weight);
}

template <>
std::optional<SparseRows<Cuda>> coarse_product(const Stream<Cuda>& stream, const CsrRows<Cuda>& t,
                                               const CsrRows<Cuda>& a, const CsrRows<Cuda>& p,
                                               Index columns, Scratch<Cuda>& scratch) {
  const typename Scratch<Cuda>::Scope scope(scratch);
  const Index rows = a.rows();
  const View<Index, Cuda> ap_start = scratch.take<Index>(rows + 1);
  CsrRows<Cuda> ap;
  const bool fits =
      multiply_rows<false>(stream, a, p, ap_start.data, scratch, [&](Index entries) -> Place {
        const auto column = scratch.take<std::int32_t>(entries);
        const auto value = scratch.take<double>(entries);
        ap = {ap_start, column, value, {}};
        return {column.data, value.data};
      });
  if (!fits) return {};
  return sparse_product<Cuda>(stream, t, ap, columns, scratch);
}

}  // namespace terrace::cg
