// Tables of combine() built in the orders that were compared in 2013. For measurements; solvers
// take combine().
#pragma once
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {

/// A thread walks a piece of the Gray code, in which neighbours differ by one source row.
enum class CodeOrder {
  standard,   ///< combine(): few steps a thread, codes known when the kernel is compiled
  computed,   ///< i ^ (i >> 1) for each entry
  table,      ///< from constant memory, where the host put all codes
  half,       ///< its first half; the second is the first one backwards, with one bit more
  two_passes  ///< the first half of the entries from it, then the second from the first
};

/// The k that have all orders.
inline constexpr Index code_order_k[] = {4, 8, 11, 14};

/// combine() with the default shape of `k`, its tables built in `order`: the same bits.
void combine_with_codes(const Stream<Cuda>&, BitRows<Word, Cuda> out,
                        BitRows<const Word, Cuda> multipliers, BitRows<const Word, Cuda> source,
                        Index out_word, Index source_word, Index words, Index k, CodeOrder order);

}  // namespace terrace::gf2
