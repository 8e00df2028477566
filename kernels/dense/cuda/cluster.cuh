// For cluster.cu: one column of a panel, eliminated by the processors of a cluster together.
//
// The chain of a column, in cycles of an H200 (a step of a loop of its own): best of a warp by
// redux and ballot 78, block barrier 29, best of the block 78, a store to another processor until it
// is seen 350, best of all 78. What a row still lacks is added while messages are on their way. The
// header goes before the row: who won is found while the row travels.
#pragma once
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/dense/cuda/cluster_messages.cuh"

#ifdef TERRACE_SM90A

namespace terrace::dense::cluster {

constexpr int most_processors = 16;         // of a cluster
constexpr int panel_most = 128;             // columns of one launch
static_assert(panel_most < 1 << 16);        // tags of a header have 16 bits
constexpr unsigned row_bits = 0x7fffffffu;  // of a header; bit 31 is the pivot's sign

/// |value| as ordered bits, its exponent one up so that 0 means no candidate; not finite counts as
/// infinity.
__device__ inline Bits rank_of(double value) {
  const unsigned high = unsigned(__double2hiint(value)) & 0x7fffffffu;
  const bool finite = high < 0x7ff00000u;
  return Bits((finite ? high : 0x7ff00000u) + 1) << 32 |
         (finite ? unsigned(__double2loint(value)) : 0u);
}
/// The number of rank_of(), with the sign that bit 31 of `sign` has.
__device__ inline double pivot_of(Bits key, unsigned sign) {
  return __longlong_as_double(
      (long long)((key - (Bits(1) << 32)) | Bits(sign & 0x80000000u) << 32));
}
__device__ inline bool is_usable(Bits key) {
  return key > Bits(1) << 32 && key < Bits(0x7ff00001u) << 32;
}
__device__ inline bool is_infinite(Bits key) { return key == Bits(0x7ff00001u) << 32; }

/// One bit: the lane with the best (key, row), the largest key, the lowest row among equal ones.
__device__ inline unsigned best_lane(Bits key, int row) {
  const unsigned high = unsigned(key >> 32), best = __reduce_max_sync(~0u, high);
  unsigned mask = __ballot_sync(~0u, high == best);
  if (mask & (mask - 1)) {
    const unsigned low = unsigned(key);
    const unsigned best_low = __reduce_max_sync(~0u, high == best ? low : 0u);
    const bool equal = high == best && low == best_low;
    const unsigned lowest = __reduce_min_sync(~0u, equal ? unsigned(row) : unsigned(INT_MAX));
    mask = __ballot_sync(~0u, equal && unsigned(row) == lowest);
  }
  return mask & (0u - mask);
}

__device__ inline double reciprocal(double p) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  r = fma(r, fma(-p, r, 1.0), r);
  return fma(r, fma(-p, r, 1.0), r);
}

template <class Real>
struct Number;
template <>
struct Number<double> {
  using Pair = double2;
  static __device__ Bits bits(double v) { return Bits(__double_as_longlong(v)); }
  static __device__ double value(Bits v) { return __longlong_as_double((long long)v); }
};
template <>
struct Number<float> {
  using Pair = float2;
  static __device__ Bits bits(float v) { return __float_as_uint(v); }
  static __device__ float value(Bits v) { return __uint_as_float(unsigned(v)); }
};

/// Shared memory of one processor with T threads, in doubles; everything begins at a multiple of 16
/// bytes.
template <class Real, int W, int T>
struct Layout {
  int rows;  // of the processor, a multiple of 32
  static constexpr int ld_u = panel_most + 4, ld_l = W + 4;
  static constexpr int row = W + 2;
  __host__ __device__ int ld_n() const { return rows + 32 / int(sizeof(Real)); }
  __host__ __device__ int n() const { return 0; }  // column by column, Reals
  __host__ __device__ int u() const { return n() + W * ld_n() * int(sizeof(Real)) / 8; }
  __host__ __device__ int l() const { return u() + W * ld_u; }  // L, then its inverse blocks
  // Of even and odd columns, of every processor: the header of its best row; the row, as chunks.
  __host__ __device__ int heads() const { return l() + 2 * W * ld_l; }
  __host__ __device__ int board() const { return heads() + 2 * most_processors * 2; }
  __host__ __device__ int found() const { return board() + 2 * most_processors * 2 * W; }
  // Key and row of every warp's best; the best one: multiplier, unused, a[2], a[3] ... a[W]; the
  // pivot row, in a copy of each warp: Reals.
  __host__ __device__ int stage() const { return found() + T / 32 * 2; }
  __host__ __device__ int pivot() const { return stage() + row; }
  __host__ __device__ int slots() const { return pivot() + T / 32 * row; }  // W ints
  __host__ __device__ int fresh() const { return slots() + W / 2; }         // a byte a row
  __host__ __device__ int bytes() const { return fresh() * 8 + rows; }
};

