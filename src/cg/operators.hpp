// Symmetric matrices as conjugate gradients see them: q = A p on row slices.
//
// Each operator owns a contiguous slice of rows and makes the vectors that it multiplies, which
// have room for the entries of other ranks:
//   DenseOperator   all of p, gathered                      8 n^2 / ranks bytes
//   BandOperator    m entries on either side of the slice   8 (m + 1) n / ranks, + the overlap
//   CsrOperator     exactly the entries its columns name    12 nonzeros / ranks
//
// Every member that takes the context is collective.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/context.hpp"
#include "distrib/halo.hpp"
#include "distrib/layout.hpp"
#include "kernels/base/large_vector.hpp"
#include "kernels/cg/multigrid.hpp"
#include "kernels/cg/preconditioner.hpp"
#include "kernels/cg/products.hpp"
#include "src/cg/csr_load.hpp"
#include "src/cg/operand.hpp"

namespace terrace::cg {

/// Zero-based position and the two values that differ.
struct Asymmetry {
  Index row = 0, column = 0;
  double value = 0, transposed = 0;  ///< A[row, column], A[column, row]
};

/// Host and backend bytes of a rank, largest over the ranks.
struct OperatorMemory {
  Index host = 0, backend = 0;
};

/// A = 2^power times the numbers that an operator stores, and what normalise() learnt of these.
struct MatrixScale {
  bool known = false;
  int power = 0;
  int middle = 0;   ///< halfway between the exponents of the largest and the smallest |a_ii|
  double norm = 0;  ///< largest row sum of absolute values
};

/// Communication that a caller enqueues while a product runs; may be empty.
using Meanwhile = std::function<void()>;

template <class B>
class DenseOperator {
 public:
  static constexpr bool replicated = false;  ///< vectors are slices, one a rank
  /// Whether apply() leaves the sums of several columns, too.
  static constexpr bool sums_columns = false;
  DenseOperator(const Context<B>& context, Index n);
  static OperatorMemory memory(Index n, int ranks);
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Range rows() const { return rows_; }
  /// `count` of the slice's rows from `position`, n host values each.
  void put_rows(const Context<B>& context, Index position, Index count, const double* rows);
  void fill_random(const Context<B>& context, Word seed, double diagonal = 2);  ///< dense_cg_entry
  /// Vectors that apply() multiplies, zero.
  [[nodiscard]] Operand<B> operand(const Context<B>& context, Index columns = 1);
  /// q = A p (or |A| p) on context.ahead; sums = local { p.q, p.p }, of one column unless
  /// sums_columns. Reads the slice once. Nothing is computed where *skip != 0 by then. `meanwhile`
  /// enqueues communication of the caller on context.ahead that may run beside the product.
  void apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
             View<double, B> sums, const SumSpace<B>& space, const double* skip = nullptr,
             bool absolute = false, const Meanwhile& meanwhile = {}) const;
  void take_diagonal(const Context<B>& context, View<double, B> to) const;  ///< of own rows
  /// The first pair (lowest row, then column) that is not symmetric, the same on every rank.
  [[nodiscard]] std::optional<Asymmetry> asymmetry(const Context<B>& context) const;
  /// That a product reads; of `heads`, where the operator has them.
  [[nodiscard]] double bytes(bool = false) const { return 8.0 * double(n_) * double(n_); }
  MatrixScale scale;
  void multiply_by(const Context<B>& context, int power);  ///< every number stored by 2^power
  [[nodiscard]] double largest(const Context<B>& context) const;  ///< |number| stored, of all ranks
  [[nodiscard]] DenseRows<B> matrix() const { return {matrix_, rows_.count, ld_}; }
  /// f(buffer) for each array that holds the matrix.
  template <class F>
  void each_array(const F& f) const {
    f(matrix_);
  }

 private:
  [[nodiscard]] double entry(const Context<B>& context, Index i, Index j) const;
  Index n_ = 0, block_ = 0, ld_ = 0;
  Range rows_;
  Buffer<double, B> matrix_, all_;  // all_: p of all ranks; empty for one rank
};

