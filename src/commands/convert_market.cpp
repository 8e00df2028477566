// Matrix Market to HDF5.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/shared_text.hpp"
#include "kernels/base/large_vector.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_coordinates.hpp"

namespace terrace {

using io::Triplet;

namespace {

/// Of an array: `entries` numbers column by column; of a symmetric one the lower triangle.
struct MarketHeader : Coordinates {
  Index coordinate = 0;
};

MarketHeader read_market_header(io::TextReader& reader) {
  std::string line;
  reader.line(line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return char(std::tolower(c)); });
  const auto says = [&](const char* word) { return line.find(word) != std::string::npos; };
  if (line.rfind("%%matrixmarket", 0) != 0 || !says(" matrix"))
    reader.fail("no Matrix Market header", "the first line is '%%MatrixMarket matrix ...'");
  if (says("complex") || says("hermitian"))
    reader.fail("complex matrices are not supported", "store a real matrix");
  MarketHeader h;
  h.coordinate = says("coordinate");
  if (!h.coordinate && !says("array"))
    reader.fail("neither coordinate nor array", "the first line names one of them");
  h.pattern = says("pattern");
  h.skew = says("skew-symmetric");
  h.symmetric = says("symmetric");
  if (h.pattern && !h.coordinate) reader.fail("an array has no pattern", "use coordinate");
  for (;;) {  // comments, then the sizes
    if (!reader.line(line))
      reader.fail("the file ends before its sizes", "give rows, columns, entries");
    const auto first = line.find_first_not_of(" \t");
    if (first != std::string::npos && line[first] != '%') break;
  }
  Index rows = 0, columns = 0, entries = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  for (Index* const size : {&rows, &columns, &entries}) {
    if (size == &entries && !h.coordinate) break;
    while (at < end && (*at == ' ' || *at == '\t')) ++at;
    const auto [next, error] = std::from_chars(at, end, *size);
    const bool ends = next == end || *next == ' ' || *next == '\t' || *next == '\r';
    if (error != std::errc() || !ends || *size < 0)
      reader.fail(error == std::errc::result_out_of_range ? "impossible sizes: " + in_quotes(line)
                                                          : "no sizes: " + in_quotes(line),
                  h.coordinate ? "give rows, columns, entries" : "give rows, columns");
    at = next;
  }
  reader.require_extents(double(rows), double(columns));
  h.rows = rows;
  h.columns = columns;
  if (h.symmetric && rows != columns) reader.fail("symmetric but not square", "use general");
  const double half = h.skew ? 0.5 * (double(rows) - 1) : 0.5 * (double(rows) + 1);
  const double numbers = h.coordinate  ? double(entries)
                         : h.symmetric ? double(rows) * half
                                       : double(rows) * double(columns);
  const double least = !h.coordinate ? 1 : h.pattern ? 3 : 5;  // "1", "1 1" and "1 1 1"
  reader.require_room(numbers, least, fmt::format("{:.17g} entries", numbers));
  h.entries = h.coordinate ? entries : h.symmetric ? rows * (rows + 1) / 2 : rows * columns;
  if (h.skew && !h.coordinate) h.entries = rows * (rows - 1) / 2;
  h.body = reader.offset();
  return h;
}

/// Where number k of an array stands.
Triplet place_of(const MarketHeader& h, Index k) {
  if (h.symmetric == 0) return {k % std::max<Index>(1, h.rows), k / std::max<Index>(1, h.rows), 0};
  // Columns of `most`, most - 1, ... numbers before it; the root may be off by one.
  const Index most = h.rows - h.skew;
  const auto before = [&](Index j) { return j * most - j * (j - 1) / 2; };
  const double high = double(most) + 0.5;
  Index column = Index(high - std::sqrt(std::max(0.0, high * high - 2.0 * double(k))));
  while (column > 0 && before(column) > k) --column;
  while (column + 1 < most && before(column + 1) <= k) ++column;
  return {column + h.skew + k - before(column), column, 0};
}

/// visit(i, j, k, sign) for numbers [first, first + count) of the file and the `rows` of a rank:
/// A(i, j) is sign times number first + k. The order does not depend on where ranges are cut.
template <class F>
void each_place(const MarketHeader& h, const Range& rows, Index first, Index count,
                const F& visit) {
  const Triplet begin = place_of(h, first);
  Index i = begin.row, j = begin.column;
  for (Index done = 0; done < count; ++j) {
    const Index run = std::min(count - done, h.rows - i), back = done - i;
    const bool mirrored = h.symmetric != 0 && j >= rows.first && j < rows.end();
    const Index from = mirrored ? i : std::max(i, rows.first);
    const Index to = mirrored ? i + run : std::min(i + run, rows.end());
    for (Index row = from; row < to; ++row) {
      if (!mirrored || (row >= rows.first && row < rows.end())) visit(row, j, back + row, 1);
      if (mirrored && row != j) visit(j, row, back + row, h.skew != 0 ? -1 : 1);
    }
    done += run;
    i = h.symmetric != 0 ? j + 1 + h.skew : 0;
  }
}

/// All numbers of a block; false where a word is none.
bool parse_numbers(std::string_view text, LargeVector<double>& numbers) {
  numbers.resize(text.size() / 2 + 1);
  double* out = numbers.data();
  std::string_view line;
  while (io::next_line(text, line)) {
    const char* at = line.data();
    const char* const end = at + line.size();
    for (; !rest_is_blank(at, end); ++out)
      if (!take_number(at, end, *out)) return false;
  }
  numbers.resize(std::size_t(out - numbers.data()));
  return true;
}

/// An array, each rank with its rows.
class MarketArray {
 public:
  MarketArray(const Control& control, const MarketHeader& h) : control_(control), h_(h) {
    rows_ = own_slice(control, h.rows);
    collectively(control, [&] { data_.resize(std::size_t(rows_.count * h.columns)); });
  }
  [[nodiscard]] Range rows() const { return rows_; }
  void copy(Index position, Index count, double* out) const {
    std::copy_n(data_.begin() + position * h_.columns, count * h_.columns, out);
  }