/// What all columns of a launch have in common.
template <class Real>
struct Place {
  StripOf<Real> s;
  Index* pivot_slot;
  double* raw;  // W x panel_most: pivot rows right of the leaf, for all processors
  int processors, me, base, rows, j0;
};

/// The rows of a thread, a column late: while the best rows of a column are on their way, all but
/// the first column still want the pivot row of the column before.
template <class Real, int W, int R, int T>
struct Leaf {
  using Memory = Layout<Real, W, T>;
  using Pair = typename Number<Real>::Pair;
  static constexpr int warps = T / 32, sends = most_processors / warps;
  static constexpr int row_bytes = 16 * W, heads_bytes = most_processors * 16;
  Real a[R][W + 1];  // [0]: the column that is next; [c]: the one c - 1 behind it, a pivot row late
  Real l[R];         // multipliers of that pivot row
  unsigned inside;   // bit q: row q is one of this processor's
  unsigned open;     // bit q: row q may become a pivot row
  int step;          // columns since the kernel began
  bool stopped;
  // On processor number `lane`, on those that this warp serves: the places of this one's messages.
  char *head_to, *row_to[sends];
  Real *n,
      *x;  // from this thread's first row on: the next column of N, in shared memory, in the strip

  /// Once, before the first leaf.
  __device__ void prepare(const Place<Real>& at, const Memory& layout, double* memory) {
    const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
    const auto there = [&](double* here, int processor) {
      return of_processor(here, processor < at.processors ? processor : 0);
    };
    head_to = there(memory + layout.heads() + 2 * at.me, lane);
#pragma unroll
    for (int k = 0; k < sends; ++k)
      row_to[k] = there(memory + layout.board() + 2 * (W * at.me + lane % W), warp + k * warps);
    step = 0;
    stopped = false;
    inside = open = 0;
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
      if (lr >= at.rows || r >= at.s.slots) continue;
      inside |= 1u << q;
      if (at.s.column_of[r] == -1) open |= 1u << q;
    }
  }

  /// Before the columns of a leaf, which begins at at.j0: none is late.
  __device__ __forceinline__ void begin(const Place<Real>& at, const Memory& layout, double* memory,
                                        int count) {
    const int tid = int(threadIdx.x), warp = tid / 32;
    n = reinterpret_cast<Real*>(memory + layout.n()) + tid;
    x = at.s.x + at.base + tid + at.j0 * at.s.ld;
#pragma unroll
    for (int q = 0; q < R; ++q) {
      l[q] = 0;
#pragma unroll
      for (int c = 0; c < W; ++c)
        a[q][c == 0 ? 0 : c + 1] =
            (inside >> q & 1) && c < count ? __ldcg(x + q * T + c * at.s.ld) : Real(0);
    }
    Real* const p = reinterpret_cast<Real*>(memory + layout.pivot() + warp * Memory::row);
    for (int c = tid % 32; c < Memory::row; c += 32) p[c] = 0;
    __syncwarp();
  }

  /// A candidate: key, and row with the sign of its number.
  struct Head {
    Bits key = 0;
    unsigned row = row_bits;
    [[nodiscard]] __device__ int place() const { return int(row & row_bits); }
    /// The lane with the best one.
    [[nodiscard]] __device__ int best() const { return __ffs(int(best_lane(key, place()))) - 1; }
  };

  /// This thread's best row, number `which` of its own.
  __device__ __forceinline__ Head own_best(const Place<Real>& at, int& which) const {
    Head head;
    which = 0;
    Real best = a[0][0];
    if constexpr (std::is_same_v<Real, double>) {
#pragma unroll
      for (int q = 0; q < R; ++q) {
        const Bits mine = open >> q & 1 ? rank_of(a[q][0]) : 0;
        if (q == 0 || mine > head.key) {
          head.key = mine;
          best = a[q][0];
          which = q;
        }
      }
    } else {
      float most = -1;
#pragma unroll
      for (int q = 0; q < R; ++q) {
        const float size = fabsf(a[q][0]) < INFINITY ? fabsf(a[q][0]) : INFINITY;
        if ((open >> q & 1) && size > most) {
          most = size;
          best = a[q][0];
          which = q;
        }
      }
      if (most >= 0) head.key = rank_of(double(most));
    }
    const unsigned sign = unsigned(__double2hiint(double(best))) & ~row_bits;
    if (head.key != 0) head.row = unsigned(at.base + which * T + int(threadIdx.x)) | sign;
    return head;
  }

  /// Row number `which` of this thread, as late as it is, and its multiplier.
  template <int LIVE>
  __device__ __forceinline__ void put_row(int which, Real* stage) const {
#pragma unroll
    for (int q = 0; q < R; ++q)
      if (q == which) {
        stage[0] = l[q];
#pragma unroll
        for (int c = 2; c <= LIVE; c += 2)
          *reinterpret_cast<Pair*>(stage + c) = {a[q][c], c < W ? a[q][c + 1] : Real(0)};
      }
  }

  /// The processor's best row goes to all, its header first. `p`: the pivot row that it lacks.
  template <int LIVE>
  __device__ __forceinline__ void send_best(const Place<Real>& at, const Memory& layout,
                                            double* memory, const Real* p, int odd,
                                            unsigned tag) const {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    ulonglong2* const found = reinterpret_cast<ulonglong2*>(memory + layout.found());
    Real* const stage = reinterpret_cast<Real*>(memory + layout.stage());
    int which = 0;
    const Head own = own_best(at, which);
    const bool offers = own.best() == lane;
    if (offers) found[warp] = {own.key, own.row};
    const Real before = p[lane < W ? lane + 1 : 0];
    __syncthreads();
    const ulonglong2 other = lane < warps ? found[lane] : ulonglong2{0, row_bits};
    const int best = Head{other.x, unsigned(other.y)}.best();
    if (offers && warp == best) {
      put_row<LIVE>(which, stage);
    } else if (warp == (best + 1) % warps && lane < at.processors) {
      const ulonglong2 mine = found[best];
      send_header(head_to + odd * heads_bytes, mine.x, unsigned(mine.y), tag);
    }
    __syncthreads();
    if (warp >= at.processors) return;
    Real value = 0;
    if (lane < LIVE) value = fma(-stage[0], before, stage[1 + lane]);
#pragma unroll
    for (int k = 0; k < sends; ++k)
      if (lane < LIVE && warp + k * warps < at.processors)
        send(row_to[k] + odd * most_processors * row_bytes, Number<Real>::bits(value), tag);
  }

  /// The best header of all processors, once they have come; `winner`: whose it is.
  __device__ __forceinline__ Head best_of_all(const Place<Real>& at, unsigned heads, unsigned tag,
                                              int& winner) const {
    const int lane = int(threadIdx.x) % 32;
    Header got{0, tag, row_bits, tag};
    do {
      if (lane < at.processors) got = look<Header>(heads + lane * 16);
    } while (!__all_sync(~0u, got.lacks(tag) == 0));
    winner = Head{got.rank(), got.row}.best();
    return {__shfl_sync(~0u, got.rank(), winner), __shfl_sync(~0u, got.row, winner)};
  }

  /// Column j, LIVE of whose leaf's columns are still wanted.
  template <int LIVE>
  __device__ void column(const Place<Real>& at, const Memory& layout, double* memory, int j) {
    const StripOf<Real>& s = at.s;
    const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32, odd = step & 1;
    const unsigned tag = unsigned(++step);
    Real* const p = reinterpret_cast<Real*>(memory + layout.pivot() + warp * Memory::row);
    send_best<LIVE>(at, layout, memory, p, odd, tag);
    catch_up<LIVE>(p);
    if (j > 0) store(layout, s.ld);
    int winner = 0;
    const Head best =
        best_of_all(at, shared_address(memory + layout.heads()) + odd * heads_bytes, tag, winner);
    const bool usable = is_usable(best.key);
    if (tid == 0) reinterpret_cast<int*>(memory + layout.slots())[j] = usable ? best.place() : -1;
    if (!usable) {
      if (lane < W) p[lane] = 0;
      __syncwarp();
      pass(at, j, best.place(), is_infinite(best.key));
      return;
    }
    const double pivot = pivot_of(best.key, best.row), inverse = reciprocal(pivot);
    const unsigned row = shared_address(memory + layout.board()) +
                         unsigned(odd * most_processors + winner) * row_bytes;
    Chunk next, mine;
    do {
      next = look<Chunk>(row + 16);
      mine = look<Chunk>(row + unsigned(lane > 0 && lane < LIVE ? lane : 1) * 16);
    } while (!__all_sync(~0u, (next.lacks(tag) | mine.lacks(tag)) == 0));
    eliminate<LIVE>(at, layout, memory, best, Real(inverse), Number<Real>::value(next.bits()));
    const Real value = Number<Real>::value(mine.bits());
    if (lane > 0 && lane < LIVE) p[lane] = value;
    const int column = at.j0 + j;
    if (at.me == 0 && warp == 1 && lane < LIVE && j + lane < W && column + lane < s.width)
      s.lu[column * s.block + column + lane] = lane == 0 ? pivot : double(value);
    __syncwarp();
  }

  /// Multipliers of a column, and what comes next in the rows.
  template <int LIVE>
  __device__ __forceinline__ void eliminate(const Place<Real>& at, const Memory& layout,
                                            double* memory, const Head& best, Real inverse,
                                            Real next) {
    const unsigned exponent =
        unsigned(best.key >> 52);  // one over what is too small or too large for 1/p
    constexpr unsigned far = std::is_same_v<Real, double> ? 959 : 100;
    const bool divide = exponent < 1023 - far || exponent > 1023 + far;
    const int place = best.place() - at.base - int(threadIdx.x);
#pragma unroll
    for (int q = 0; q < R; ++q) {
      if (place == q * T && (inside >> q & 1)) {
        open &= ~(1u << q);
        reinterpret_cast<unsigned char*>(memory + layout.fresh())[q * T + int(threadIdx.x)] = 1;
        a[q][0] = -1;
#pragma unroll
        for (int c = 1; c < LIVE; ++c) a[q][c] = 0;
      }
      l[q] = a[q][0] * inverse;
    }
    if (divide) {
      const double pivot = pivot_of(best.key, best.row);
#pragma unroll
      for (int q = 0; q < R; ++q) l[q] = Real(double(a[q][0]) / pivot);
    }
#pragma unroll
    for (int q = 0; q < R; ++q) a[q][0] = fma(-l[q], next, a[q][1]);
  }

  /// What the columns behind the first still want of the pivot row `p`; they move one place to the
  /// left.
  template <int LIVE>
  __device__ __forceinline__ void catch_up(const Real* p) {
#pragma unroll
    for (int c = 2; c <= LIVE; c += 2) {
      const Pair two = *reinterpret_cast<const Pair*>(p + c);
#pragma unroll
      for (int q = 0; q < R; ++q) {
        a[q][c - 1] = fma(-l[q], two.x, a[q][c]);
        if (c < LIVE) a[q][c] = fma(-l[q], two.y, a[q][c + 1]);
      }
    }
  }

  /// The next column of N.
  __device__ __forceinline__ void store(const Memory& layout, Index ld) {
#pragma unroll
    for (int q = 0; q < R; ++q) {
      if (q * T + int(threadIdx.x) < layout.rows) n[q * T] = l[q];
      if (inside >> q & 1) x[q * T] = l[q];
    }
    n += layout.ld_n();
    x += ld;
  }

  /// A column without a usable pivot: the end, or, where columns are passed over, a row of the
  /// identity in LU.
  __device__ void pass(const Place<Real>& at, int j, int row, bool infinite) {
    const StripOf<Real>& s = at.s;
    const int column = at.j0 + j, tid = int(threadIdx.x);
    if (at.me == 0 && tid == 0) {
      at.pivot_slot[column] = -1;
      if (!s.skip) {
        s.info[0] = s.offset + column;
        s.info[1] = infinite ? 2 : 1;
      }
    }
    stopped = !s.skip;
    if (stopped) return;
    if (at.me == 0)
      for (int c = tid; c < W && j + c < W && column + c < s.width; c += T)
        s.lu[column * s.block + column + c] = c == 0 ? 1.0 : 0.0;
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int r = at.base + q * T + tid;
      if ((inside >> q & 1) && r == row && infinite) {  // not finite: let it show
        open &= ~(1u << q);
        s.column_of[r] = s.first + column;
      }
      l[q] = 0;
      a[q][0] = a[q][1];
    }
  }

  template <int LIVE>
  __device__ void columns(const Place<Real>& at, const Memory& layout, double* memory, int& j,
                          int count) {
    const int end = min(count, W - LIVE + W / 4);
#pragma unroll 1
    for (; j < end && !stopped; ++j) column<LIVE>(at, layout, memory, j);
  }
};

}  // namespace terrace::dense::cluster

#endif
