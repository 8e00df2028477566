#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "distrib/deal.hpp"
#include "io/entries.hpp"
#include "io/portions.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

SparseInput open_sparse(const Control& control, const Location& location, const Wanted& wanted,
                        bool symmetric) {
  Object object = find_object(control, location, Kind::sparse, wanted);
  SparseForm form = sparse_form(object, location.form, where(location, object.path));
  location.form.require_obeyed("a sparse matrix", "--uplo --shape", "csr csc coo bits");
  SparseInput input;
  input.rows_ = form.rows;
  input.columns_ = form.columns;
  input.nonzeros_ = form.stored * (form.triangle == Triangle::none ? 1 : 2);
  input.location_ = {location.file, object.path, location.form};
  input.transposed_ = symmetric && form.layout == Layout::csc && form.rows == form.columns &&
                      form.triangle == Triangle::none;
  input.form_ = std::make_shared<SparseForm>(form);
  input.file_ = open_input(control, location, std::move(object));
  return input;
}

const char* SparseInput::layout() const {
  return form_->layout == Layout::csr ? "csr" : form_->layout == Layout::csc ? "csc" : "coo";
}

bool SparseInput::is_triangle() const { return form_->triangle != Triangle::none; }

bool SparseInput::by_rows() const {
  return (form_->layout == Layout::csr && form_->triangle == Triangle::none) || transposed_;
}

bool SparseInput::streams() const { return by_rows() && form_->base == 0 && !form_->same; }

namespace {

/// Which rank has a row: the ranks' ranges ascend.
class Owners {
 public:
  Owners(const Control& control, Range mine)
      : first_(control.gather_all(mine.first)), count_(control.gather_all(mine.count)) {
    for (std::size_t r = 0; r < first_.size(); ++r)
      if (count_[r] > 0) ranks_.push_back(r);
  }
  /// -1: none.
  [[nodiscard]] int of(Index row) const {
    const auto next = std::upper_bound(ranks_.begin(), ranks_.end(), row,
                                       [&](Index i, std::size_t r) { return i < first_[r]; });
    if (next == ranks_.begin()) return -1;
    const std::size_t r = *(next - 1);
    return row < first_[r] + count_[r] ? int(r) : -1;
  }

 private:
  std::vector<Index> first_, count_;
  std::vector<std::size_t> ranks_;
};

/// Entries of rows `rows`, in the order of the file: each rank reads a share and sends its entries
/// to their owners.
std::vector<Triplet> own_entries(const Control& control, const InputFile& input,
                                 const SparseForm& form, Range rows) {
  const Owners owners(control, rows);
  const auto ranks = std::size_t(control.size());
  const Index extent = form.layout == Layout::coo ? form.stored : form.majors();
  const auto shares = contiguous(extent, control.size()).ranges(control.rank());
  std::vector<std::vector<Triplet>> from(ranks);
  each_entry(control, input, form, shares.empty() ? Range{extent, 0} : shares[0], false,
             [&](std::span<const Triplet> entries) {
               std::vector<std::vector<Triplet>> to(ranks);
               for (const Triplet& t : entries)
                 if (const int r = owners.of(t.row); r >= 0) to[std::size_t(r)].push_back(t);
               const auto got = deal(control, std::move(to));
               for (std::size_t r = 0; r < ranks; ++r)
                 from[r].insert(from[r].end(), got[r].begin(), got[r].end());
             });
  std::vector<Triplet> all = std::move(from[0]);
  for (std::size_t r = 1; r < ranks; ++r) {
    all.insert(all.end(), from[r].begin(), from[r].end());
    from[r] = {};
  }
  return all;
}

/// start[i] .. start[i + 1] of the rows, from zero.
LargeVector<Index> starts_of(const std::vector<Triplet>& entries, Range rows) {
  LargeVector<Index> start(static_cast<std::size_t>(rows.count) + 1, 0);
  for (const Triplet& t : entries) ++start[std::size_t(t.row - rows.first) + 1];
  std::partial_sum(start.begin(), start.end(), start.begin());
  return start;
}

}  // namespace

LargeVector<Index> SparseInput::row_pointers(const Control& control, Range rows) const {
  if (by_rows()) return read_pointers(control, *file_, *form_, rows);
  LargeVector<Index> start = starts_of(own_entries(control, *file_, *form_, rows), rows);
  const auto counts = control.gather_all(start.back());
  const Index before = std::accumulate(counts.begin(), counts.begin() + control.rank(), Index(0));
  for (Index& s : start) s += before;
  return start;
}

void SparseInput::row_pointers(const Control& control, Range rows, const Sink<Index>& sink) const {
  read_pointers(control, *file_, *form_, rows, sink);
}

void SparseInput::entries(const Control& control, Range range, const Sink<Index>& columns,
                          const Sink<double>& values) const {
  read_numbers(control, *file_, "indices", range, columns);
  read_numbers(control, *file_, "data", range, values);
}

