// What this folder is for: the reduced or echelon form, rank, solutions, kernel or inverse of a bit
// matrix, with its certificate. Callers need no more than this; products are in multiply.hpp.
//
//   plan = plan_bits(...)         method, width and memory, before anything is read
//   load_bits(...)                the input into the memory of the backend
//   result = reduce_bits(...)
//   broken = certify_bits(...)    against the input read again
#pragma once
#include <string>
#include <vector>

#include "src/gf2/certificate.hpp"
#include "src/gf2/results.hpp"

namespace terrace::gf2 {

enum class BitTask { rref, echelon, rank, solve, kernel, inverse };

/// What is asked for, and how its panels are wanted.
struct BitRequest : PanelWish {
  BitTask task = BitTask::rref;
  Index seed = 1;          ///< of the certificate's vectors
  bool certify = true;     ///< hold the result against the input
  bool transform = false;  ///< rref, echelon: T with T A = the form, too
};

/// What was chosen. Words of a row in memory:
///
///   | A | B | witness | check sums |    B for solve alone, check sums with the guard; a word each
///   | A | I | ...                       with the transform, of rows(A) columns: I becomes T
struct BitPlan {
  BitTask task = BitTask::rref;
  bool certify = true;
  BlockCyclic layout;            ///< of the rows
  Index columns = 0, right = 0;  ///< of A and of B
  PanelPlan panels;              ///< its witness is the seed of the certificate
  bool transform = false;        ///< T takes the place of B

  [[nodiscard]] EchelonForm form() const;
  [[nodiscard]] Index words() const { return ceil_div(columns, 64); }  ///< of A
  [[nodiscard]] Index right_words() const { return ceil_div(right, 64); }
  [[nodiscard]] Index witness_word() const { return words() + right_words(); }
  [[nodiscard]] Index all_words() const { return witness_word() + (panels.guard ? 2 : 1); }
};

/// For A of rows x columns and B of `right` columns. Throws agreed Error(usage).
template <class B>
BitPlan plan_bits(const Context<B>& context, Index rows, Index columns, Index right,
                  const BitRequest& request, const PanelMeasurements& measured = {});
/// Of the fullest of so many ranks. The kernel is counted as small as it can be; its true size is
/// asked for once the rank is known.
template <class B>
BitMemory bits_memory(const BitPlan& plan, int ranks);

/// A, B (void: none) and the witness into `matrix`, of plan.layout and plan.all_words(). Collective.
template <class B>
void load_bits(const Context<B>& context, const BitPlan& plan, const BitSource<B>& a,
               const BitSource<B>& b, const BitMatrix<B>& matrix);

template <class B>
struct BitResult {
  Pivots pivots;           ///< an inverse's may say that A is singular: then there is no more
  bool consistent = true;  ///< solve: some X has A X = B
  double work = 0;         ///< multiply-adds
  BitMatrix<B> matrix;     ///< what the elimination left: the form, or the inverse
  BitSolution<B> x;        ///< of solve
  BitMatrix<B> basis;      ///< of kernel
  Witness witness;         ///< from certify_bits()
};

/// Eliminates what load_bits() left. With the guard a bit that flips on the way is an Error(fault).
/// progress.checkpoints are written and continued. Takes memory. Collective.
template <class B>
BitResult<B> reduce_bits(Context<B>& context, const BitPlan& plan, BitMatrix<B> matrix,
                         Progress& progress, const StageTimes<B>& stages = {});

/// The row of the form or of the inverse that each slot of this rank's holds: pivot rows go first,
/// the others behind them.
template <class B>
std::vector<Index> destination_of(const BitResult<B>& result);

/// Makes result.witness; with the transform, T A is compared as well, and T is regular. Returns what is broken, of what plan.certify wants to see; or nothing.
/// Collective.
template <class B>
std::string certify_bits(const Context<B>& context, const BitPlan& plan, const BitSource<B>& a,
                         const BitSource<B>& b, BitResult<B>& result);

}  // namespace terrace::gf2
