// Emulated products on the CPU: the arithmetic of the GPU, one number at a time, for tests and
// small matrices; k s multiplications of bytes an element.
#include "kernels/dense/emulated.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernels/base/error.hpp"

namespace terrace::dense::emulated {
namespace {

double power_of_two(int e) { return std::bit_cast<double>(Word(e + 1023) << 52); }

/// exponents[i] of vector i of k numbers in[i + q ld]; eight interleaved sums.
void find_exponents(Index count, Index k, const double* in, Index ld, double room, int* exponents) {
  for (Index i = 0; i < count; ++i) {
    double largest = 0;
    bool finite = true;
    for (Index q = 0; q < k; ++q) {
      finite = finite && std::isfinite(in[i + q * ld]);
      largest = std::fmax(largest, std::abs(in[i + q * ld]));
    }
    exponents[i] = finite ? 0 : not_finite;
    if (!finite || largest == 0) continue;
    const int shift = largest > 0x1p400 || largest < 0x1p-400 ? std::ilogb(largest) : 0;
    double sums[8] = {};
    for (Index q = 0; q < k; ++q) {
      const double d = std::scalbn(in[i + q * ld], -shift);
      sums[q % 8] = std::fma(d, d, sums[q % 8]);
    }
    for (int g = 1; g < 8; ++g) sums[0] += sums[g];
    exponents[i] = std::ilogb(room / (std::sqrt(sums[0]) * slack)) - shift;
  }
}

std::int8_t low_byte(std::int32_t x) { return std::int8_t(std::uint8_t(x)); }
/// t - p round(t / p) as a byte.
std::int8_t remainder_byte(std::int32_t t, const Modulus& m) {
  const float q = std::fma(float(t), m.inverse, 0x1.8p23F) - 0x1.8p23F;
  return low_byte(t - m.p * std::int32_t(q));
}
std::int8_t residue(Word w, const Digits& d, const Modulus& m) {
  std::int32_t t = d.start;
  for (int k = 0; k < 4; ++k)
    t += low_byte(std::int32_t(d.weights >> 8 * k)) * std::int32_t(w >> 16 * k & 65535);
  return remainder_byte(t, m);
}

/// Residues [modulus][i][q] of count vectors of k numbers.
void find_residues(const Scheme& s, bool left, Index count, Index k, const double* in, Index ld,
                   const int* exponents, std::int8_t* out) {
  for (Index i = 0; i < count; ++i)
    for (Index q = 0; q < k; ++q) {
      const int e = exponents[i], half = e >> 1;
      const double d =
          e == not_finite ? 0 : in[i + q * ld] * power_of_two(half) * power_of_two(e - half);
      const Word w = Word(std::llrint(d)) + (Word(1) << 62);
      for (int p = 0; p < s.count; ++p)
        out[(p * count + i) * k + q] =
            residue(w, left ? s.moduli[p].left : s.moduli[p].right, s.moduli[p]);
    }
}

/// 2^64 x / P from the residues of f_i x.
double fraction(const std::int8_t (&r)[most_moduli], const Scheme& s) {
  std::int64_t high = 0, middle = 1 << 12;
  std::int32_t low = 0;
  for (int g = 0; g < most_moduli / 2; ++g) {
    const Pair& pair = s.pair[g];
    const std::int32_t f = r[2 * g] * std::int32_t(pair.weights & 65535) +
                           r[2 * g + 1] * std::int32_t(pair.weights >> 16);
    high += std::int64_t(f) * pair.high;
    middle += std::int64_t(f) * pair.middle;
    low += f * pair.low;
  }
  return double(std::int64_t((Word(high) << 18) + Word((middle + (low >> 10)) >> 13)));
}

double subtract(double c, double fraction, double mantissa, int exponent) {
  const int e = std::min(std::max(exponent, -2044), 2046), half = std::abs(e) <= 1022 ? 0 : e >> 1;
  return std::fma(-(fraction * power_of_two(half)), mantissa * power_of_two(e - half), c);
}

/// Of the workspace: N's exponents and residues, then Y's.
struct Parts {
  int *row_exponents, *column_exponents;
  std::int8_t *rows, *columns;
  Parts(const Shape& s, View<std::byte, Cpu> workspace) {
    rows = reinterpret_cast<std::int8_t*>(workspace.data) + s.m * Index(sizeof(int));
    row_exponents = reinterpret_cast<int*>(workspace.data);
    const Index at = round_up(s.m * (Index(sizeof(int)) + s.k * s.moduli), Index(sizeof(int)));
    column_exponents = reinterpret_cast<int*>(workspace.data + at);
    columns = reinterpret_cast<std::int8_t*>(column_exponents + s.n);
  }
};

}  // namespace

bool available(Cpu) { return true; }

Index workspace_bytes(Cpu, const Shape& shape) {
  const Index each = Index(sizeof(int)) + shape.k * shape.moduli;
  return round_up(shape.m * each, Index(sizeof(int))) + shape.n * each;
}

template <>
void set_left(const Stream<Cpu>& stream, const Shape& shape, View<const double, Cpu> left, Index ld,
              View<std::byte, Cpu> workspace) {
  const Scheme s = make_scheme(shape.moduli);
  if (shape.k > most_inner) throw Error(Exit::internal, "too many products for 32-bit sums");
  if (shape.m <= 0 || shape.k <= 0) return;
  stream.run([=] {
    const Parts p(shape, workspace);
    find_exponents(shape.m, shape.k, left.data, ld, room_for(s, shape.k), p.row_exponents);
    find_residues(s, true, shape.m, shape.k, left.data, ld, p.row_exponents, p.rows);
  });
}

template <>
void subtract_product(const Stream<Cpu>& stream, const Shape& shape, View<const double, Cpu> right,
                      Index ld, View<double, Cpu> a, Index lda, View<std::byte, Cpu> workspace) {
  const Scheme s = make_scheme(shape.moduli);
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) return;
  stream.run([=] {
    const Index m = shape.m, n = shape.n, k = shape.k;
    const Parts parts(shape, workspace);
    find_exponents(n, k, right.data, ld, room_for(s, k), parts.column_exponents);
    find_residues(s, false, n, k, right.data, ld, parts.column_exponents, parts.columns);
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        double& out = a.data[i * lda + j];
        const int row = parts.row_exponents[i], column = parts.column_exponents[j];
        if (row == not_finite || column == not_finite) {
          out = std::numeric_limits<double>::quiet_NaN();
          continue;
        }
        std::int8_t r[most_moduli] = {};
        for (int p = 0; p < s.count; ++p) {
          const std::int8_t* const v = parts.rows + (p * m + i) * k;
          const std::int8_t* const w = parts.columns + (p * n + j) * k;
          std::int32_t sum = 0;
          for (Index q = 0; q < k; ++q) sum += v[q] * w[q];
          const Modulus& modulus = s.moduli[p];
          const std::int64_t half = std::int64_t(1) << 37;
          r[p] = low_byte(sum -
                          modulus.p *
                              std::int32_t((sum * std::int64_t(modulus.reciprocal) + half) >> 38));
        }
        out = subtract(out, fraction(r, s), s.mantissa, s.exponent - 64 - row - column);
      }
  });
}

}  // namespace terrace::dense::emulated
