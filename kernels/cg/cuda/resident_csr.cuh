// Conjugate gradients of a small CSR system in one launch: the kernels of resident_csr.cu.
//
// Each block keeps its share of the rows: of p the numbers that its columns name, and of the entries
// as many as fit, in shared memory; x and r of own rows in registers. The columns of entries count
// within the share's p, in 16 bits. An iteration has two hand-overs:
//   product   q of own rows, then each block's p.q and p.p -> all blocks, which add them in order
//   step      r and x of own rows; z = D r -> whoever names it; r.r and r.z -> all blocks
//   turn      each block does p = z + beta p for all numbers of p that it keeps
// So no third hand-over of p is needed. z are bare numbers, which say themselves that they are
// there; they have four places in turn, as q in resident.cuh.
//
// Waits end: all blocks run at once (a cooperative launch), and after some 10 s of polling the kernel
// traps, which is an error of the device on the host.
#pragma once
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/cuda/resident_exchange.cuh"
#include "kernels/cg/resident.hpp"

namespace terrace::cg::resident_csr {

using resident::look;

constexpr int threads = 512, warps = threads / 32;
constexpr int items = 8;  // rows of a share that a thread owns at most
constexpr int early = 4;  // numbers of other shares' z that a thread asks for before it knows beta
constexpr int row_weight = 4;  // entries that a row costs

struct Arguments {
  const Index* start;
  const double* value;
  const std::uint16_t* place;
  const std::int32_t* list;
  const Index* bounds;
  Index n;
  int shares, room;
  int width;  ///< lanes that add up a row
  int bytes;  ///< of shared memory a block
  const double* inverse_diagonal;
  double *p, *x, *r;
  double* rows;
  Index ring, stride, first;
  unsigned count;
  CgLimits limits;
  Word *sums, *z;  ///< sums: 2 hand-overs x shares x 2 numbers; z: 4 n
};

/// Entries that a share keeps in shared memory, beside p, q and starts; an even number.
__host__ __device__ constexpr Index kept_entries(Index bytes, Index length, Index rows) {
  const Index room = bytes - 8 * (length + rows) - 4 * (rows + 2);
  return room < 0 ? -1 : room / 20 * 2;
}

// --- shares
// ---------------------------------------------------------------------------------------

/// First row of share s: so much of the weight of all rows lies before it.
__device__ inline Index first_row(const Index* start, Index n, Index shares, Index s) {
  const Index target = (start[n] + row_weight * n) * s / shares;
  Index low = 0, high = n;
  while (low < high) {
    const Index middle = (low + high) / 2;
    if (start[middle] + row_weight * middle < target)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

constexpr int dealers = 1024;  // threads

/// before[w] = bits of words 0 .. w - 1; returns all. `space`: a number a warp.
__device__ inline unsigned count_bits(const unsigned* bits, unsigned* before, int words,
                                      unsigned* space) {
  const int tid = int(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int each = (words + dealers - 1) / dealers;
  const int from = min(tid * each, words), to = min(from + each, words);
  unsigned mine = 0;
  for (int w = from; w < to; ++w) mine += __popc(bits[w]);
  unsigned sum = mine;
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const unsigned left = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += left;
  }
  if (lane == 31) space[warp] = sum;
  __syncthreads();
  unsigned earlier = 0, all = 0;
  for (int w = 0; w < dealers / 32; ++w) {
    if (w == warp) earlier = all;
    all += space[w];
  }
  unsigned at = earlier + sum - mine;
  for (int w = from; w < to; ++w) {
    before[w] = at;
    at += __popc(bits[w]);
  }
  __syncthreads();
  return all;
}

/// One block per share. Shared memory: two words for 32 columns.
__global__ void __launch_bounds__(dealers)
    deal_kernel(CsrRows<Cuda> m, Index n, int room, std::int32_t* list, std::uint16_t* place,
                Index* bounds) {
  extern __shared__ unsigned marks[];
  __shared__ unsigned space[dealers / 32];
  __shared__ Index ends[2];
  __shared__ int longest;
  const Index shares = gridDim.x, s = blockIdx.x;
  const int tid = int(threadIdx.x), words = int((n + 31) / 32);
  unsigned *const bits = marks, *const before = marks + words;
  if (tid < 2) ends[tid] = first_row(m.start.data, n, shares, s + tid);
  if (tid == 0) longest = 0;
  for (int w = tid; w < words; w += dealers) bits[w] = 0;
  __syncthreads();
  const Index first = ends[0], last = ends[1];
  const auto mark = [&](Index c) { atomicOr(bits + c / 32, 1u << (c % 32)); };
  for (Index i = first + tid; i < last; i += dealers) {
    mark(i);
    atomicMax(&longest, int(m.start.data[i + 1] - m.start.data[i]));
  }
  const Index from = m.start.data[first], to = m.start.data[last];
  for (Index e = from + tid; e < to; e += dealers) mark(m.column.data[e]);
  __syncthreads();
  const unsigned length = count_bits(bits, before, words, space);
  const auto place_of = [&](Index c) {
    return before[c / 32] + __popc(bits[c / 32] & ((1u << (c % 32)) - 1));
  };
  if (tid == 0) {
    bounds[s] = first;
    bounds[shares + 1 + s] = length;
    bounds[2 * (shares + 1) + s] = first < last ? place_of(first) : 0;
    bounds[3 * (shares + 1) + s] = longest;
    if (s + 1 == shares) {
      bounds[shares] = last;
      for (int what = 1; what < 4; ++what) bounds[what * (shares + 1) + shares] = 0;
    }
  }
  if (length > unsigned(room)) return;  // the host sees it
  for (int w = tid; w < words; w += dealers) {
    std::int32_t* to_list = list + s * room + before[w];
    for (unsigned left = bits[w]; left != 0; left &= left - 1)
      *to_list++ = 32 * w + __ffs(left) - 1;
  }
  for (Index e = from + tid; e < to; e += dealers)
    place[e] = std::uint16_t(place_of(m.column.data[e]));
}

// --- iterations
// -----------------------------------------------------------------------------------

/// Polls that are left: the device has lost a block where they end.
struct Patience {
  unsigned left = 1u << 24;
  __device__ __forceinline__ void spend() {
    if (--left == 0) __trap();
  }
};

/// A block's share: shared memory, and where things stand.
struct Share {
  const Arguments& w;
  const int tid = int(threadIdx.x), block = int(blockIdx.x);
  const Index first = w.bounds[block], entry = w.start[first];
  const int rows = int(w.bounds[block + 1] - first);
  const int length = int(w.bounds[w.shares + 1 + block]);
  const int own = int(w.bounds[2 * (w.shares + 1) + block]);  // place of the first own row
  const int halo = length - rows;
  const int room = int(kept_entries(w.bytes, length, rows));
  const std::int32_t* const list = w.list + Index(block) * w.room;
  double *const p, *const q, *const value;
  int* const start;            // of own rows, from `entry`
  std::uint16_t* const place;  // of kept entries
  int kept = 0;                // rows whose entries are here

  __device__ __forceinline__ Share(const Arguments& arguments, double* shared)
      : w(arguments),
        p(shared),
        q(p + length),
        value(q + rows),
        start(reinterpret_cast<int*>(value + room)),
        place(reinterpret_cast<std::uint16_t*>(start + rows + 1)) {}
  /// Where the k-th number that is not own stands in the list.
  __device__ __forceinline__ int outside(int k) const { return k < own ? k : k + rows; }
};

/// Starts, entries and p to shared memory. Waits.
__device__ __forceinline__ void load(Share& b) {
  const Arguments& w = b.w;
  for (int i = b.tid; i <= b.rows; i += threads) b.start[i] = int(w.start[b.first + i] - b.entry);
  for (int l = b.tid; l < b.length; l += threads) b.p[l] = w.p[b.list[l]];
  __syncthreads();
  int low = 0, high = b.rows;  // the most rows that fit
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (b.start[middle] <= b.room)
      low = middle;
    else
      high = middle - 1;
  }
  b.kept = low;
  const int entries = b.start[low];
#pragma unroll 4
  for (int e = b.tid; e < entries; e += threads) b.value[e] = __ldg(w.value + b.entry + e);
#pragma unroll 4
  for (int e = b.tid; e < entries; e += threads) b.place[e] = __ldg(w.place + b.entry + e);
  __syncthreads();
}

/// Sum of entries from, from + width, ... < to.
__device__ __forceinline__ double dot(const double* value, const std::uint16_t* place,
                                      const double* p, int from, int to, int width) {
  double sum = 0;
#pragma unroll 4
  for (int e = from; e < to; e += width) sum = fma(value[e], p[place[e]], sum);
  return sum;
}

/// q = A p of own rows.
__device__ __forceinline__ void multiply(const Share& b) {
  const int width = b.w.width, sub = b.tid & (width - 1), group = b.tid / width;
  const double* const far_value = b.w.value + b.entry;
  const std::uint16_t* const far_place = b.w.place + b.entry;
  for (int top = 0; top < b.rows; top += threads / width) {
    const int row = top + group;
    double sum = 0;
    if (row < b.kept)
      sum = dot(b.value, b.place, b.p, b.start[row] + sub, b.start[row + 1], width);
    else if (row < b.rows)
      sum = dot(far_value, far_place, b.p, b.start[row] + sub, b.start[row + 1], width);
    for (int offset = width / 2; offset > 0; offset >>= 1)
      sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (sub == 0 && row < b.rows) b.q[row] = sum;
  }
}

/// Two sums of this block to all; by one thread.
__device__ __forceinline__ void send(const Share& b, Word* sums, double2 s, unsigned tag) {
  if (b.tid != 0) return;
  device::send_number(sums + 4 * b.block, s.x, tag);
  device::send_number(sums + 4 * b.block + 2, s.y, tag);
}
/// Those of all blocks, added in their order.
__device__ __forceinline__ double2 receive(const Share& b, const Word* sums, unsigned tag,
                                           double* space) {
  double2 s = {};
  if (b.tid < b.w.shares) {
    const Word* const slot = sums + 4 * b.tid;
    Patience patience;
    while (!device::number_arrived(slot, s.x, tag)) patience.spend();
    while (!device::number_arrived(slot + 2, s.y, tag)) patience.spend();
  }
  return resident::sum_for_all<warps>(s, space);
}

/// Vectors of own rows, row tid + e threads each, and the scalars.
struct Vectors {
  const Share& b;
  double r[items], x[items], pq, pp, rr, rz;
  int column[early];  // of others' z
  Word bits[early];   // those z

  __device__ __forceinline__ explicit Vectors(const Share& share) : b(share) {
    each([&](int e, int i) {
      r[e] = b.w.r[b.first + i];
      x[e] = b.w.x[b.first + i];
    });
#pragma unroll
    for (int k = 0; k < early; ++k) {
      const int at = b.tid + k * threads;
      column[k] = at < b.halo ? b.list[b.outside(at)] : -1;
    }
    const double* before = b.w.rows + (b.w.first - 1) % b.w.ring * b.w.stride;
    pq = before[cg_row::pq], pp = before[cg_row::pp];
    rr = before[cg_row::rr], rz = before[cg_row::rz];
  }
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int e = 0; e < items; ++e) {
      const int i = b.tid + e * threads;
      if (i < b.rows) f(e, i);
    }
  }
  /// z = D r.
  __device__ __forceinline__ double solved(int e, int i) const {
    return b.w.inverse_diagonal ? __ldg(b.w.inverse_diagonal + b.first + i) * r[e] : r[e];
  }
  __device__ __forceinline__ double* own_p() const { return b.p + b.own; }
  __device__ __forceinline__ Word* places(unsigned tag) const {
    return b.w.z + Index(tag % 4) * b.w.n;
  }
  /// alpha = r.z / p.q, x += alpha p, r -= alpha q, z = D r; false where alpha is zero.
  __device__ __forceinline__ bool step(unsigned tag, double (&space)[4][2 * warps]) {
    Word *const first_sums = b.w.sums, *const second_sums = first_sums + 4 * b.w.shares;
    double2 s = {};
    each([&](int, int i) {
      const double v = own_p()[i];
      s.x = fma(v, b.q[i], s.x);
      s.y = fma(v, v, s.y);
    });
    send(b, first_sums, resident::sum_for_all<warps>(s, space[0]), tag);
    s = receive(b, first_sums, tag, space[1]);
    pq = s.x;
    pp = s.y;
    const double alpha = cg_step_length(rr, rz, pq, pp, b.w.limits);
    if (alpha == 0) return false;
    s = make_double2(0, 0);
    each([&](int e, int i) {
      x[e] = fma(alpha, own_p()[i], x[e]);
      r[e] = fma(-alpha, b.q[i], r[e]);
      const double z = solved(e, i);
      device::send_bare(places(tag) + b.first + i, z);
      s.x = fma(r[e], r[e], s.x);
      s.y = fma(r[e], z, s.y);
    });
    send(b, second_sums, resident::sum_for_all<warps>(s, space[2]), tag);
    each([&](int, int i) { device::send_word(places(tag + 2) + b.first + i, device::nothing); });
    __threadfence();  // cleared before sums of the next iteration are seen
    ask(tag);
    s = receive(b, second_sums, tag, space[3]);
    rr = s.x;
    rz = s.y;
    return true;
  }
  __device__ __forceinline__ void ask(unsigned tag) {
#pragma unroll
    for (int k = 0; k < early; ++k) bits[k] = look(places(tag) + max(column[k], 0), column[k] >= 0);
  }
  /// One number of others' z, which is on its way.
  __device__ __forceinline__ double arrived(const Word* from, Word seen) const {
    Patience patience;
    while (seen == device::nothing) {
      patience.spend();
      seen = device::look(from);
    }
    return __longlong_as_double(static_cast<long long>(seen));
  }
  /// p = z + beta p, own and others'.
  __device__ __forceinline__ void turn(unsigned tag, double beta) const {
    each([&](int e, int i) { own_p()[i] = fma(beta, own_p()[i], solved(e, i)); });
    const Word* const from = places(tag);
#pragma unroll
    for (int k = 0; k < early; ++k) {
      if (column[k] < 0) continue;
      double& to = b.p[b.outside(b.tid + k * threads)];
      to = fma(beta, to, arrived(from + column[k], bits[k]));
    }
    for (int top = early * threads + b.tid; top < b.halo; top += early * threads) {
      Word seen[early];
      int at[early];
#pragma unroll
      for (int k = 0; k < early; ++k) {
        at[k] = b.outside(min(top + k * threads, b.halo - 1));
        seen[k] = device::look(from + b.list[at[k]]);
      }
#pragma unroll
      for (int k = 0; k < early; ++k) {
        if (top + k * threads >= b.halo) break;
        double& to = b.p[at[k]];
        to = fma(beta, to, arrived(from + b.list[at[k]], seen[k]));
      }
    }
  }
  /// The scalars of iteration `first` + k.
  __device__ __forceinline__ void record(Index k) const {
    double* row = b.w.rows + (b.w.first + k) % b.w.ring * b.w.stride;
    row[cg_row::pq] = pq;
    row[cg_row::pp] = pp;
    row[cg_row::rr] = rr;
    row[cg_row::rz] = rz;
  }
  __device__ __forceinline__ void store() const {
    each([&](int e, int i) {
      b.w.x[b.first + i] = x[e];
      b.w.r[b.first + i] = r[e];
      b.w.p[b.first + i] = own_p()[i];
    });
  }
};

__global__ void __launch_bounds__(threads, 1) iterate_kernel(const Arguments w) {
  extern __shared__ __align__(128) double shared[];
  __shared__ double space[4][2 * warps];
  Share b(w, shared);
  load(b);
  Vectors v(b);

  const bool records = b.block == 0 && b.tid == 0;
  unsigned tag = 0;
  bool moved = false;
  while (tag < w.count && cg_active(v.rr, v.rz, w.limits)) {
    ++tag;
    multiply(b);
    __syncthreads();
    const double rz_before = v.rz;
    const bool stepped = v.step(tag, space);
    if (records) v.record(Index(tag) - 1);
    if (!stepped) break;
    moved = true;
    if (cg_active(v.rr, v.rz, w.limits)) v.turn(tag, v.rz / rz_before);
    __syncthreads();
  }

  if (records)
    for (Index k = max(Index(tag), Index(w.count) - w.ring); k < w.count; ++k) v.record(k);
  if (moved) v.store();
}

}  // namespace terrace::cg::resident_csr
