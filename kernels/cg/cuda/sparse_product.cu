// T A P on CUDA, as T (A P). A few lanes make a row of a product: they walk along the row of the left
// factor, and each step adds a row of the right one to a table of columns in shared memory. A lane has a
// column of its own in a step, so every sum has the order of the left factor's entries and bits repeat.
// Rows are counted first, tables as small as will do, longer rows again in larger ones. Long rows, and few
// ones, are made by blocks (sparse_product_wide.cuh).
//
// Floor: the left factor twice, 12 bytes an entry; the right one from L2 mostly; the result 12 bytes an
// entry. Seven points on 200^3: 56 M + 52 M entries twice, 2.6 GB, 1 ms with the results. Tables: 170 M
// and 160 M operations, twice each. Measured: 17.5 ms for all levels (jobs/results/cg.md).
#include "kernels/cg/cuda/coarsening.cuh"
#include "kernels/cg/cuda/sparse_product_wide.cuh"

namespace terrace::cg {
namespace {

using namespace sparse_product_detail;

constexpr int product_bytes = 24 * 1024;  // of shared memory a block: nine blocks a multiprocessor

template <int width, int slots>
__device__ __forceinline__ void clear_table(const Lanes<width>& lanes, std::int32_t* key) {
  static_assert(slots % 4 == 0);
  for (int s = lanes.lane; s < slots / 4; s += width)
    reinterpret_cast<int4*>(key)[s] = make_int4(empty_place, empty_place, empty_place, empty_place);
}

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

// Classes of rows by their nonzeros: slots of each. Those of the last two are made by blocks.
constexpr int product_classes = 6;
template <int which>
struct ProductClass {
  static constexpr int slots = which == 0   ? 32
                               : which == 1 ? 64
                               : which == 2 ? 128
                               : which == 3 ? 512
                               : which == 4 ? 2048
                                            : 8192;
  static constexpr int most = slots / 4 * 3;
};
/// Lanes and threads of a block where a few lanes make a row; groups where a block does.
template <int which>
constexpr int class_width = which == 0  ? 4
                            : which < 3 ? 8
                                        : 32;
template <int which>
constexpr int class_threads = std::min(256, product_bytes / (12 * ProductClass<which>::slots) *
                                                class_width<which>);
template <int which>
constexpr int class_groups = which == 3   ? 8
                             : which == 4 ? 4
                                          : 2;
static_assert(ProductClass<5>::most == coarsening_result);

__device__ __forceinline__ int product_class(Index count) {
  return count == 0                       ? -1
         : count <= ProductClass<0>::most ? 0
         : count <= ProductClass<1>::most ? 1
         : count <= ProductClass<2>::most ? 2
         : count <= ProductClass<3>::most ? 3
         : count <= ProductClass<4>::most ? 4
                                          : 5;
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
__global__ void __launch_bounds__(class_threads<which>)
    fill_product_kernel(CsrRows<Cuda> a, CsrRows<Cuda> b, RowList list,
                        const Index* __restrict__ start, std::int32_t* column, double* value) {
  constexpr int slots = ProductClass<which>::slots, width = class_width<which>,
                groups = class_threads<which> / width;
  // Tables of the groups of a warp begin at different banks.
  constexpr int key_stride = slots + 4, sum_stride = slots + 2;
  __shared__ double sums[groups * sum_stride];
  __shared__ __align__(16) std::int32_t keys[groups * key_stride];
  const Lanes<width> lanes;
  const int group = int(threadIdx.x) / width;
  std::int32_t* const key = keys + group * key_stride;
  double* const sum = sums + group * sum_stride;
  const auto add = [&](std::int32_t c, double term) {
    const int place = find_place<slots>(key, c);
    if (place >= 0)
      sum[place] += term;
    else
      sum[~place] = term;
  };
  const Index all = list.size();
  for (Index k = Index(blockIdx.x) * groups + group; k < all; k += Index(gridDim.x) * groups) {
    const Index i = list[k];
    clear_table<width, slots>(lanes, key);
    lanes.sync();
    const Index end = a.start.data[i + 1];
    for (Index first = a.start.data[i]; first < end; first += width) {
      const HeldEntries<width> held(a, b, first + lanes.lane, end, true);
      const int count = int(min(Index(width), end - first));
      // The first entries of the next row of B are on their way while those of this one are added.
      Index from = __shfl_sync(lanes.mask, held.from, 0, width);
      int length = __shfl_sync(lanes.mask, held.length, 0, width);
      bool there = lanes.lane < length;
      std::int32_t c = there ? b.column.data[from + lanes.lane] : 0;
      double v = there ? b.value.data[from + lanes.lane] : 0;
      for (int h = 0; h < count; ++h) {
        const double factor = __shfl_sync(lanes.mask, held.factor, h, width);
        const int next = h + 1 < count ? h + 1 : h;
        const Index next_from = __shfl_sync(lanes.mask, held.from, next, width);
        const int next_length = __shfl_sync(lanes.mask, held.length, next, width);
        const bool next_there = lanes.lane < next_length;
        const std::int32_t next_c = next_there ? b.column.data[next_from + lanes.lane] : 0;
        const double next_v = next_there ? b.value.data[next_from + lanes.lane] : 0;
        if (there) add(c, factor * v);
        for (int f = lanes.lane + width; f < length; f += width)
          add(b.column.data[from + f], factor * b.value.data[from + f]);
        lanes.sync();
        from = next_from, length = next_length, there = next_there, c = next_c, v = next_v;
      }
    }
    // The places that are taken, out; or, to be sorted, to the front.
    const Index to = start[i];
    int found = 0;
    for (int s = lanes.lane; s < slots; s += width) {
      const std::int32_t own = key[s];
      const double total = sum[s];
      int here = 0;
      const int place = found + lanes.before(own != empty_place, here);
      found += here;
      if (sorted) lanes.sync();
      if (own == empty_place) continue;
      if (sorted)
        key[place] = own, sum[place] = total;
      else
        column[to + place] = own, value[to + place] = total;
    }
    lanes.sync();
    for (int r = lanes.lane; sorted && r < found; r += width) {
      const std::int32_t own = key[r];
      int rank = 0;
      for (int t = 0; t < found; ++t) rank += key[t] < own;
      column[to + rank] = own;
      value[to + rank] = sum[r];
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
  constexpr int threads = class_threads<which>;
  fill_product_kernel<which, sorted>
      <<<product_blocks(host_count, threads / class_width<which>), threads, 0, native(stream)>>>(
          a, b, RowList{rows, count, 0}, start, column, value);
  check_launch();
}

template <int which>
void fill_wide(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
               const std::int32_t* rows, const int* count, int host_count, const Index* start,
               std::int32_t* column, double* value) {
  fill_wide_rows<ProductClass<which>::slots, class_groups<which>>(
      stream, a, b, RowList{rows, count, 0}, host_count, start, column, value);
}

constexpr int tries = 4;
/// What is known of a product's rows: how many need a larger table, how many are of each class.
struct ProductCounts {
  int more[tries], of_class[product_classes];
  Index entries;
};

/// Counts the columns of each row: in small tables first, or by blocks at once where `wide`.
void count_product(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
                   bool wide, Index* count, std::int32_t* list, std::int32_t* other, int* more) {
  const RowList all{nullptr, nullptr, a.rows()};
  if (wide) {
    count_wide_rows<512>(stream, a, b, all, count, other, more + 1);
  } else {
    count_rows<4, 64>(stream, a, b, all, count, list, more);
    count_rows<8, 256>(stream, a, b, {list, more, 0}, count, other, more + 1);
  }
  count_wide_rows<2048>(stream, a, b, {other, more + 1, 0}, count, list, more + 2);
  count_wide_rows<8192>(stream, a, b, {list, more + 2, 0}, count, other, more + 3);
}

/// A B; the result's memory is make(entries), which has start, column and value. False where a row is too
/// long.
template <bool sorted, class Make>
bool multiply_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& a, const CsrRows<Cuda>& b,
                   Index* start, Scratch<Cuda>& scratch, const Make& make) {
  const Index rows = a.rows();
  if (rows == 0) return fill_zero(stream, View<Index, Cuda>{start, 1}), (void)make(0), true;
  const View<ProductCounts, Cuda> counts = scratch.take<ProductCounts>(1);
  int* const of_class = counts.data->of_class;  // an address alone
  const View<std::int32_t, Cuda> lists = scratch.take<std::int32_t>(rows);
  // Few rows, or not so few with many steps each: blocks.
  constexpr double many = 1000;
  const double steps = double(a.column.size) / double(rows) * double(b.column.size) /
                       double(std::max<Index>(1, b.rows()));
  constexpr Index few = 132 * 64;
  const bool wide = rows <= few || (rows <= 12 * few && steps > many);
  {
    const typename Scratch<Cuda>::Scope scope(scratch);
    const View<std::int32_t, Cuda> other = scratch.take<std::int32_t>(rows);
    fill_zero(stream, counts);
    fill_zero(stream, View<Index, Cuda>{start, rows + 1});
    count_product(stream, a, b, wide, start, lists.data, other.data, counts.data->more);
  }
  classify_kernel<false>
      <<<blocks_for(rows), block_threads, 0, native(stream)>>>(rows, start, of_class, {});
  check_launch();
  coarsening::sum_before(stream, {start, rows + 1}, scratch);
  copy(stream, View<Index, Cuda>{&counts.data->entries, 1},
       View<const Index, Cuda>{start + rows, 1});
  const ProductCounts found = coarsening::read_one(stream, counts.data);
  if (found.more[tries - 1] > 0) return false;
  ClassLists to{lists.data, {}};
  for (int c = 1; c < product_classes; ++c) to.begin[c] = to.begin[c - 1] + found.of_class[c - 1];
  fill_zero(stream, View<int, Cuda>{of_class, product_classes});
  classify_kernel<true>
      <<<blocks_for(rows), block_threads, 0, native(stream)>>>(rows, start, of_class, to);
  check_launch();
  const auto [column, value] = make(found.entries);
  const auto fill = [&]<int which>() {
    const std::int32_t* const list = lists.data + to.begin[which];
    const int here = found.of_class[which];
    if constexpr (which > 3)
      fill_wide<which>(stream, a, b, list, of_class + which, here, start, column, value);
    else if (wide)
      fill_wide<3>(stream, a, b, list, of_class + which, here, start, column, value);
    else
      fill_rows<which, sorted>(stream, a, b, list, of_class + which, here, start, column, value);
  };
  fill.template operator()<0>();
  fill.template operator()<1>();
  fill.template operator()<2>();
  fill.template operator()<3>();
  fill.template operator()<4>();
  fill.template operator()<5>();
  return true;
}

/// Where a product's entries go.
struct Place {
  std::int32_t* column;
  double* value;
};

constexpr int sample_slots = 8192, sample_threads = 512;

/// Two tables: columns of a row of T A, and of T A P.
struct SampleTables {
  std::int32_t middle[sample_slots], key[sample_slots];
  int found;
};
/// A block for each of some rows of T: columns of its row of T A P, at most those of a table.
__global__ void __launch_bounds__(sample_threads)
    sample_kernel(CsrRows<Cuda> t, CsrRows<Cuda> a, CsrRows<Cuda> p, Index step,
                  unsigned long long* sum) {
  extern __shared__ double sample_memory[];
  auto& tables = *reinterpret_cast<SampleTables*>(sample_memory);
  const Lanes<32> warp;
  const int number = int(threadIdx.x) / 32;
  const Index s = Index(blockIdx.x) * step;
  for (int k = int(threadIdx.x); k < sample_slots; k += sample_threads)
    tables.middle[k] = tables.key[k] = empty_place;
  if (threadIdx.x == 0) tables.found = 0;
  __syncthreads();
  bool full = false;
  for (Index e = t.start.data[s] + number; e < t.start.data[s + 1] && !full;
       e += sample_threads / 32) {
    const Index i = t.column.data[e];
    for (Index f = a.start.data[i] + warp.lane; f < a.start.data[i + 1] && !full; f += 32)
      full = find_place<sample_slots>(tables.middle, a.column.data[f]) < -sample_slots;
  }
  full = __syncthreads_or(int(full)) != 0;
  int mine = 0;
  for (int m = number; m < sample_slots && !full; m += sample_threads / 32) {
    const Index k = tables.middle[m];
    if (k == empty_place) continue;
    for (Index g = p.start.data[k] + warp.lane; g < p.start.data[k + 1] && !full; g += 32) {
      const int place = find_place<sample_slots>(tables.key, p.column.data[g]);
      mine += place < 0 && place >= -sample_slots;
      full = place < -sample_slots;
    }
  }
  __syncwarp();
  mine = warp.sum(mine);
  if (warp.lane == 0 && mine > 0) atomicAdd(&tables.found, mine);
  full = __syncthreads_or(int(full)) != 0;
  if (threadIdx.x == 0) atomicAdd(sum, (unsigned long long)(full ? sample_slots : tables.found));
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
  allow_shared(sample_kernel, Index(sizeof(SampleTables)));
  sample_kernel<<<unsigned(some), sample_threads, sizeof(SampleTables), native(stream)>>>(
      t, a, p, step, sum.data);
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

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
