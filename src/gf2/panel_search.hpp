// Pivots of one panel over GF(2): the rank with the most active rows looks among these, and tells the
// others. Where it has too few, rows of all ranks come to it first. Where what it looked at does not
// span all the panel's columns, each rank finds a basis of its own, the bases meet, and every rank
// makes the same choice.
//
// The candidates span what all active rows span, so the pivot columns are the leftmost possible
// (canonical), whichever rows carry them.
#pragma once
#include <memory>
#include <vector>

#include "kernels/gf2/product.hpp"
#include "src/gf2/matrix.hpp"

namespace terrace::gf2 {

/// Rows of this rank that are not pivots yet, on the host and (two copies in turn, because updates
/// may still read the last one) on the backend; and how many the other ranks have.
template <class B>
class ActiveRows {
 public:
  ActiveRows(BlockCyclic layout, int rank);
  /// Rows 0 .. count - 1 of one rank, count at most the layout's.
  void reset(Index count);
  [[nodiscard]] Index count() const { return count_; }
  [[nodiscard]] const std::vector<Index>& counts() const { return counts_; }  ///< of all ranks
  [[nodiscard]] Index operator[](Index i) const { return list_[i]; }
  /// Position of an active slot in the list.
  [[nodiscard]] Index position(Index slot) const { return position_[slot]; }
  /// Enqueues the upload of the list; returns it in the memory of B. remove() only after `lane`
  /// ran.
  const Index* upload(const Stream<B>& lane, Index k);
  void remove(Index slot);
  /// A row of any rank, by its global number.
  void remove_global(Index row);
  static Index host_bytes(Index slots) { return 2 * slots * Index(sizeof(Index)); }
  static Index backend_bytes(Index slots) { return 2 * slots * Index(sizeof(Index)); }

 private:
  BlockCyclic layout_;
  int rank_;
  Index count_ = 0;
  std::vector<Index> counts_;
  PinnedBuffer<Index> list_;
  std::vector<Index> position_;
  Buffer<Index, B> copies_[2];
};

/// Where the columns of a panel are.
struct Panel {
  Index word = 0, words = 0;  ///< in the matrix's rows
  Index columns = 0;          ///< of A in the panel, at most 64 * words
};

template <class B>
class FullFactor;
template <class B>
class WideFactor;

template <class B>
class PanelSearch {
 public:
  /// Takes all memory. `words`: of the widest panel, at most max_wide_words. `alone`: only
  /// find_local() will be called. `on_host`: the host factors the candidates of narrow panels.
  /// `candidates`: so many times the panel's columns are its first candidates, as there is room;
  /// 0: as many as experience asks for.
  PanelSearch(const Context<B>& context, Index slots, Index words, bool alone = false,
              bool on_host = false, Index candidates = 0);
  ~PanelSearch();
  static Index bytes(Index slots, Index words, int ranks);

  /// Collective. Rank of the panel over all active rows of all ranks; then
  ///   columns()[q]   column within the panel of pivot q, ascending
  ///   rows()[q]      its global row
  ///   factor()       info and transform (in pivot order) on the backend
  /// Panel number k. Not `hopeful`, alike on all ranks: no rank looks alone first. Costs one
  /// synchronization of `lane` for a full panel; where a device cannot go ahead, one for each 512
  /// columns, and one more on several ranks.
  Index find(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
             const Panel& panel, Index k, bool hopeful);
  /// Forgets what earlier panels were like, so that equal rows give equal pivots.
  void restart() { yield_ = 1; }
  [[nodiscard]] double& yield() { return yield_; }  ///< what it remembers of them
  /// Rank of the panel over the rows in `active` of `rows` (words from 0 are the panel's): this
  /// rank's part of find(); rows() are then slots.
  Index find_local(const Stream<B>& lane, BitRows<const Word, B> rows, ActiveRows<B>& active,
                   const Panel& panel, Index k);
  [[nodiscard]] const Index* columns() const { return &info_[1]; }
  [[nodiscard]] const std::vector<Index>& rows() const { return rows_; }
  [[nodiscard]] PanelFactor<B> factor() const;

 private:
  void choose_candidates(const ActiveRows<B>& active, const Panel& panel);
  BitRows<const Word, B> upload_candidates(const Stream<B>& lane, BitRows<const Word, B> base);
  bool begin_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words);
  void read_info(const Stream<B>& lane, Index words);
  Index end_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words, Index done);
  Index factor_rows(const Stream<B>& lane, BitRows<const Word, B> base, Index words);
  void factor_on_host(const Stream<B>& lane, BitRows<const Word, B> rows, Index words);
  void keep_pivots(Index rank, Index words);
  Index scan_others(const Stream<B>& lane, BitRows<const Word, B> rows, ActiveRows<B>& active,
                    const Panel& panel, Index k, Index rank);
  BitRows<const Word, B> bring_candidates(const Stream<B>& lane, const BitMatrix<B>& matrix,
                                          const ActiveRows<B>& active, const Panel& panel);
  Index propose(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
                const Panel& panel, Index k, int root, bool together);
  Index tell(const Stream<B>& lane, const Panel& panel, int root, bool numbered);
  Index meet(const Stream<B>& lane, const BitMatrix<B>& matrix, Index rank, const Panel& panel,
             Index k);

  const Context<B>& context_;
  Index pitch_;                          ///< words of a row of the buffers below
  std::unique_ptr<WideFactor<B>> wide_;  ///< for panels wider than factor_panel() takes
  std::unique_ptr<FullFactor<B>> full_;  ///< tried before these
  bool on_host_;
  Index multiple_;            ///< first candidates by columns, or 0
  Buffer<Word, B> gathered_;  ///< candidates on their way to the host
  PinnedBuffer<Word> gathered_host_, factor_host_;
  Stream<Cpu> host_;
  Buffer<Index, B> info_device_, candidates_device_;
  Buffer<Word, B> transform_, reduced_;
  PinnedBuffer<Index> info_, candidates_;
  Index candidate_count_ = 0;
  // Scan of a deficient panel.
  Buffer<Word, B> scan_, scan_multipliers_;
  BitProduct<B> scan_product_;
  double yield_ = 1;  ///< pivots per candidate that deficient panels gave
  Buffer<Index, B> left_;
  PinnedBuffer<Index> left_host_;
  // Meeting of the ranks: [count, rows..., padding | candidate rows of pitch_ words] each.
  Index header_ = 0, message_ = 0;
  Buffer<Word, B> mine_, all_;
  PinnedBuffer<Word> header_host_, headers_host_;
  // What one rank tells the others beside info and transform: [final | global rows of candidates].
  Buffer<Index, B> told_;
  PinnedBuffer<Index> told_host_;
  std::vector<Index> rows_;
};

}  // namespace terrace::gf2
