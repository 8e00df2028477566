// Roofline: n m^2 flops in single precision, in products of 64 x 64 x up to m: at nearly OpenBLAS's
// SGEMM rate, twice that of DGEMM. A solve reads the factor twice: memory rate.
//
// The factor is kept in block rows of 64, left-looking wants no more:
//
//   block row i:  | block i-D | ... | block i-1 | block i |     D = reach / 64, rounded up
//                 column-major, leading dimension 64; what is outside the matrix is zero; of the
//                 diagonal block the lower triangle counts, with zeros above it
//
// so that block (i, j) of the update is one product of two runs of columns, as deep as the band.
// Every BLAS call works on one fixed block: bits do not depend on threads.
#include "kernels/band/low.hpp"

#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index kWidth = band_low_width(Cpu{});
constexpr Index kBlock = kWidth * kWidth;
constexpr int kInt = int(kWidth);

int as_int(Index i) { return static_cast<int>(i); }

/// Where block rows lie, and how far they reach.
struct Rows {
  Index depth;   ///< D
  Index blocks;  ///< block rows
  float* data;   ///< of block row 0
  Rows(const BandShape& s, const Word* low)
      : depth(ceil_div(s.reach, kWidth)),
        blocks(s.tiles()),
        data(reinterpret_cast<float*>(const_cast<Word*>(low))) {}
  [[nodiscard]] Index first(Index i) const { return std::max<Index>(0, i - depth); }
  /// Block (i, j), i - D <= j <= i.
  [[nodiscard]] float* block(Index i, Index j) const {
    return data + (i * (depth + 1) + depth - (i - j)) * kBlock;
  }
};

/// Largest column of a matrix that status may name, while rows are looked at in any order.
constexpr Index kNone = std::numeric_limits<Index>::max();
void lower(std::atomic<Index>& least, Index value) {
  Index seen = least.load();
  while (value < seen && !least.compare_exchange_weak(seen, value)) {
  }
}

/// Block row i of S A S + shift I.
void load_row(const BandShape& s, const Rows& rows, Index i, const double* a, double shift,
              const double* scale) {
  for (Index j = i - rows.depth; j <= i; ++j) {
    float* out = rows.data + (i * (rows.depth + 1) + rows.depth - (i - j)) * kBlock;
    std::fill_n(out, kBlock, 0.0F);
    if (j < 0) continue;
    const Index below = (i - j) * kWidth;  // row of the tile column where the block begins
    const double* tile = a + j * s.tile();
    for (Index c = 0; c < kWidth; ++c) {
      const Index from = std::max<Index>(0, c - below),
                  to = std::min(kWidth, s.reach + c + 1 - below);
      const double factor = scale[j * kWidth + c];
      for (Index r = from; r < to; ++r)
        out[c * kWidth + r] = float(tile[c * s.reach + below + r] * factor * scale[i * kWidth + r]);
    }
  }
  float* diagonal = rows.block(i, i);
  for (Index r = 0; r < kWidth; ++r)
    diagonal[r * (kWidth + 1)] = i * kWidth + r < s.n ? float(1.0 + shift) : 1.0F;
}

class LowFactor {
 public:
  explicit LowFactor(const Rows& rows) : rows_(rows) {}

  /// Returns status.
  Index run() {
    for (Index j = 0; j < rows_.blocks; ++j) {
      const Index below = std::min(rows_.depth, rows_.blocks - 1 - j);
      parallel_for(below + 1, [&](Index t) { update(j + t, j); });
      if (const Index order = diagonal(j); order > 0) return j * kWidth + order;
      parallel_for(below, [&](Index t) {
        cblas_strsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, kInt, kInt,
                    1.0F, rows_.block(j, j), kInt, rows_.block(j + 1 + t, j), kInt);
      });
    }
    return 0;
  }

 private:
  /// Block (i, j) -= what the block columns before j leave.
  void update(Index i, Index j) const {
    const Index first = rows_.first(i), depth = (j - first) * kWidth;
    if (depth <= 0) return;
    if (i == j)
      cblas_ssyrk(CblasColMajor, CblasLower, CblasNoTrans, kInt, as_int(depth), -1.0F,
                  rows_.block(j, first), kInt, 1.0F, rows_.block(j, j), kInt);
    else
      cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, kInt, kInt, as_int(depth), -1.0F,
                  rows_.block(i, first), kInt, rows_.block(j, first), kInt, 1.0F, rows_.block(i, j),
                  kInt);
  }
  [[nodiscard]] Index diagonal(Index j) const {
    float* block = rows_.block(j, j);
    const int info = LAPACKE_spotrf_work(LAPACK_COL_MAJOR, 'L', kInt, block, kInt);
    if (info > 0) return info;
    for (Index c = 0; c < kWidth; ++c)
      if (const float pivot = block[c * (kWidth + 1)]; !(std::isfinite(pivot) && pivot > 0))
        return c + 1;
    return 0;
  }

  const Rows rows_;
};

