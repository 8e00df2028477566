// One level of smoothed aggregation on one device, from the matrix to the next level's: which entries
// are strong, aggregates of rows, the prolongation, its transpose and P' A P. Both backends run the
// same algorithm: the same aggregates, and the same sums up to contractions of a product and a sum.
// Repeated runs give the same bits.
//
// Every function has one template, specialised in kernels/cg/{cpu,cuda}. They wait, unless they say
// otherwise. Columns are own rows, behind them rows of other ranks, and ascend within each row; results'
// columns ascend too.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "kernels/cg/products.hpp"

namespace terrace::cg {

/// CSR rows that own their memory.
template <class B>
struct SparseRows {
  Buffer<Index, B> start;  ///< rows + 1
  Buffer<std::int32_t, B> column;
  Buffer<double, B> value;
  Index columns = 0;
  [[nodiscard]] Index rows() const { return start.size() - 1; }
  [[nodiscard]] Index nonzeros() const { return column.size(); }
  [[nodiscard]] CsrRows<B> view() const { return {start, column, value, {}}; }
};

/// Memory for what lives within a function, taken like a stack. It grows; used on CUDA alone, where
/// taking memory from the driver waits for the device.
template <class B>
class Scratch {
 public:
  explicit Scratch(Index bytes = 0) {
    if (bytes > 0) blocks_.emplace_back(bytes);
  }
  /// Gives back at its end what was taken meanwhile. Work on it must be of one stream.
  class Scope {
   public:
    explicit Scope(Scratch& scratch)
        : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Scope() { scratch_.block_ = block_, scratch_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Scratch& scratch_;
    std::size_t block_;
    Index used_;
  };
  /// Not initialised.
  template <class T>
  View<T, B> take(Index count) {
    constexpr Index line = 256, least = Index(1) << 22;
    const Index bytes = round_up(count * Index(sizeof(T)), line);
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size()) ++block_, used_ = 0;
    if (block_ == blocks_.size()) blocks_.emplace_back(bytes > least ? bytes : least);
    T* const data = reinterpret_cast<T*>(blocks_[block_].data() + used_);
    used_ += bytes;
    return {data, count};
  }

