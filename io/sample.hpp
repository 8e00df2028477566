// Files for measuring: what `terrace bench io` reads, and the rates it compares with.
#pragma once
#include <string>
#include <vector>

#include "distrib/control.hpp"
#include "io/location.hpp"

namespace terrace::io {

/// What a sample file may be: contiguous, chunked, gzip, column-major, band, band-upper, float32,
/// int32, words, bytes, plain.
const std::vector<std::string>& sample_layouts();

struct Sample {
  std::string layout;
  Location location;
  Index rows = 0, columns = 0;  ///< of the matrix; a band: half-bandwidth + 1, n
  Index bytes = 0;              ///< of the dataset, inflated
};
/// Writes a matrix of about `bytes` bytes; A[i, j] = sample_value(i, j), bits sample_bit(i, j).
/// Collective; rank 0 writes. Throws Error(resources).
Sample write_sample(const Control& control, const std::string& file, const std::string& layout,
                    Index bytes);
/// A whole number between 0 and 65,535: two of the eight bytes carry information.
double sample_value(Index i, Index j);
bool sample_bit(Index i, Index j);

/// Empties the page cache of the file. Collective.
void drop_cache(const Control& control, const std::string& file);
/// Each rank reads its own contiguous part of the file with pread(), 8 MiB at a time, in one
/// thread; this rank's seconds.
double raw_read_seconds(const Control& control, const std::string& file);
/// Each rank's threads read and inflate its share of the chunks, and do nothing more; this rank's
/// seconds. For layout gzip.
double raw_inflate_seconds(const Control& control, const Sample& sample);

}  // namespace terrace::io
