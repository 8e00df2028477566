// Plain matrices as packed rows in the memory of a backend.
#pragma once
#include "kernels/base/buffer.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/bits.hpp"

namespace terrace::test {

/// Packed rows with junk beside them, on the backend.
template <class B>
struct Packed {
  Index stride;
  std::vector<Word> host;
  Buffer<Word, B> device;
  Stream<B> lane;

  Packed(const Stream<B>& stream, const PlainBits& plain, Index word, Index row_stride)
      : stride(row_stride), host(std::size_t(plain.rows * row_stride)), lane(stream) {
    for (std::size_t x = 0; x < host.size(); ++x) host[x] = random_word(99, Index(x), 1);
    const Index words = ceil_div(plain.columns, 64);
    for (Index i = 0; i < plain.rows; ++i) {
      const auto row = pack_row(plain, i, words);
      std::copy(row.begin(), row.end(), host.begin() + i * stride + word);
    }
    device = Buffer<Word, B>(Index(host.size()));
    upload(lane, device.view(), host.data());
    lane.synchronize();
  }
  std::vector<Word> back() const {
    std::vector<Word> result(host.size());
    download(lane, result.data(), device.view());
    lane.synchronize();
    return result;
  }
  gf2::BitRows<Word, B> rows(Index count) const { return {device.data(), stride, count, nullptr}; }
};

}  // namespace terrace::test