template <class B>
class BandOperator {
 public:
  static constexpr bool replicated = false, sums_columns = true;
  BandOperator(const Context<B>& context, Index n, Index half_bandwidth);
  /// `heads`: of keep_heads() too.
  static OperatorMemory memory(Index n, Index half_bandwidth, int ranks, bool heads = false);
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Index half_bandwidth() const { return m_; }
  [[nodiscard]] Range rows() const { return rows_; }
  /// Columns of earlier slices that reach into this one; read before own columns.
  [[nodiscard]] Range columns_before() const;
  /// `count` columns from global column `first` of `height` values, element d is A[j + d, j].
  /// They are columns_before(), in order, then rows().
  void put_columns(const Context<B>& context, Index first, Index count, Index height,
                   const double* columns);
  /// The same of rows(), by diagonals: d of them lies at from + d * count.
  void put_diagonals(const Context<B>& context, Index first, Index count, Index height,
                     const double* from);
  /// Columns are put once more, all of them.
  void begin_again();
  void fill_random(const Context<B>& context, Word seed);  ///< band_spd_entry
  [[nodiscard]] Operand<B> operand(const Context<B>& context, Index columns = 1);
  void apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
             View<double, B> sums, const SumSpace<B>& space, const double* skip = nullptr,
             bool absolute = false, const Meanwhile& meanwhile = {}) const;
  /// Normalises A, and makes the heads of its entries as they are then (kernels/cg/heads.hpp), for
  /// apply_head(). Collective.
  void keep_heads(const Context<B>& context);
  void apply_head(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                  View<double, B> sums, const SumSpace<B>& space,
                  const double* skip = nullptr) const;
  void take_diagonal(const Context<B>& context, View<double, B> to) const;
  [[nodiscard]] std::optional<Asymmetry> asymmetry(const Context<B>&) const { return {}; }
  [[nodiscard]] double bytes(bool heads = false) const {
    return (heads ? 4.0 : 8.0) * double(n_) * double(m_ + 1);
  }
  MatrixScale scale;
  void multiply_by(const Context<B>& context, int power);  ///< every number stored by 2^power
  [[nodiscard]] double largest(const Context<B>& context) const;  ///< |number| stored, of all ranks
  [[nodiscard]] BandRows<B> matrix() const { return {matrix_, rows_.count, m_, ld_}; }
  template <class F>
  void each_array(const F& f) const {
    f(matrix_), f(head_);
  }

 private:
  Index n_ = 0, m_ = 0, ld_ = 0;
  Range rows_;
  /// Where column `first` of rows() begins in matrix_.
  [[nodiscard]] Index place(Index first) const {
    return std::min(m_, rows_.count) + first - rows_.first;
  }
  void put_lead(const Context<B>& context);
  [[nodiscard]] Halo<B> halo(const Context<B>& context, Index columns) const;
  Buffer<double, B> matrix_, scratch_;
  Buffer<std::uint32_t, B> head_;  // of matrix_, after keep_heads()
  std::vector<double> lead_;       // columns_before() while they are read
  Buffer<double, B> staged_;       // columns of a device while they are read
  Halo<B> halo_, halo_columns_;
};

/// Rows of a CSR matrix on the host, global column numbers.
struct CsrSlice {
  LargeVector<Index> start{0};
  LargeVector<Index> column;
  LargeVector<double> value;
  [[nodiscard]] Index rows() const { return Index(start.size()) - 1; }
  /// Sorts each row by column and adds up duplicates.
  void normalise();
};

/// A rank's rows on the host, with their columns numbered as they are needed: first[r] .. first[r + 1]
/// are the columns of rank r (of a square matrix its rows too), `needed` the ascending global numbers
/// of the columns behind the own ones.
struct RankRows {
  std::vector<Index> first, needed;
  HostRows rows;
  /// The same with global column numbers.
  [[nodiscard]] CsrSlice slice(int rank) const;
};

