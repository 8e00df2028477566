#include "kernels/dense/emulated.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"

namespace terrace::dense::emulated {
namespace {

__extension__ using Wide = __int128;

int nonnegative(Wide x, int p) { return int((x % p + p) % p); }
/// -p / 2 < result <= p / 2; 128 of 256 becomes -128.
int symmetric(Wide x, int p) {
  const int r = nonnegative(x, p);
  return 2 * r > p || r == 128 ? r - p : r;
}
int inverse(int x, int p) {
  for (int y = 1; y < p; ++y)
    if (x * y % p == 1) return y;
  return 1;  // p = 1
}

/// `digits` 16-bit digits of w + bias, times factor, modulo p. The top digit is near `top`.
Digits make_digits(int digits, Wide bias, int factor, int top, int p) {
  Digits result{};
  Wide middle = 0, power = factor;
  for (int k = 0; k < digits; ++k) {
    const int weight = symmetric(power, p);
    result.weights |= std::uint32_t(weight & 255) << 8 * k;
    middle -= Wide(weight) * (k + 1 < digits ? 32768 : top);
    power = nonnegative(power << 16, p);
  }
  // Congruent to -factor bias and as near as can be to what centres the sum.
  result.start = int(middle + symmetric(-Wide(factor) * bias - middle, p));
  return result;
}

}  // namespace

Scheme make_scheme(int count) {
  if (count < least_moduli || count > most_moduli)
    throw Error(Exit::usage, "the number of moduli is 6 to 16");
  Scheme s{};
  s.count = count;
  s.groups = (count + 3) / 4;
  long double product = 1;
  for (int i = 0; i < count; ++i) product *= moduli[i];
  s.mantissa = std::frexp(double(product), &s.exponent) * 2;
  --s.exponent;
  s.bound = std::min(double(std::sqrt(product / 2 * (1 - 0x1p-10L))), 0x1p60);
  for (int i = 0; i < count; ++i) {
    const int p = moduli[i];
    int rest = 1;
    for (int j = 0; j < count; ++j)
      if (j != i) rest = rest * moduli[j] % p;
    const int factor = inverse(rest, p);
    s.moduli[i] = {p, 1.0F / float(p), make_digits(4, Wide(1) << 62, factor, 1 << 14, p),
                   make_digits(4, Wide(1) << 62, 1, 1 << 14, p),
                   std::int32_t(((std::int64_t(1) << 38) + p / 2) / p)};
  }
  for (int i = 0; i < count; i += 2) {
    const int other = i + 1 < count ? moduli[i + 1] : 256, both = moduli[i] * other;
    const Wide all = ((Wide(1) << 87) + both / 2) / both;
    s.pair[i / 2] = {std::uint32_t(other) | std::uint32_t(moduli[i]) << 16, std::int32_t(all >> 41),
                     std::int32_t(all >> 10 & 0x7fffffff), std::int32_t(all & 1023)};
  }
  return s;
}

double room_for(const Scheme& s, Index k) { return s.bound - std::sqrt(double(k)) / 2; }

}  // namespace terrace::dense::emulated