void SparseInput::read(const Control& control, Range rows, SparseRows& out) const {
  if (!by_rows()) {
    const std::vector<Triplet> entries = own_entries(control, *file_, *form_, rows);
    collectively(control, [&] {
      out.start = starts_of(entries, rows);
      out.columns.resize(entries.size());
      out.values.resize(entries.size());
      LargeVector<Index> next = out.start;
      for (const Triplet& t : entries) {
        const auto at = std::size_t(next[std::size_t(t.row - rows.first)]++);
        out.columns[at] = t.column;
        out.values[at] = t.value;
      }
    });
    return;
  }
  out.start = read_pointers(control, *file_, *form_, rows);
  const Range range{out.start.front(), out.start.back() - out.start.front()};
  for (Index& s : out.start) s -= range.first;
  collectively(control, [&] {
    out.columns.resize(std::size_t(range.count));
    out.values.resize(std::size_t(range.count));
  });
  read_numbers(control, *file_, "indices", {&range, 1}, out.columns.data());
  read_values(control, *file_, *form_, {&range, 1}, false, out.values.data());
  WrongEntries wrong;
  std::mutex found;
  parallel_ranges(rows.count, 4096, [&](Index first, Index end) {
    Offender outside, bad;
    for (Index i = first; i < end; ++i)
      for (Index k = out.start[std::size_t(i)]; k < out.start[std::size_t(i) + 1]; ++k) {
        const Index j = out.columns[std::size_t(k)] -= form_->base;
        const double value = out.values[std::size_t(k)];
        if (j < 0 || j >= columns_) outside.note(rows.first + i, k, double(j + form_->base));
        if (!std::isfinite(value))
          bad.note(transposed_ ? j : rows.first + i, transposed_ ? rows.first + i : j, value);
      }
    if (outside.row == Offender::none && bad.row == Offender::none) return;
    const std::lock_guard lock(found);
    if (outside.row != Offender::none)
      wrong.outside.note(outside.row, outside.column, outside.value);
    if (bad.row != Offender::none) wrong.not_finite.note(bad.row, bad.column, bad.value);
  });
  wrong.refuse(control, *form_, file_->where());
}

std::vector<Index> read_integers(const Control& control, const Location& location) {
  Object object = describe(control, location);
  const bool whole =
      object.number == Number::signed_integer || object.number == Number::unsigned_integer;
  if (object.group || !whole || object.dims.size() != 1)
    fail_together(Exit::input, "not a vector of integers; " + where(location, object.path) +
                                   "; store 1-D int64");
  const bool words = object.number == Number::unsigned_integer && object.bytes == 8;
  const Range all{0, object.dims[0]};
  std::vector<Index> values =
      collectively(control, [&] { return std::vector<Index>(std::size_t(all.count)); });
  const auto input = open_input(control, location, std::move(object));
  read_numbers(control, *input, "", {&all, 1}, values.data(), words);
  return values;
}

namespace {

/// Toggles bit `column` of a row of words.
void toggle(Word* row, Index column) { row[column / 64] ^= Word(1) << (column % 64); }

/// Where rows lie in the concatenation of ranges.
class Places {
 public:
  explicit Places(std::span<const Range> ranges) {
    Index position = 0;
    for (const Range& r : ranges) {
      if (r.count > 0) places_.push_back({r, position});
      position += r.count;
    }
    std::stable_sort(places_.begin(), places_.end(),
                     [](const Place& a, const Place& b) { return a.range.first < b.range.first; });
    for (std::size_t k = 1; k < places_.size(); ++k)
      apart_ = apart_ && places_[k - 1].range.end() <= places_[k].range.first;
  }
  /// use(position) for each place of the row.
  template <class F>
  void each(Index row, const F& use) const {
    auto next = std::upper_bound(places_.begin(), places_.end(), row,
                                 [](Index i, const Place& p) { return i < p.range.first; });
    while (next != places_.begin()) {
      --next;
      if (row < next->range.end()) use(next->position + row - next->range.first);
      if (apart_) return;
    }
  }

 private:
  struct Place {
    Range range;
    Index position;
  };
  std::vector<Place> places_;
  bool apart_ = true;
};

/// Hands words of `rows` rows on, some rows at a time.
void deliver_rows(std::span<const Range> ranges, Index rows, Index width, const Word* words,
                  const Sink<Word>& sink) {
  Delivery<Word> deliver(ranges, width);
  const Index most = std::max<Index>(1, piece_bytes() / std::max<Index>(8, 8 * width));
  for (Index at = 0; at < rows; at += most)
    deliver(at, std::min(most, rows - at), words + at * width, sink);
}

}  // namespace

