// Matrices from HDF5, read in slices: every rank reads only the rows or columns it names, in
// portions of bounded size, one ahead of the sink (io/reading.hpp).
//
// open_*() and read() are collective and throw agreed Errors: Exit::input with the file, the
// dataset and the position (zero-based row, column) for NaN, Inf, bits other than 0 and 1, wrong
// shapes. The pieces handed to a sink come in order, each a run of whole rows (or columns) of one
// of the requested ranges; `position` counts within the concatenation of the requested ranges,
// which for BlockCyclic::ranges(rank) is the slot.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distrib/control.hpp"
#include "distrib/layout.hpp"
#include "io/location.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace::io {

template <class T>
using Sink = std::function<void(Index position, Index count, const T* data)>;

/// What an input without a path may be: a matrix is 2-D where the file has a 2-D dataset.
enum class Role { matrix, right_hand_side };

/// Bytes that one rank reads or writes at once (TERRACE_IO_PIECE_BYTES, 16 MiB); a read or a write
/// of more takes two pieces, and one more where columns are turned into rows.
Index piece_bytes();

struct InputFile;  // an open HDF5 file and dataset

/// 2-D float64 (other numbers converted), or 1-D (or a MATLAB vector as a right-hand side) taken as
/// one column.
class DenseInput {
 public:
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] bool is_vector() const { return is_vector_; }
  [[nodiscard]] const Location& location() const { return location_; }
  /// Rows of `ranges` of this rank (any number, disjoint or not, other ranks' may overlap).
  /// data: count x columns(), row-major. Refuses NaN and Inf.
  void read(const Control& control, std::span<const Range> ranges, const Sink<double>& sink) const;

 private:
  friend DenseInput open_dense(const Control&, const Location&, Role);
  Index rows_ = 0, columns_ = 0;
  bool is_vector_ = false, column_major_ = false;
  Location location_;
  std::shared_ptr<InputFile> file_;
};
DenseInput open_dense(const Control& control, const Location& location, Role role = Role::matrix);

/// Symmetric band: (m+1) x n as SciPy's solveh_banded, lower or upper.
class BandInput {
 public:
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Index half_bandwidth() const { return half_bandwidth_; }  ///< may exceed n - 1
  [[nodiscard]] const Location& location() const { return location_; }
  /// Columns of `ranges`. data: count columns of m+1 doubles, element d of column j is A[j+d, j];
  /// zero where j+d >= n, whatever the file holds there. Refuses NaN and Inf inside the matrix.
  void read(const Control& control, std::span<const Range> ranges, const Sink<double>& sink) const;

 private:
  friend BandInput open_band(const Control&, const Location&, bool);
  Index n_ = 0, half_bandwidth_ = 0;
  bool upper_ = false;
  Location location_;
  std::shared_ptr<InputFile> file_;
};
/// `assume`: the user says it is a band matrix (--format band), the attribute may be absent.
BandInput open_band(const Control& control, const Location& location, bool assume = false);

/// Group with data, indices, indptr, attribute shape.
class CsrInput {
 public:
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] Index nonzeros() const { return nonzeros_; }
  [[nodiscard]] const Location& location() const { return location_; }
  /// indptr[first .. first + count], count + 1 values. Collective. Checked to be monotone.
  [[nodiscard]] std::vector<Index> row_pointers(const Control& control, Range rows) const;
  /// Entries [range.first, range.end()) as stored, unchecked; positions count from range.first.
  /// Collective.
  void entries(const Control& control, Range range, const Sink<Index>& columns,
               const Sink<double>& values) const;
  /// Those of rows `rows`. Checked: column in range, value finite (position named). Collective.
  void entries(const Control& control, Range rows, LargeVector<Index>& columns,
               LargeVector<double>& values) const;

 private:
  friend CsrInput open_csr(const Control&, const Location&);
  Index rows_ = 0, columns_ = 0, nonzeros_ = 0;
  Location location_;
  std::shared_ptr<InputFile> file_;
};
CsrInput open_csr(const Control& control, const Location& location);

/// Bit matrix in any of its file forms, delivered packed in words.
class BitInput {
 public:
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] Index words() const { return ceil_div(columns_, 64); }  ///< words a row
  [[nodiscard]] bool is_vector() const { return is_vector_; }
  [[nodiscard]] const Location& location() const { return location_; }
  /// data: count x words(), unused bits of the last word zero.
  void read(const Control& control, std::span<const Range> ranges, const Sink<Word>& sink) const;

 private:
  friend BitInput open_bits(const Control&, const Location&, Role);
  enum class Form { words, bytes_little, bytes_big, plain };
  Index rows_ = 0, columns_ = 0;
  bool is_vector_ = false, column_major_ = false;
  Form form_ = Form::words;
  Location location_;
  std::shared_ptr<InputFile> file_;
};
BitInput open_bits(const Control& control, const Location& location, Role role = Role::matrix);

/// All of a 1-D dataset of integers, on every rank; 64-bit unsigned values keep their bits.
std::vector<Index> read_integers(const Control& control, const Location& location);

enum class Kind { dense, band, csr, bits };
/// Kind of the object at `location` (of the only fitting one when it names no path). `real`: where
/// real numbers are wanted, whole ones that are not said to be bits are a dense matrix.
Kind kind_of(const Control& control, const Location& location, bool real = false);

}  // namespace terrace::io
