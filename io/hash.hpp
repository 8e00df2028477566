// Content hash of what a result file holds: a sum over its elements, so that it does not matter
// which rank writes or reads which part.
#pragma once
#include "io/inspect.hpp"
#include "kernels/base/hash.hpp"

namespace terrace::io {

/// Name of the attribute that holds it.
inline constexpr const char* hash_name = "terrace_hash";

/// Names and values of attributes, and the shape.
Word hash_frame(const AnyAttributes& attributes, const std::vector<Index>& dims);

}  // namespace terrace::io