/// Blocks of a block row that one task of a solve takes.
constexpr Index kGroup = 16;

/// L y = b and L^T x = y for `nrhs` right-hand sides, single precision, row-major.
class LowSolve {
 public:
  LowSolve(const Rows& rows, Index nrhs, float* x, float* partial)
      : rows_(rows), nrhs_(nrhs), x_(x), partial_(partial) {}

  void forward() const {
    for (Index i = 0; i < rows_.blocks; ++i) {
      const Index first = rows_.first(i), count = i - first, tasks = ceil_div(count, kGroup);
      const auto product = [&](Index task, float beta, float alpha, float* out) {
        const Index from = first + task * kGroup, to = std::min(i, from + kGroup);
        times(i, from, to, alpha, beta, out);
      };
      if (tasks == 1) product(0, 1.0F, -1.0F, at(i));
      if (tasks > 1) {
        parallel_for(tasks,
                     [&](Index t) { product(t, 0.0F, 1.0F, partial_ + t * kWidth * nrhs_); });
        for (Index t = 0; t < tasks; ++t)
          for (Index e = 0; e < kWidth * nrhs_; ++e) at(i)[e] -= partial_[t * kWidth * nrhs_ + e];
      }
      diagonal(i, CblasNoTrans);
    }
  }
  void backward() const {
    for (Index i = rows_.blocks - 1; i >= 0; --i) {
      diagonal(i, CblasTrans);
      const Index first = rows_.first(i), count = i - first;
      parallel_for(ceil_div(count, kGroup), [&](Index task) {
        const Index from = first + task * kGroup, to = std::min(i, from + kGroup);
        transposed_times(i, from, to);
      });
    }
  }

 private:
  [[nodiscard]] float* at(Index i) const { return x_ + i * kWidth * nrhs_; }
  /// out := beta out + alpha (blocks from .. to - 1 of block row i) x.
  void times(Index i, Index from, Index to, float alpha, float beta, float* out) const {
    const int depth = as_int((to - from) * kWidth), v = as_int(nrhs_);
    if (nrhs_ == 1)
      cblas_sgemv(CblasColMajor, CblasNoTrans, kInt, depth, alpha, rows_.block(i, from), kInt,
                  at(from), 1, beta, out, 1);
    else
      cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, v, kInt, depth, alpha, at(from), v,
                  rows_.block(i, from), kInt, beta, out, v);
  }
  /// x of those blocks -= their transposes times x of block i.
  void transposed_times(Index i, Index from, Index to) const {
    const int depth = as_int((to - from) * kWidth), v = as_int(nrhs_);
    if (nrhs_ == 1)
      cblas_sgemv(CblasColMajor, CblasTrans, kInt, depth, -1.0F, rows_.block(i, from), kInt, at(i),
                  1, 1.0F, at(from), 1);
    else
      cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, v, depth, kInt, -1.0F, at(i), v,
                  rows_.block(i, from), kInt, 1.0F, at(from), v);
  }
  void diagonal(Index i, CBLAS_TRANSPOSE transpose) const {
    if (nrhs_ == 1)
      cblas_strsv(CblasColMajor, CblasLower, transpose, CblasNonUnit, kInt, rows_.block(i, i), kInt,
                  at(i), 1);
    else  // row-major: X^T L^T = B^T
      cblas_strsm(CblasColMajor, CblasRight, CblasLower,
                  transpose == CblasNoTrans ? CblasTrans : CblasNoTrans, CblasNonUnit,
                  as_int(nrhs_), kInt, 1.0F, rows_.block(i, i), kInt, at(i), as_int(nrhs_));
  }

  const Rows rows_;
  const Index nrhs_;
  float *x_, *partial_;
};

constexpr Index kPiece = 4096;  // rows of a vector at a time

/// Floats of the vectors of a solve, and of its partial products.
Index solve_floats(const BandShape& s, Index nrhs) {
  const Index tasks = ceil_div(ceil_div(s.reach, kWidth), kGroup);
  return (s.padded() + tasks * kWidth) * nrhs;
}

}  // namespace

Index band_low_words(Cpu, BandShape s) {
  return s.tiles() * (ceil_div(s.reach, kWidth) + 1) * kBlock / 2;
}

Index band_low_scratch(Cpu, BandShape s, Index nrhs) {
  return ceil_div(solve_floats(s, nrhs), Index(2)) + (ceil_div(s.padded(), kPiece) + 2) * nrhs;
}

