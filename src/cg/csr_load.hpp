// A rank's CSR rows on their way to the backend: put piece by piece as they are read, judged and cut
// there. Nothing of the matrix's size stands on the host.
#pragma once
#include <span>
#include <type_traits>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/copies.hpp"
#include "kernels/base/gather.hpp"
#include "kernels/cg/coarsening.hpp"
#include "kernels/cg/csr_setup.hpp"
#include "kernels/cg/distinct.hpp"
#include "kernels/cg/short_columns.hpp"
#include "kernels/cg/strips.hpp"

namespace terrace::cg {

/// Numbers to the backend, and back. Wait.
template <class T, class B, class A = std::allocator<T>>
Buffer<T, B> uploaded(const Stream<B>& lane, const std::vector<T, A>& from) {
  Buffer<T, B> to(Index(from.size()));
  if (!from.empty()) upload(lane, to.view(), from.data());
  lane.synchronize();
  return to;
}
template <class T, class B>
std::vector<std::remove_const_t<T>> downloaded(const Stream<B>& lane, View<T, B> from) {
  std::vector<std::remove_const_t<T>> to(std::size_t(from.size));
  if (from.size > 0) download(lane, to.data(), from);
  lane.synchronize();
  return to;
}

/// The same of many, by several threads.
template <class T, class B>
void download_by_threads(const Stream<B>& lane, T* to, View<const T, B> from) {
  io::download_plain<T, B>(lane, to, from, io::Copies::of<B>(from.size * Index(sizeof(T))));
}

/// from[index[k]] of each k, on the host. Waits.
template <class T, class B>
std::vector<T> downloaded(const Stream<B>& lane, View<const T, B> from,
                          const std::vector<Index>& index) {
  const Buffer<Index, B> listed = uploaded(lane, index);
  const Buffer<T, B> taken(listed.size());
  gather(lane, listed.view(), from, taken.view());
  return downloaded(lane, taken.view());
}

/// CSR rows in the memory of a backend, complete for a product.
template <class B>
struct CsrPart {
  Buffer<Index, B> start, row, chunk, longs;
  Buffer<std::int32_t, B> column;
  Buffer<double, B> value, partial;
  Buffer<std::uint32_t, B> head;  ///< of value, after keep_heads()
  ShortColumns<B> shorter;
  Strips<B> strips;
  Index entries = 0;  ///< column and value may have room behind
  bool scattered = false;
  [[nodiscard]] View<double, B> values() const { return value.view().slice(0, entries); }
  [[nodiscard]] CsrRows<B> view() const {
    return {start,
            column.view().slice(0, entries),
            values(),
            row,
            chunk,
            longs,
            partial,
            scattered,
            {},
            shorter.listed,
            shorter.distance,
            shorter.near,
            strips.strip,
            strips.run,
            strips.entries,
            strips.runs};
  }
  /// For products from heads.
  [[nodiscard]] CsrRows<B> heads() const {
    CsrRows<B> rows = view();
    rows.head = head;
    return rows;
  }
  /// Of the values as they are now; takes 4 bytes an entry.
  void keep_heads(const Stream<B>& lane);
  /// f(array) of what a product reads.
  template <class F>
  void each_array(const F& f) const {
    f(value), f(head), f(column);
    f(shorter.listed), f(shorter.distance), f(shorter.near);
    f(strips.strip), f(strips.run);
    f(start), f(row), f(chunk), f(longs);
  }
  void take_chunks(RowChunks<B>&& cut);
  /// What a product on CUDA wants beside it.
  void prepare(const Stream<B>& lane);
};

/// As CsrRows::scattered, by a sample. Waits.
template <class B>
bool is_scattered(const Stream<B>& lane, const CsrRows<B>& rows);

/// Ready for products; `scattered` as CsrRows has it.
template <class B>
CsrPart<B> part_of(const Stream<B>& lane, SparseRows<B>&& rows, bool scattered, Scratch<B>&);

/// Runs of rows, by where they begin and the last one ends, and their first entries: of at most `most`
/// entries each, or of one row.
struct Runs {
  std::vector<Index> row{0}, entry{0};
  [[nodiscard]] std::size_t count() const { return row.size() - 1; }
  [[nodiscard]] Index rows(std::size_t k) const { return row[k + 1] - row[k]; }
  [[nodiscard]] Index entries(std::size_t k) const { return entry[k + 1] - entry[k]; }
};
template <class B>
Runs runs_of(const Stream<B>& lane, View<const Index, B> start, Index most);

template <class B>
class CsrLoad {
 public:
  /// first[r] .. first[r + 1]: rows of rank r; start: positions of this rank's rows' entries, from 0.
  /// Takes 12 bytes an entry. Collective.
  CsrLoad(const Context<B>& context, std::vector<Index> first, std::span<const Index> start);
  /// The same; start comes by put_start(), which is to be followed by take_entries(). Collective.
  CsrLoad(const Context<B>& context, std::vector<Index> first);
  /// start[position] ..., of the whole matrix, from this rank's first row on. Waits.
  void put_start(const Context<B>& context, Index position, Index count, const Index* start);
  /// Room for entries [range.first, range.end()) of the whole matrix. Collective.
  void take_entries(const Context<B>& context, Range range);
  [[nodiscard]] Index entries() const { return part_.entries; }
  /// Column numbers in the whole matrix, and values, of `count` entries from `position` on. Waits.
  void put_columns(const Context<B>& context, Index position, Index count, const Index* columns);
  void put_values(const Context<B>& context, Index position, Index count, const double* values);
  /// All columns at once, numbered from the first own row.
  void put_numbered(const Context<B>& context, const std::int32_t* columns);
  /// The largest of any rank, when all is there. Collective; far ones are an agreed
  /// Error(resources).
  [[nodiscard]] CsrFaults faults(const Context<B>& context);

  [[nodiscard]] const std::vector<Index>& first() const { return first_; }
  [[nodiscard]] Range rows() const { return rows_; }
  // Of rows without faults.
  /// i n + j of the first pair i < j of own rows that is not symmetric; the largest Index if none.
  [[nodiscard]] Index asymmetry(const Context<B>& context);
  /// Own part; after asymmetry().
  [[nodiscard]] View<const double, B> diagonal() const { return diagonal_; }
  /// Takes the entries in columns of other ranks out.
  [[nodiscard]] OuterRows<B> take_outer(const Context<B>& context);
  /// What is left, ready for products.
  [[nodiscard]] CsrPart<B> take(const Context<B>& context);

 private:
  void close_up(const Context<B>& context, const Buffer<Index, B>& inner_start);
  std::vector<Index> first_;
  Range rows_;
  CsrPart<B> part_;
  Buffer<Index, B> staged_;     // columns of one piece
  Buffer<double, B> diagonal_;  // of asymmetry()
  Buffer<CsrFaults, B> faults_;
};

}  // namespace terrace::cg
