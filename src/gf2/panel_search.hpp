// Pivots of one panel over GF(2): one rank, that with the most active rows, looks among some of these,
// and tells the others. Where it has too few, rows of all ranks come to it first.
//
// Where what it looked at does not span all the panel's columns, every rank reduces its active rows by
// the pivots that are known, and rows that are not zero then go to that one rank, which extends its
// factor by them. Behind a panel that had no pivot in some column, this is the beginning too: rows of a
// sparse matrix are zero within most panels.
//
// Pivot rows span what all active rows span, so the pivot columns are the leftmost possible
// (canonical), whichever rows carry them.
#pragma once
#include <memory>
#include <vector>

#include "kernels/gf2/product.hpp"
#include "src/gf2/active_rows.hpp"
#include "src/gf2/matrix.hpp"

namespace terrace::gf2 {

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
  static Index bytes(Index slots, Index words, int ranks, bool alone = false);

  /// Collective. Rank of the panel over all active rows of all ranks; then
  ///   columns()[q]   column within the panel of pivot q, ascending
  ///   rows()[q]      its global row
  ///   factor()       info and transform (in pivot order) on the backend
  /// Panel number k. Unless it is hopeful(), rows that are zero within the panel are sorted out first
  /// where not all can be tried.
  /// Costs one synchronization of `lane` for a full panel; where a device cannot go ahead, one for
  /// each 512 columns, and one more on several ranks.
  Index find(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
             const Panel& panel, Index k);
  /// Whether a panel's first candidates gave all pivots, so that the next panel's may.
  [[nodiscard]] bool& hopeful() { return hopeful_; }
  /// The same of one rank's rows, those in `active` of `rows` (words from 0 are the panel's); rows()
  /// are then slots.
  Index find_local(const Stream<B>& lane, BitRows<const Word, B> rows, ActiveRows<B>& active,
                   const Panel& panel, Index k);
  [[nodiscard]] const Index* columns() const { return &info_[1]; }
  [[nodiscard]] const std::vector<Index>& rows() const { return rows_; }
  [[nodiscard]] PanelFactor<B> factor() const;

 private:
  /// Rows outside the span of what is known.
  struct Outside {
    Index of_mine = 0, of_all = 0;
  };
  void learn(Index rank, const Panel& panel) { hopeful_ = rank == panel.columns; }
  void choose_candidates(const ActiveRows<B>& active, const Panel& panel);
  BitRows<const Word, B> upload_candidates(const Stream<B>& lane, BitRows<const Word, B> base,
                                           Index first = 0);
  bool begin_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words);
  void read_info(const Stream<B>& lane, Index words);
  Index end_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words, Index done);
  Index factor_rows(const Stream<B>& lane, BitRows<const Word, B> base, Index words, Index rank);
  void factor_on_host(const Stream<B>& lane, BitRows<const Word, B> rows, Index words);
  void keep_pivots(Index rank, Index words);
  void begin_scan(const Stream<B>& lane, BitRows<const Word, B> rows, ActiveRows<B>& active,
                  Index words, Index k);
  Index scan_rows(const Stream<B>& lane, Index m, Index words, Index rank);
  BitRows<const Word, B> bring_candidates(const Stream<B>& lane, const BitMatrix<B>& matrix,
                                          const ActiveRows<B>& active, const Panel& panel);
  Index propose(const Stream<B>& lane, const BitMatrix<B>& matrix, const ActiveRows<B>& active,
                const Panel& panel, int root, bool together);
  Index tell(const Stream<B>& lane, const Panel& panel, int root, bool numbered);
  void name_rows(Index rank, Index words, const Index* numbers);
  Outside gather(const Stream<B>& lane, const BitMatrix<B>& matrix, const ActiveRows<B>& active,
                 const Panel& panel, Index left);
  Index complete(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
                 const Panel& panel, Index k, int root);

  const Context<B>& context_;
  Index pitch_;                          ///< words of a row of the buffers below
  std::unique_ptr<WideFactor<B>> wide_;  ///< of wide panels, and of rows that come later
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
  // Active rows, less what the pivots known make of them.
  Buffer<Word, B> scan_, scan_multipliers_;
  BitProduct<B> scan_product_;
  bool hopeful_ = true;
  Buffer<Index, B> left_;
  PinnedBuffer<Index> left_host_;
  // What each rank gives to all: [header_words() | rows of pitch_ words].
  Index header_ = 0, message_ = 0;
  Buffer<Word, B> mine_, all_;
  PinnedBuffer<Word> header_host_, headers_host_;
  // What one rank tells the others beside info and transform: [final | global rows of candidates].
  Buffer<Index, B> told_;
  PinnedBuffer<Index> told_host_;
  std::vector<Index> numbers_;  ///< global rows of the candidates that were gathered
  std::vector<Index> rows_;
};

}  // namespace terrace::gf2