void band_low_load(const Stream<Cpu>& stream, BandShape s, View<const double, Cpu> a, double shift,
                   View<double, Cpu> scale, View<Word, Cpu> low, View<Index, Cpu> status,
                   View<Word, Cpu>) {
  stream.run([=] {
    std::atomic<Index> bad = kNone;
    parallel_ranges(s.padded(), kPiece, [&](Index from, Index to) {
      for (Index j = from; j < to; ++j) {
        const double entry = j < s.n ? a.data[j * s.column()] : 1.0;
        const bool usable = entry > 0 && std::isfinite(entry);
        const double factor = usable ? 1.0 / std::sqrt(entry) : 1.0;
        if (!usable || !std::isnormal(factor)) lower(bad, j + 1);
        scale.data[j] = factor;
      }
    });
    status.data[0] = bad == kNone ? 0 : bad.load();
    const Rows rows(s, low.data);
    parallel_for(rows.blocks, [&](Index i) { load_row(s, rows, i, a.data, shift, scale.data); });
  });
}

void band_low_factor(const Stream<Cpu>& stream, BandShape s, View<Word, Cpu> low,
                     View<Index, Cpu> status, View<Word, Cpu>) {
  stream.run([=] { status.data[0] = LowFactor(Rows(s, low.data)).run(); });
}

void band_low_diagonal(const Stream<Cpu>& stream, BandShape s, View<const Word, Cpu> low,
                       View<double, Cpu> out) {
  stream.run([=] {
    const Rows rows(s, low.data);
    for (Index i = 0; i < s.padded(); ++i)
      out.data[i] = rows.block(i / kWidth, i / kWidth)[i % kWidth * (kWidth + 1)];
  });
}

void band_low_tail(const Stream<Cpu>& stream, BandShape s, View<const Word, Cpu> low,
                   View<const double, Cpu> scale, Index first, View<double, Cpu> out) {
  stream.run([=] {
    const Rows rows(s, low.data);
    const Index tail = (s.tiles() - first) * kWidth, top = first * kWidth;
    parallel_for(tail, [&](Index r) {
      double* const to = out.data + r * tail;
      std::fill_n(to, tail, 0.0);
      const Index i = first + r / kWidth, from = std::max(first, rows.first(i)) * kWidth - top;
      for (Index c = from; c <= r; ++c)
        to[c] = double(rows.block(i, first + c / kWidth)[c % kWidth * kWidth + r % kWidth]) /
                scale.data[top + r];
    });
  });
}

void band_low_solve(const Stream<Cpu>& stream, BandShape s, View<const Word, Cpu> low,
                    View<const double, Cpu> scale, Index nrhs, View<const double, Cpu> r,
                    View<double, Cpu> z, View<Word, Cpu> scratch) {
  if (nrhs == 0 || s.tiles() == 0) return;
  stream.run([=] {
    const Index pieces = ceil_div(s.padded(), kPiece);
    double* const most = reinterpret_cast<double*>(scratch.data);  // of each piece
    double *const first = most + pieces * nrhs, *const second = first + nrhs;
    float* const x = reinterpret_cast<float*>(scratch.data + (pieces + 2) * nrhs);
    const auto each_row = [&](auto&& work) {
      parallel_for(pieces, [&](Index piece) {
        for (Index i = piece * kPiece; i < std::min(s.padded(), (piece + 1) * kPiece); ++i)
          for (Index v = 0; v < nrhs; ++v) work(piece, i, v);
      });
    };
    // Binary exponents of the entries of S r; a NaN or an infinity is left to spread.
    std::fill_n(most, pieces * nrhs, -std::numeric_limits<double>::infinity());
    each_row([&](Index piece, Index i, Index v) {
      const double value = r.data[i * nrhs + v];
      if (value == 0 || !std::isfinite(value)) return;
      double& found = most[piece * nrhs + v];
      found = std::max(found, double(std::ilogb(value) + std::ilogb(scale.data[i])));
    });
    for (Index v = 0; v < nrhs; ++v) {
      double largest = most[v];
      for (Index piece = 1; piece < pieces; ++piece)
        largest = std::max(largest, most[piece * nrhs + v]);
      // Halves of the power of two: neither leaves the range of double.
      const int exponent = std::isfinite(largest) ? int(largest) : 0, half = exponent / 2;
      first[v] = std::ldexp(1.0, half);
      second[v] = std::ldexp(1.0, exponent - half);
    }
    each_row([&](Index, Index i, Index v) {
      x[i * nrhs + v] = float(r.data[i * nrhs + v] / first[v] * scale.data[i] / second[v]);
    });
    const LowSolve solve(Rows(s, low.data), nrhs, x, x + s.padded() * nrhs);
    solve.forward();
    solve.backward();
    each_row([&](Index, Index i, Index v) {
      const double value = double(x[i * nrhs + v]) * first[v] * scale.data[i] * second[v];
      z.data[i * nrhs + v] = i < s.n ? value : 0.0;
    });
  });
}

}  // namespace terrace::band