  /// All ranks and threads read, in rounds: what they read needs little room beside the matrix.
  /// False where anything is unusual. Collective.
  bool read_together(Run& run, const std::string& file) {
    constexpr Index each = 32;  // blocks
    const io::SharedText text(control_, file, h_.body);
    show_bytes(run, Moved::read, double(text.bytes()), double(text.all_bytes()));
    numbers_.resize(std::size_t(each));
    Index done = 0;
    for (Index round = 0; round < text.rounds(each); ++round) {
      parse(text, text.blocks(round, each));
      const auto counts = control_.gather_all(start_.back());
      std::vector<Index> first{done};  // number of each rank in this round
      for (const Index count : counts) first.push_back(first.back() + count);
      done = first.back();
      if (*std::min_element(counts.begin(), counts.end()) < 0 || done > h_.entries) return false;
      put_own(first[std::size_t(control_.rank())]);
      if (control_.size() > 1) exchange(first);
    }
    numbers_.clear();
    return done == h_.entries;
  }

  /// The first rank reads in order and names what is wrong. Collective.
  void read_in_order(io::TextReader* reader) {
    Index done = 0, k = 0;
    each_in_order(
        control_,
        [&](Triplet& t) {
          std::string_view more;
          if (done == h_.entries && reader->word(more))
            reader->fail(fmt::format("more than {} entries", h_.entries), "correct the sizes");
          if (done++ == h_.entries) return false;
          t.value = reader->number();
          return true;
        },
        [&](const Triplet& t) {
          each_place(h_, rows_, k++, 1,
                     [&](Index i, Index j, Index, int sign) { put(i, j, sign * t.value); });
        });
  }

 private:
  void put(Index row, Index column, double value) {
    data_[std::size_t((row - rows_.first) * h_.columns + column)] = value;
  }