 private:
  std::vector<Buffer<std::byte, B>> blocks_;
  std::size_t block_ = 0;
  Index used_ = 0;
};

/// At most so many entries of a row of A, and nonzeros of a row of a result. A matrix with longer
/// ones is coarsened on the host.
constexpr Index coarsening_row = 4096, coarsening_result = 6144;

struct RowsJudged {
  Index bad = -1;     ///< first row whose diagonal is not positive, or has no inverse
  Index longest = 0;  ///< entries of a row
  double bound =
      0;  ///< largest sum over a row of |a_ij| / a_ii (Gershgorin), of rows that are not bad
};
/// diagonal[i] = A[i, i], zero where it is not stored. 12 bytes an entry.
template <class B>
RowsJudged judge_rows(const Stream<B>&, const CsrRows<B>& a, View<double, B> diagonal, Scratch<B>&);

/// of[i]: the aggregate of row i, ascending with the rows that began them; -1: row i has no strong entry,
/// or found nobody, and is left to the smoother.
template <class B>
struct RowAggregates {
  Buffer<std::int32_t, B> of;
  Index count = 0;
};
/// a_ij is strong where a_ij^2 >= threshold^2 a_ii a_jj, i and j different and both own rows. `diagonal`:
/// of own rows.
///   roots: rows, no two of them within two strong entries of one another, chosen by pseudo-random
///     numbers that change every round, until no other could be added (Kelley, Rajamanickam 2022,
///     algorithm 1); each takes its neighbours
///   again, of the rows that are free, where two thirds of a row and its neighbours are
///   rows that are left join the neighbours' aggregate with most of the neighbours, then the smaller
/// About 20 passes over 4 bytes an entry, most of them over few rows.
template <class B>
RowAggregates<B> aggregate_rows(const Stream<B>&, const CsrRows<B>& a,
                                View<const double, B> diagonal, double threshold, Scratch<B>&);

/// T, rows x `count`: T[i, j] = 1 where j = of[i], the aggregate of row i.
template <class B>
SparseRows<B> tentative_prolongation(const Stream<B>&, View<const std::int32_t, B> of, Index count,
                                     Scratch<B>&);
/// P = (I - 4/3 L^-1 F) T, as kernels/cg/multigrid.hpp has it. `diagonal` and `of`: of all columns of A.
/// 24 bytes an entry of A.
template <class B>
SparseRows<B> smoothed_prolongation(const Stream<B>&, const CsrRows<B>& a,
                                    View<const double, B> diagonal, double threshold,
                                    View<const std::int32_t, B> of, Index count, Scratch<B>&);

/// P', `columns` rows. Sorts 8 bytes an entry. Error(resources) from 2^31 entries on.
template <class B>
SparseRows<B> transposed(const Stream<B>&, const CsrRows<B>& p, Index columns, Scratch<B>&);

/// About as many nonzeros as T A P has, from some of its rows. `t`: of some columns of P.
template <class B>
double expected_nonzeros(const Stream<B>&, const CsrRows<B>& t, const CsrRows<B>& a,
                         const CsrRows<B>& p, Index columns, Scratch<B>&);
/// T A P, t.rows() x columns, as T (A P). Each sum in the order of T's and A's entries, of long rows in
/// up to 8 runs of them. Nothing where a row has more than coarsening_result nonzeros.
/// For a stencil of seven points about 3 operations in a
/// table an entry of A for A P, as many for T (A P), twice each: to count and to add.
template <class B>
std::optional<SparseRows<B>> coarse_product(const Stream<B>&, const CsrRows<B>& t,
                                            const CsrRows<B>& a, const CsrRows<B>& p, Index columns,
                                            Scratch<B>&);

/// A B, a.rows() x columns. Each sum in the order of A's entries, of long rows in up to 8 runs of them.
/// Nothing where a row has more than coarsening_result nonzeros.
template <class B>
std::optional<SparseRows<B>> sparse_product(const Stream<B>&, const CsrRows<B>& a,
                                            const CsrRows<B>& b, Index columns, Scratch<B>&);
/// P = A T becomes T - weight D^-1 P, in rows where T has entries, and zero in others. P has T's places
/// in these rows.
template <class B>
void damp_rows(const Stream<B>&, SparseRows<B>& p, const CsrRows<B>& t,
               View<const double, B> diagonal, double weight);

/// Of a coarse matrix T A P with T = P': a diagonal entry that is zero to rounding, where a column of P
/// is a null vector of A, becomes that of T D P. False where one is negative.
template <class B>
bool settle_null_vectors(const Stream<B>&, const SparseRows<B>& coarse, const CsrRows<B>& t,
                         View<const double, B> diagonal, Scratch<B>&);

/// Consecutive rows with about equal numbers of entries, which a product on CUDA wants beside the rows;
/// cut anew every 96 or 128 rows. Nothing on the CPU.
template <class B>
struct RowChunks {
  /// Pairs { k, entry }, one more than chunks: chunk c begins at row k and position `entry`. A piece of a
  /// long row k has ~k there.
  Buffer<Index, B> chunk;
  /// { k, c, c_end } for each long row k: its pieces are the chunks [c, c_end).
  Buffer<Index, B> longs;
  Buffer<double, B> partial;  ///< CsrRows::partial
};
template <class B>
RowChunks<B> chunks_of(const Stream<B>&, const CsrRows<B>&, Scratch<B>&);

/// v[i] = random_uniform(seed, first + i / columns, 0). Does not wait.
template <class B>
void fill_uniform(const Stream<B>&, Word seed, Index first, Index columns, View<double, B> v);

}  // namespace terrace::cg
