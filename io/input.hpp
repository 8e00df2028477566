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
#include "io/rereading.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace::io {

template <class T>
using Sink = std::function<void(Index position, Index count, const T* data)>;

/// What an input without a path may be: a matrix is 2-D where the file has a 2-D dataset. Of several
/// that fit, a matrix is the one named A, a right-hand side b, a start x.
enum class Role { matrix, right_hand_side, start, near_null_space };

/// What is looked for: the role, and what an object without a path must have to be a candidate.
struct Wanted {
  Role role = Role::matrix;
  bool square = false;
  Index rows = -1;           ///< or any
  std::string besides = {};  ///< a path of the same file that is another input
  // NOLINTNEXTLINE(google-explicit-constructor)
  Wanted(Role the_role = Role::matrix) : role(the_role) {}
  [[nodiscard]] static Wanted square_matrix(std::string besides = {}) {
    Wanted wanted;
    wanted.square = true;
    wanted.besides = std::move(besides);
    return wanted;
  }
  [[nodiscard]] static Wanted vectors(Index rows, Role role = Role::right_hand_side) {
    Wanted wanted(role);
    wanted.rows = rows;
    return wanted;
  }
  [[nodiscard]] bool is_matrix() const { return role == Role::matrix; }
};

/// Bytes that one rank reads or writes at once (TERRACE_IO_PIECE_BYTES, 16 MiB); a read or a write
/// of more takes two pieces, and one more where columns are turned into rows.
Index piece_bytes();
/// Large datasets that are written begin at multiples of so many bytes (TERRACE_STRIPE_BYTES); 0:
/// anywhere.
Index stripe_bytes();

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
  /// read() once more, beside other work; or null. Local.
  [[nodiscard]] std::unique_ptr<Rereading> reread(std::span<const Range> ranges) const;

 private:
  friend DenseInput open_dense(const Control&, const Location&, const Wanted&);
  Index rows_ = 0, columns_ = 0;
  bool is_vector_ = false, column_major_ = false;
  Location location_;
  std::shared_ptr<InputFile> file_;
};
DenseInput open_dense(const Control& control, const Location& location, const Wanted& wanted = {});

/// Symmetric band: (m+1) x n as SciPy's solveh_banded, lower or upper; of the lower form also n x
/// (m+1), in column-major order.
class BandInput {
 public:
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Index half_bandwidth() const { return half_bandwidth_; }  ///< may exceed n - 1
  [[nodiscard]] const Location& location() const { return location_; }
  /// Columns of `ranges`. data: count columns of m+1 doubles, element d of column j is A[j+d, j];
  /// zero where j+d >= n, whatever the file holds there. Refuses NaN and Inf inside the matrix.
  void read(const Control& control, std::span<const Range> ranges, const Sink<double>& sink) const;
  /// Whether the file has it by diagonals, as the columns of this rank can be had, too.
  [[nodiscard]] bool by_diagonals() const { return !upper_ && !column_major_; }
  /// The same by diagonals. data: m+1 rows of `count` doubles, row d has A[j+d, j] of the `count`
  /// columns j. Collective.
  void read_diagonals(const Control& control, Range columns, const Sink<double>& sink) const;
  [[nodiscard]] std::unique_ptr<Rereading> reread(std::span<const Range> ranges) const;

 private:
  friend BandInput open_band(const Control&, const Location&, const Wanted&);
  void read_as(const Control& control, std::span<const Range> ranges, bool turned,
               const Sink<double>& sink) const;
  Index n_ = 0, half_bandwidth_ = 0;
  bool upper_ = false, column_major_ = false;
  Location location_;
  std::shared_ptr<InputFile> file_;
};
/// SciPy's default upper form is recognised where neither file nor user says which it is, its first
/// column begins with zeros and the lower form would have a zero on its diagonal.
BandInput open_band(const Control& control, const Location& location, const Wanted& wanted = {});

/// Rows of a sparse matrix: entries start[i] .. start[i + 1] are row i's, as stored.
struct SparseRows {
  LargeVector<Index> start{0};
  LargeVector<Index> columns;
  LargeVector<double> values;
};

struct SparseForm;