/// The same where the matrix is; columns ascend within each row.
template <class B>
struct RowsThere {
  std::vector<Index> first, needed;
  SparseRows<B> rows;
  AskedEntries asked{};  ///< of `needed`, once somebody wants it
};

template <class B>
class CsrOperator {
 public:
  static constexpr bool replicated = false, sums_columns = true;
  /// Of rows that are all there, without faults.
  CsrOperator(const Context<B>& context, CsrLoad<B>&& load);
  /// first[r] .. first[r + 1]: rows of rank r; `slice`: this rank's rows, consumed, in any order.
  CsrOperator(const Context<B>& context, std::vector<Index> first, CsrSlice&& slice);
  /// Of a symmetric matrix without faults, columns ascending: it is not looked at. Collective.
  CsrOperator(const Context<B>& context, const RankRows& a);
  /// The same of rows that are there, which it takes, but the columns where some are other ranks';
  /// `scattered` as CsrRows has it. Products wait for these ranks. Collective.
  CsrOperator(const Context<B>& context, RowsThere<B>& a, bool scattered, Scratch<B>&);
  /// `heads`: of keep_heads() too.
  static OperatorMemory memory(Index n, Index nonzeros, int ranks, bool heads = false);
  /// Other values in the same pattern, of entries() own entries in the order of the rows given, each
  /// row by ascending columns. Symmetry is looked at again. Collective.
  void put_values(const Context<B>& context, const double* value);
  [[nodiscard]] Index entries() const { return inner_.entries + outer_.entries; }
  [[nodiscard]] Index n() const { return first_.back(); }
  [[nodiscard]] Range rows() const { return rows_; }
  [[nodiscard]] Index nonzeros() const { return nonzeros_; }  ///< of all ranks, duplicates summed
  /// Entries of p that this rank needs of others.
  [[nodiscard]] Index halo() const { return Index(needed_.size()); }
  [[nodiscard]] Operand<B> operand(const Context<B>& context, Index columns = 1);
  /// The product with own entries of p runs on context.bulk beside the halo exchange.
  void apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
             View<double, B> sums, const SumSpace<B>& space, const double* skip = nullptr,
             bool absolute = false, const Meanwhile& meanwhile = {}) const;
  /// Columns in a byte or two each, and for products with 8 or 16 vectors strips of rows, where that
  /// fits, where the device has memory to spare, and where A is not so small that it is iterated on the
  /// chip. The numbers of a product stay the same to the bit, not its sums. `general`: a general
  /// preconditioner is still to be made, and has its memory.
  void shorten_columns(const Context<B>& context, Index columns, bool general = false);
  /// As of a band.
  void keep_heads(const Context<B>& context);
  void apply_head(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                  View<double, B> sums, const SumSpace<B>& space,
                  const double* skip = nullptr) const;
  void take_diagonal(const Context<B>& context, View<double, B> to) const;
  [[nodiscard]] std::optional<Asymmetry> asymmetry(const Context<B>&) const { return asymmetry_; }
  [[nodiscard]] double bytes(bool heads = false) const {
    return (heads ? 8.0 : 12.0) * double(nonzeros_) + 8.0 * double(n());
  }
  MatrixScale scale;
  void multiply_by(const Context<B>& context, int power);  ///< every number stored by 2^power
  [[nodiscard]] double largest(const Context<B>& context) const;  ///< |number| stored, of all ranks
  /// Entries at and below the diagonal between own rows, local numbers, on the host; with block > 0
  /// only those within blocks of so many rows.
  [[nodiscard]] LocalRows own_rows(const Context<B>& context, Index block) const;
  /// All of the own rows on the host.
  [[nodiscard]] RankRows all_rows(const Context<B>& context) const;
  /// All of them where they are, once more.
  [[nodiscard]] RowsThere<B> rows_there(const Context<B>& context) const;
  /// Own rows and columns: the whole matrix where there is one rank.
  [[nodiscard]] CsrRows<B> matrix() const { return inner_.view(); }
  template <class F>
  void each_array(const F& f) const {
    inner_.each_array(f), outer_.each_array(f);
  }

 private:
  CsrOperator(const Context<B>& context, CsrLoad<B>&& load, bool judged);
  void product(const Context<B>& context, bool heads, const Operand<B>& p, View<double, B> q,
               View<double, B> sums, const SumSpace<B>& space, const double* skip, bool absolute,
               const Meanwhile& meanwhile) const;
  /// `best`, or i n + j of an earlier pair that couples ranks and is not symmetric; `diagonal`: own.
  [[nodiscard]] Index find_across(const Context<B>& context, View<const double, B> diagonal,
                                  Index best) const;
  /// What stands at the earliest of the ranks' positions, i n + j of a pair.
  [[nodiscard]] std::optional<Asymmetry> describe_pair(const Context<B>& context, Index mine) const;
  [[nodiscard]] double stored(const Context<B>& context, Index i, Index j) const;  ///< row i is own
  struct Outer;
  [[nodiscard]] Outer outer_entries(const Context<B>& context) const;
  void deal_values(const Context<B>& context, const double* value);
  std::vector<Index> first_;
  Range rows_;
  Index nonzeros_ = 0;
  CsrPart<B> inner_, outer_;  // own columns; columns of other ranks, only rows that have some
  bool joined_ = false;       // inner_ has them all
  Buffer<std::int32_t, B> outer_columns_;  // of outer_, as RankRows numbers them
  bool short_columns_sought_ = false, strips_sought_ = false;
  std::vector<Index> needed_;  // entries of p of other ranks
  Halo<B> halo_, halo_columns_;
  std::optional<Asymmetry> asymmetry_;
};

