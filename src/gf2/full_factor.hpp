// The device alone factors the candidate rows of a panel, 512 columns after 512 columns, as long as
// these have full rank (kernels/gf2/full_panel.hpp). The host waits once.
#pragma once
#include "kernels/gf2/full_panel.hpp"

namespace terrace::gf2 {

template <class B>
class FullFactor {
 public:
  /// Takes all memory, for panels of `words` words and `candidates` rows; none where the device
  /// cannot do it. The lane has to run before the first panel.
  FullFactor(const Stream<B>& lane, Index words, Index candidates);
  static Index bytes(Index words, Index candidates);

  /// Enqueued; false where device or panel do not allow it. out.info[0] then holds the columns, from
  /// the first on, that were eliminated: a multiple of 512, at most 64 * words. Their pivots stand
  /// behind it. Where these are all columns, `out` is as from factor_panel(), but for the pitch, which
  /// is out.pitch, and out.reduced, which is not written: the identity.
  bool begin(const Stream<B>& lane, BitRows<const Word, B> rows, Index words, PanelFactor<B> out);
  /// After that: the rows in place, as FullPanel has them.
  [[nodiscard]] BitRows<const Word, B> rows(Index columns) const {
    return {panel_.before(columns / full_columns), panel_.pitch, panel_.count, nullptr};
  }

 private:
  Buffer<Word, B> words_;
  Buffer<Index, B> indices_;
  FullPanel<B> panel_;
};

}  // namespace terrace::gf2
