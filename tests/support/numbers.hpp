// Vectors of numbers to a backend and back.
#pragma once
#include <vector>

#include "kernels/base/buffer.hpp"
#include "kernels/base/random.hpp"

namespace terrace::test {

inline std::vector<double> random_numbers(Index size, Word seed) {
  std::vector<double> v(static_cast<std::size_t>(size));
  for (Index i = 0; i < size; ++i) v[std::size_t(i)] = random_uniform(seed, i, 1);
  return v;
}
template <class B, class T>
Buffer<T, B> put(const Stream<B>& lane, const std::vector<T>& host) {
  Buffer<T, B> there{Index(host.size())};
  upload(lane, there.view(), host.data());
  lane.synchronize();
  return there;
}
template <class B, class T>
std::vector<T> get(const Stream<B>& lane, const Buffer<T, B>& there) {
  std::vector<T> host(std::size_t(there.size()));
  download(lane, host.data(), there.view());
  lane.synchronize();
  return host;
}

}  // namespace terrace::test