namespace {

/// Rows of a CSR matrix in portions of a few MiB, as packed bits.
class BitRows {
 public:
  BitRows(const Control& control, const InputFile& input, const SparseForm& form)
      : control_(control), input_(input), form_(form), width_(ceil_div(form.minors(), 64)) {}
  [[nodiscard]] Index most() const {
    const Index average = 1 + form_.stored / std::max<Index>(1, form_.majors());
    return std::max<Index>(
        1, std::min(piece_bytes() / std::max<Index>(8, 8 * width_), piece_bytes() / 16 / average));
  }
  /// The words of the portion's rows. Collective.
  const Word* load(const Portion& p) {
    const std::vector<Range> entries = point(p);
    const Index count = std::accumulate(entries.begin(), entries.end(), Index(0),
                                        [](Index sum, const Range& r) { return sum + r.count; });
    collectively(control_, [&] {
      minors_.resize(std::size_t(count));
      values_.resize(std::size_t(count));
      words_.assign(std::size_t(p.items * width_), 0);
    });
    read_numbers(control_, input_, "indices", entries, minors_.data());
    read_values(control_, input_, form_, entries, true, values_.data());
    std::size_t entry = 0, at = 0;
    Word* row = words_.data();
    for (const Range& rows : p.ranges) {
      for (Index i = rows.first; i < rows.end(); ++i, ++at, row += width_)
        for (Index left = pointers_[at + 1] - pointers_[at]; left > 0; --left, ++entry)
          put(i, entry, row);
      ++at;
    }
    return words_.data();
  }
  void refuse() const { wrong_.refuse(control_, form_, input_.where()); }

 private:
  /// Reads the pointers of the portion's ranges; the entries that they point at.
  std::vector<Range> point(const Portion& p) {
    std::vector<Range> ranges, entries;
    for (const Range& r : p.ranges) ranges.push_back({r.first, r.count + 1});
    pointers_.resize(std::size_t(p.items) + p.ranges.size());
    read_numbers(control_, input_, "indptr", ranges, pointers_.data());
    Offender bad;
    std::size_t at = 0;
    for (const Range& r : p.ranges) {
      for (Index i = 0; i <= r.count; ++i) {
        Index& value = pointers_[at + std::size_t(i)];
        value -= form_.base;
        if (value < 0 || value > form_.stored ||
            (i > 0 && value < pointers_[at + std::size_t(i) - 1]))
          bad.note(r.first + i, 0, double(value + form_.base));
      }
      const Index end = pointers_[at + std::size_t(r.count)];
      entries.push_back({pointers_[at], end - pointers_[at]});
      at += std::size_t(r.count) + 1;
    }
    refuse_pointer(control_, input_, form_, bad);
    return entries;
  }
  void put(Index row, std::size_t entry, Word* words) {
    const Index j = minors_[entry] - form_.base;
    if (j < 0 || j >= form_.minors())
      wrong_.outside.note(row, 0, double(minors_[entry]));
    else if (std::isnan(values_[entry]))
      wrong_.fraction.note(row, j, values_[entry]);
    else if (values_[entry] != 0)
      toggle(words, j);
  }

  const Control& control_;
  const InputFile& input_;
  const SparseForm& form_;
  Index width_;
  std::vector<Index> pointers_, minors_;
  std::vector<double> values_;
  std::vector<Word> words_;
  WrongEntries wrong_;
};

}  // namespace

void SparseInput::read_bits(const Control& control, std::span<const Range> ranges,
                            const Sink<Word>& sink) const {
  const Index width = ceil_div(columns_, 64);
  if (by_rows() && form_->layout == Layout::csr) {
    const auto& ends = file_->object.children.at("indptr").values;
    Offender wrong;
    if (ends.size() == 2 && ends[0] != form_->base) wrong.note(0, 0, double(ends[0]));
    if (ends.size() == 2 && ends[1] != form_->base + form_->stored)
      wrong.note(rows_, 0, double(ends[1]));
    refuse_pointer(control, *file_, *form_, wrong);
    BitRows rows(control, *file_, *form_);
    const std::vector<Portion> portions = cut(ranges, rows.most());
    const Index rounds = control.reduce(Index(portions.size()), Reduce::max);
    Delivery<Word> deliver(ranges, width);
    const Portion none;
    for (Index round = 0; round < rounds; ++round) {
      const Portion& p = round < Index(portions.size()) ? portions[std::size_t(round)] : none;
      const Word* const words = rows.load(p);
      collectively(control, [&] {
        if (p.items > 0) deliver(p.position, p.items, words, sink);
      });
    }
    return rows.refuse();
  }
  // Rows come in any order: those of this rank are put together in memory.
  Index rows = 0;
  for (const Range& r : ranges) rows += r.count;
  const auto words = allocate_together<Word>(control, rows * width);
  std::fill_n(words.get(), rows * width, Word(0));
  const Places places(ranges);
  const Index extent = form_->layout == Layout::coo ? form_->stored : form_->majors();
  each_entry(control, *file_, *form_, {0, extent}, true, [&](std::span<const Triplet> entries) {
    for (const Triplet& t : entries)
      if (t.value != 0)
        places.each(t.row, [&](Index at) { toggle(words.get() + at * width, t.column); });
  });
  collectively(control, [&] {
    if (rows > 0) deliver_rows(ranges, rows, width, words.get(), sink);
  });
}

}  // namespace terrace::io