  /// Blocks to numbers_, and where each begins to start_; the last of which is -1 where a word is
  /// no number.
  void parse(const io::SharedText& text, const Range& blocks) {
    std::atomic<bool> good{true};
    collectively(control_, [&] {
      parallel_for(blocks.count, [&](Index k) {
        thread_local std::vector<char> buffer;
        if (good && !parse_numbers(text.block(blocks.first + k, buffer), numbers_[std::size_t(k)]))
          good = false;
      });
    });
    start_.assign(1, 0);
    for (Index k = 0; k < blocks.count; ++k)
      start_.push_back(start_.back() + Index(numbers_[std::size_t(k)].size()));
    if (!good) start_.back() = -1;
  }

  /// This rank's numbers, the first of which is `first` of the file, that it keeps.
  void put_own(Index first) {
    parallel_for(Index(start_.size()) - 1, [&](Index b) {
      const double* const from = numbers_[std::size_t(b)].data();
      each_place(h_, rows_, first + start_[std::size_t(b)], count(b),
                 [&](Index i, Index j, Index k, int sign) { put(i, j, sign * from[k]); });
    });
  }
  [[nodiscard]] Index count(Index b) const {
    return start_[std::size_t(b + 1)] - start_[std::size_t(b)];
  }

  /// Rank r's numbers are first[r] to first[r + 1] of the file: to each rank those of its rows.
  void exchange(const std::vector<Index>& first) {
    const auto ranks = contiguous(h_.rows, control_.size());
    const Index own = control_.rank();
    std::vector<std::vector<double>> to(std::size_t(control_.size()));
    collectively(control_, [&] {
      parallel_for(control_.size(), [&](Index r) {
        const auto range = ranks.ranges(int(r));
        if (r == own || range.empty()) return;
        for (Index b = 0; b + 1 < Index(start_.size()); ++b) {
          const double* const from = numbers_[std::size_t(b)].data();
          each_place(h_, range[0], first[std::size_t(own)] + start_[std::size_t(b)], count(b),
                     [&](Index, Index, Index k, int sign) {
                       to[std::size_t(r)].push_back(sign * from[k]);
                     });
        }
      });
    });
    const auto from = deal(control_, std::move(to));
    parallel_for(control_.size(), [&](Index r) {
      if (r == own) return;
      const double* next = from[std::size_t(r)].data();
      each_place(h_, rows_, first[std::size_t(r)],
                 first[std::size_t(r + 1)] - first[std::size_t(r)],
                 [&](Index i, Index j, Index, int) { put(i, j, *next++); });
    });
  }

  const Control control_;
  const MarketHeader h_;
  Range rows_;
  std::vector<double> data_;
  std::vector<LargeVector<double>> numbers_;  // of this round's blocks
  std::vector<Index> start_;
};

}  // namespace

Writing read_matrix_market(Run& run, const ConvertFrom& from) {
  const Control& control = run.control;
  std::unique_ptr<io::TextReader> reader;
  MarketHeader h;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    reader = std::make_unique<io::TextReader>(from.file);
    h = read_market_header(*reader);
  });
  control.broadcast(&h, sizeof h, 0);
  if (h.coordinate != 0) return read_coordinates(run, from, reader.get(), h);
  run.report["n"] = h.rows;
  run.report["columns"] = h.columns;
  require_memory(control, own_slice(control, h.rows).count * h.columns * 8, 0);
  const auto mine = std::make_shared<MarketArray>(control, h);
  if (h.body < 0 || !mine->read_together(run, from.file)) {
    if (reader) show_bytes(run, Moved::read, double(reader->size()), double(reader->size()));
    mine->read_in_order(reader.get());
  }
  return [=, &run](io::Output& output) {
    write_numbers(run, output, "A", from.file, h.rows, h.columns, false, from.bits, mine->rows(),
                  [&](Index p, Index count, double* out) { mine->copy(p, count, out); });
  };
}

}  // namespace terrace