/// Starts of row slices with about equal numbers of nonzeros, from pieces of the row pointers.
class RowCuts {
 public:
  RowCuts(int ranks, Index n, Index nonzeros);
  /// pointers[i] belongs to row first + i. All ranks' pieces together are all rows', and the end.
  void note(Index first, std::span<const Index> pointers);
  /// One more than ranks. Collective.
  [[nodiscard]] std::vector<Index> agreed(const Control& control) const;

 private:
  Index nonzeros_;
  std::vector<Index> first_;
};
/// The same of one piece.
std::vector<Index> balanced_rows(const Control& control, Index n, Index nonzeros, Index first,
                                 std::span<const Index> pointers);

/// Largest row sum of absolute values. Overwrites p and q.
template <class B, class A>
double row_sum_norm(const Context<B>& context, A& a, const Operand<B>& p, View<double, B> q,
                    View<double, B> sums, const SumSpace<B>& space);

/// Finds the norm of a complete matrix, once, and divides the numbers stored by a power of two
/// where the squares of what an iteration computes could leave the range of doubles. So A and 2^k A
/// are iterated alike, bit by bit. The power depends on the diagonal alone where A may be positive
/// definite, not on ranks. Reads A once; twice more and writes it where it is scaled. Collective.
template <class B, class A>
void normalise(const Context<B>& context, A& a);

/// Diagonal entries of own rows, on the host. Collective.
template <class B, class A>
std::vector<double> host_diagonal(const Context<B>& context, const A& a) {
  std::vector<double> host(std::size_t(a.rows().count));
  const Buffer<double, B> there =
      collectively(context.control, [&] { return Buffer<double, B>(a.rows().count); });
  a.take_diagonal(context, there.view());
  download(context.ahead, host.data(), there.view());
  context.ahead.synchronize();
  return host;
}

/// v *= 2^power, as ldexp does. Waits.
template <class B>
void multiply_by_power(const Context<B>& context, View<double, B> v, int power);

/// The halo of `columns` vectors, row-major, from that of one.
template <class B>
Halo<B> halo_of_columns(const Context<B>& context, std::vector<Index> first,
                        const std::vector<Index>& needed, Index columns);

}  // namespace terrace::cg