/// A group of a CSR, CSC or COO matrix, all of it or one triangle (io/sparse_form.hpp).
class SparseInput {
 public:
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  /// Stored entries, those of the other triangle added; an upper bound for one triangle.
  [[nodiscard]] Index nonzeros() const { return nonzeros_; }
  /// "csr", "csc" or "coo".
  [[nodiscard]] const char* layout() const;
  [[nodiscard]] bool is_triangle() const;
  [[nodiscard]] const Location& location() const { return location_; }
  /// Rows can be had piece by piece; else each call reads all of the file.
  [[nodiscard]] bool by_rows() const;
  /// What is handed on is the transposed matrix: the caller tests symmetry.
  [[nodiscard]] bool transposed() const { return transposed_; }
  /// Entries before rows first .. first + count, count + 1 values. Collective; the ranks' ranges
  /// ascend with the rank and do not overlap. Pointers in the file are checked to be monotone.
  [[nodiscard]] LargeVector<Index> row_pointers(const Control& control, Range rows) const;
  /// entries() hands on what a row is made of: by_rows(), and nothing to convert.
  [[nodiscard]] bool streams() const;
  /// row_pointers(), where it streams(), in pieces that ascend; positions count from rows.first. Wrong ones
  /// are refused when all are handed on. Collective.
  void row_pointers(const Control& control, Range rows, const Sink<Index>& sink) const;
  /// Entries [range.first, range.end()) as stored, unchecked; positions count from range.first. The
  /// columns go before the values. Collective.
  void entries(const Control& control, Range range, const Sink<Index>& columns,
               const Sink<double>& values) const;
  /// Rows `rows`; as row_pointers(). Checked: indices in range, values finite (position named),
  /// entries in the triangle that is stored.
  void read(const Control& control, Range rows, SparseRows& out) const;
  /// As BitInput::read(): one for each odd value, duplicates added. Not by_rows(): the rows of
  /// `ranges` are put together in the memory of their rank.
  void read_bits(const Control& control, std::span<const Range> ranges,
                 const Sink<Word>& sink) const;

 private:
  friend SparseInput open_sparse(const Control&, const Location&, const Wanted&, bool);
  Index rows_ = 0, columns_ = 0, nonzeros_ = 0;
  bool transposed_ = false;
  Location location_;
  std::shared_ptr<SparseForm> form_;
  std::shared_ptr<InputFile> file_;
};
/// `symmetric`: the caller tests symmetry, so columns may be handed on as rows.
SparseInput open_sparse(const Control& control, const Location& location, const Wanted& wanted = {},
                        bool symmetric = false);

/// Bit matrix in any of its file forms, delivered packed in words.
class BitInput {
 public:
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] Index words() const { return ceil_div(columns_, 64); }  ///< words per row
  [[nodiscard]] bool is_vector() const { return is_vector_; }
  [[nodiscard]] const Location& location() const { return location_; }
  /// data: count x words(), unused bits of the last word zero.
  void read(const Control& control, std::span<const Range> ranges, const Sink<Word>& sink) const;
  [[nodiscard]] std::unique_ptr<Rereading> reread(std::span<const Range> ranges) const;

 private:
  friend BitInput open_bits(const Control&, const Location&, const Wanted&);
  enum class Form { words, bytes_little, bytes_big, plain, sparse };
  Index rows_ = 0, columns_ = 0;
  bool is_vector_ = false, column_major_ = false;
  Form form_ = Form::words;
  Location location_;
  std::shared_ptr<InputFile> file_;
  SparseInput sparse_;
};
BitInput open_bits(const Control& control, const Location& location, const Wanted& wanted = {});

/// All of a 1-D dataset of integers, on every rank; 64-bit unsigned values keep their bits.
std::vector<Index> read_integers(const Control& control, const Location& location);

enum class Kind { dense, band, sparse, bits };
/// Kind of the object at `location` (of the only fitting one when it names no path). `real`: where
/// real numbers are wanted, whole ones that are not said to be bits are a dense matrix.
Kind kind_of(const Control& control, const Location& location, bool real = false,
             const Wanted& wanted = {});

}  // namespace terrace::io
