// HDF5's filters that are undone here: any thread, without HDF5.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/backend.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace::io {

/// Bytes shuffled, a zlib stream, Fletcher's check sum behind the data.
enum class Filter { shuffle, deflate, fletcher };

/// Bytes that a zlib stream gives, into `to`; none where it is damaged or gives more. Any thread.
std::optional<Index> inflated(std::span<const char> from, std::span<char> to);
/// One chunk in its file form to its elements; `mask` bit k: filter k was left out. `spare` is
/// scratch. Throws Error(input) when it is damaged.
void unfilter(const std::vector<Filter>& filters, unsigned mask, Index element_bytes,
              LargeVector<char>& raw, LargeVector<char>& spare, Index chunk_bytes,
              const std::string& where);

}  // namespace terrace::io
