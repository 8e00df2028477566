#include "io/filters.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "kernels/base/error.hpp"

namespace terrace::io {

namespace {

void undo_shuffle(const char* from, char* to, Index bytes, Index element) {
  const Index count = bytes / element;
  for (Index b = 0; b < element; ++b)
    for (Index i = 0; i < count; ++i) to[i * element + b] = from[b * count + i];
  std::memcpy(to + count * element, from + count * element, std::size_t(bytes - count * element));
}

using Bytes16 = unsigned char __attribute__((vector_size(16)));

/// a0 b0 a1 b1 ..., in two halves.
void interleave(const Bytes16& a, const Bytes16& b, Bytes16& low, Bytes16& high) {
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high =
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/// The usual one: eight streams of bytes become one of 8-byte elements, 16 at a time in three steps
/// that each interleave stream s with stream s + 4.
void undo_shuffle_8(const char* from, char* to, Index bytes) {
  const Index count = bytes / 8;
  Index i = 0;
  for (; i + 16 <= count; i += 16) {
    Bytes16 s[8], t[8];
    for (int b = 0; b < 8; ++b) std::memcpy(&s[b], from + b * count + i, 16);
    for (int b = 0; b < 4; ++b) interleave(s[b], s[b + 4], t[2 * b], t[2 * b + 1]);
    for (int b = 0; b < 4; ++b) interleave(t[b], t[b + 4], s[2 * b], s[2 * b + 1]);
    for (int b = 0; b < 4; ++b) interleave(s[b], s[b + 4], t[2 * b], t[2 * b + 1]);
    std::memcpy(to + i * 8, t, sizeof t);
  }
  for (; i < count; ++i)
    for (int b = 0; b < 8; ++b) to[i * 8 + b] = from[b * count + i];
  std::memcpy(to + count * 8, from + count * 8, std::size_t(bytes - count * 8));
}

constexpr Index fletcher_bytes = 4;

/// Of pairs of bytes, the first of which counts more, and a last one alone.
std::uint32_t fletcher32(const char* data, Index bytes) {
  const auto* at = reinterpret_cast<const unsigned char*>(data);
  std::uint32_t low = 0, high = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  for (Index pairs = bytes / 2; pairs > 0;) {
    const Index some = std::min<Index>(pairs, 360);  // neither sum overflows
    for (Index k = 0; k < some; ++k, at += 2) high += low += std::uint32_t(at[0] << 8 | at[1]);
    low = fold(low), high = fold(high);
    pairs -= some;
  }
  if (bytes % 2 != 0) {
    high += low += std::uint32_t(*at << 8);
    low = fold(low), high = fold(high);
  }
  return fold(high) << 16 | fold(low);
}

/// Takes the sum off the end; false where it is wrong. HDF5 before 1.6.3 turned the bytes of its
/// halves.
bool undo_fletcher(LargeVector<char>& raw) {
  const Index bytes = Index(raw.size()) - fletcher_bytes;
  if (bytes < 0) return false;
  const auto* const end = reinterpret_cast<const unsigned char*>(raw.data()) + bytes;
  std::uint32_t stored = 0;
  for (int k = 0; k < 4; ++k) stored |= std::uint32_t(end[k]) << 8 * k;
  const std::uint32_t old = (stored & 0x00ff00ff) << 8 | (stored >> 8 & 0x00ff00ff);
  const std::uint32_t sum = fletcher32(raw.data(), bytes);
  raw.resize(std::size_t(bytes));
  return sum == stored || sum == old;
}

}  // namespace

std::optional<Index> inflated(std::span<const char> from, std::span<char> to) {
  struct Free {
    void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
  };
  thread_local const std::unique_ptr<libdeflate_decompressor, Free> mine(
      libdeflate_alloc_decompressor());
  if (!mine) throw std::bad_alloc();
  std::size_t got = 0;
  if (libdeflate_zlib_decompress(mine.get(), from.data(), from.size(), to.data(), to.size(),
                                 &got) != LIBDEFLATE_SUCCESS)
    return std::nullopt;
  return Index(got);
}

void unfilter(const std::vector<Filter>& filters, unsigned mask, Index element_bytes,
              LargeVector<char>& raw, LargeVector<char>& spare, Index chunk_bytes,
              const std::string& where) {
  const auto damaged = [&] {
    return Error(Exit::input, "a filtered chunk is damaged; " + where + "; write the file again");
  };
  const Index sums = std::count(filters.begin(), filters.end(), Filter::fletcher);
  for (std::size_t k = filters.size(); k-- > 0;) {
    if (k < 32 && (mask >> k) & 1) continue;
    if (filters[k] == Filter::fletcher) {
      if (!undo_fletcher(raw)) throw damaged();
      continue;
    }
    if (filters[k] == Filter::shuffle) {
      spare.resize(raw.size());
      if (element_bytes == 8)
        undo_shuffle_8(raw.data(), spare.data(), Index(raw.size()));
      else
        undo_shuffle(raw.data(), spare.data(), Index(raw.size()), element_bytes);
    } else {
      spare.resize(std::size_t(chunk_bytes + sums * fletcher_bytes));
      const std::optional<Index> got = inflated(raw, spare);
      if (!got) throw damaged();
      spare.resize(std::size_t(*got));
    }
    raw.swap(spare);
  }
  if (Index(raw.size()) != chunk_bytes) throw damaged();
}

}  // namespace terrace::io
