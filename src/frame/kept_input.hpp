// An input as it was read, kept on the backend for the check: that would wait for the file else. That
// the file holds the same numbers still is shown beside the solve, by a second reading of its own
// (io/rereading.hpp): what the backend has and what the file has must have one hash.
#pragma once
#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/rereading.hpp"
#include "kernels/base/buffer.hpp"

namespace terrace {

/// Memory of the backend that a rank may take now; none of a device that ranks share.
template <class B>
Index free_bytes(const Context<B>& context);

template <class B>
class KeptInput {
 public:
  /// Room for this rank's items of `ranges`, of `width` 8-byte numbers, where all ranks have it to
  /// spare beside `planned` bytes, which the solve may still take, and can read again; GPUs alone, unless TERRACE_KEEP_INPUT is 1 (and none where it is 0).
  /// Collective.
  bool take(const Context<B>& context, const io::Rereader& reread, std::span<const Range> ranges,
            Index width, Index planned);
  [[nodiscard]] bool holds() const { return bool(again_); }
  /// Item by item, without gaps.
  [[nodiscard]] View<Word, B> numbers() const { return numbers_.view(); }
  [[nodiscard]] View<double, B> doubles() const {
    return {reinterpret_cast<double*>(numbers_.data()), numbers_.size()};
  }
  /// numbers() := the items in rows of `ld` numbers from `from` on.
  void copy_from(const Stream<B>& lane, const Word* from, Index ld);
  void copy_from(const Stream<B>& lane, const double* from, Index ld) {
    copy_from(lane, reinterpret_cast<const Word*>(from), ld);
  }
  /// All numbers are there, as the file has them.
  void seal(const Stream<B>& lane);
  /// The second reading begins, where there is one to come.
  void begin();
  /// Waits for it. Throws agreed Error(input) where the file has other numbers, or cannot be read.
  /// Collective; of several calls the first counts.
  void require_same(const Control& control, const std::string& where);

 private:
  Index items_ = 0, width_ = 0;
  std::vector<Index> item_;  ///< their numbers
  Buffer<Word, B> numbers_;
  std::unique_ptr<io::Rereading> again_;
  Word hash_ = 0;
  bool begun_ = false;  ///< and not judged
};

}  // namespace terrace
