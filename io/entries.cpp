#include "io/entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "io/reading.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

namespace {

/// May change numbers that have come, from `position` on; called by several threads.
template <class T>
using Passing = std::function<void(Index position, Index count, T* numbers)>;

template <class T>
void read_any(const Control& control, const InputFile& input, const std::string& name,
              std::span<const Range> ranges, const Sink<T>& sink, bool words,
              const Passing<T>& passing = {}) {
  Request request;
  request.dataset = name;
  request.as = words ? As::words : std::is_same_v<T, double> ? As::doubles : As::indices;
  request.item_bytes = sizeof(T);
  request.take = [&](const Portion& p, Index item, Index items, Element form, const char* raw,
                     char* to) {
    if (words) {
      to_words(form, raw, reinterpret_cast<Word*>(to), items);
    } else if constexpr (std::is_same_v<T, double>) {
      to_doubles(form, raw, reinterpret_cast<double*>(to), items);
    } else {
      to_indices(form, raw, reinterpret_cast<Index*>(to), items);
    }
    if (passing) passing(p.position + item, items, reinterpret_cast<T*>(to));
  };
  read_portions(control, input, request, ranges, [&](const Portion& p, const char* data) {
    sink(p.position, p.items, reinterpret_cast<const T*>(data));
  });
}

/// Puts them one after the other.
template <class T>
Sink<T> into(T* out) {
  return [out](Index position, Index count, const T* from) {
    parallel_ranges(count, 1 << 16, [&](Index first, Index end) {
      std::copy(from + first, from + end, out + position + first);
    });
  };
}

/// The row and column of an entry, its place among majors and minors known.
Triplet placed(const SparseForm& form, Index major, Index minor, double value) {
  return form.layout == Layout::csc ? Triplet{minor, major, value} : Triplet{major, minor, value};
}

}  // namespace

void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  std::span<const Range> ranges, double* out) {
  read_any<double>(control, input, name, ranges, into(out), false);
}
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  std::span<const Range> ranges, Index* out, bool words) {
  read_any<Index>(control, input, name, ranges, into(out), words);
}
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  Range range, const Sink<double>& sink) {
  read_any(control, input, name, {&range, 1}, sink, false);
}
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  Range range, const Sink<Index>& sink) {
  read_any(control, input, name, {&range, 1}, sink, false);
}

void read_values(const Control& control, const InputFile& input, const SparseForm& form,
                 std::span<const Range> ranges, bool parity, double* out) {
  Index count = 0;
  for (const Range& r : ranges) count += r.count;
  const Object& data = input.object.children.at("data");
  const Range first{0, 1};
  const std::span<const Range> which =
      form.same ? std::span<const Range>(&first, form.stored > 0 ? 1u : 0u) : ranges;
  const Index stored = form.same ? Index(which.size()) : count;
  std::vector<double> one(static_cast<std::size_t>(form.same ? stored : 0));
  double* const to = form.same ? one.data() : out;
  if (parity && data.number != Number::floating) {
    std::vector<Index> whole =
        collectively(control, [&] { return std::vector<Index>(static_cast<std::size_t>(stored)); });
    const bool words = data.number == Number::unsigned_integer && data.bytes == 8;
    read_numbers(control, input, "data", which, whole.data(), words);
    for (Index k = 0; k < stored; ++k) to[k] = double(whole[std::size_t(k)] & 1);
  } else {
    read_numbers(control, input, "data", which, to);
    for (Index k = 0; parity && k < stored; ++k) {
      const double odd = std::fabs(std::fmod(to[k], 2.0));
      to[k] = odd == 0 || odd == 1 ? odd : std::numeric_limits<double>::quiet_NaN();
    }
  }
  if (form.same) std::fill_n(out, count, stored > 0 ? one[0] : 0.0);
}

void refuse_pointer(const Control& control, const InputFile& input, const SparseForm& form,
                    const Offender& wrong) {
  if (const auto first = first_offender(control, wrong))
    fail_together(
        Exit::input,
        fmt::format("wrong {} pointer {}; {} entry {}; pointers must rise from 0 to {}, the number "
                    "of stored values{}",
                    form.layout == Layout::csc ? "column" : "row", first->value,
                    where(input.location, input.object.children.at("indptr").path), first->row,
                    form.stored,
                    first->row == 0 && first->value == 1
                        ? " (do they count from one? subtract one from pointers and indices)"
                        : ""));
}

namespace {

/// Pointers of majors first, first + 1, ..., made to begin with zero and tested as they pass.
class PassingPointers {
 public:
  PassingPointers(const SparseForm& form, Index first) : form_(form), first_(first) {}
  /// By several threads.
  void operator()(Index position, Index count, Index* p) {
    if (count == 0) return;
    Offender mine;
    for (Index i = 0; i < count; ++i) {
      p[i] -= form_.base;
      const Index row = first_ + position + i;
      if (p[i] < 0 || p[i] > form_.stored || (i > 0 && p[i] < p[i - 1]) ||
          (row == 0 && p[i] != 0) || (row == form_.majors() && p[i] != form_.stored))
        mine.note(row, 0, double(p[i] + form_.base));
    }
    const std::lock_guard lock(mutex_);
    if (mine.row != Offender::none) wrong_.note(mine.row, 0, mine.value);
    ends_.push_back({position, p[0], p[count - 1]});
  }
  /// When all have passed.
  Offender wrong() {
    std::sort(ends_.begin(), ends_.end(),
              [](const Ends& a, const Ends& b) { return a.position < b.position; });
    for (std::size_t k = 1; k < ends_.size(); ++k)
      if (ends_[k].first < ends_[k - 1].last)
        wrong_.note(first_ + ends_[k].position, 0, double(ends_[k].first + form_.base));
    return wrong_;
  }

 private:
  struct Ends {
    Index position, first, last;
  };
  const SparseForm& form_;
  const Index first_;
  std::mutex mutex_;
  std::vector<Ends> ends_;
  Offender wrong_;
};

}  // namespace

void read_pointers(const Control& control, const InputFile& input, const SparseForm& form,
                   Range majors, const Sink<Index>& sink) {
  PassingPointers pointers(form, majors.first);
  const Range range{majors.first, majors.count + 1};
  read_any<Index>(control, input, "indptr", {&range, 1}, sink, false,
                  [&](Index position, Index count, Index* p) { pointers(position, count, p); });
  refuse_pointer(control, input, form, pointers.wrong());
}

LargeVector<Index> read_pointers(const Control& control, const InputFile& input,
                                 const SparseForm& form, Range majors) {
  LargeVector<Index> pointers =
      collectively(control, [&] { return LargeVector<Index>(std::size_t(majors.count) + 1); });
  read_pointers(control, input, form, majors, into(pointers.data()));
  return pointers;
}

void WrongEntries::refuse(const Control& control, const SparseForm& form,
                          const std::string& where) const {
  if (const auto first = first_offender(control, outside)) {
    const bool coo = form.layout == Layout::coo;
    const bool row = coo ? first->column == 1 : form.layout == Layout::csc;
    const Index extent = coo ? (row ? form.rows : form.columns) : form.minors();
    fail_together(Exit::input,
                  fmt::format("{} index {} outside the matrix; {} {} {}; {}s are 0 to {}{}",
                              row ? "row" : "column", first->value, where,
                              coo   ? "entry"
                              : row ? "column"
                                    : "row",
                              first->row, row ? "row" : "column", extent - 1,
                              first->value == double(extent) && form.base == 0
                                  ? " (do they count from one? subtract one)"
                                  : ""));
  }
  if (const auto first = first_offender(control, other))
    fail_together(
        Exit::input,
        fmt::format("an entry in the {} triangle, but only the {} triangle should be stored; {} "
                    "row {}, column {}; store one triangle, or both without symmetry",
                    form.triangle == Triangle::lower ? "upper" : "lower",
                    form.triangle == Triangle::lower ? "lower" : "upper", where, first->row,
                    first->column));
  if (const auto first = first_offender(control, fraction))
    fail_together(Exit::input,
                  fmt::format("a value that is not whole; {} row {}, column {}; over GF(2) values "
                              "are odd or even",
                              where, first->row, first->column));
  refuse_not_finite(control, not_finite, where);
}

namespace {

/// Windows of a share, at most so many entries each.
constexpr Index window = Index(1) << 18;

struct Window {
  std::vector<Index> minor, row;
  std::vector<double> value;
};

/// One window's entries into triplets, wrong ones noted and left out.
class Placing {
 public:
  Placing(const SparseForm& form, bool parity, WrongEntries& wrong)
      : form_(form), parity_(parity), wrong_(wrong) {}
  void operator()(Index entry, Index major, Index minor, double value,
                  std::vector<Triplet>& out) const {
    const bool coo = form_.layout == Layout::coo;
    minor -= form_.base;
    if (minor < 0 || minor >= (coo ? form_.columns : form_.minors()))
      return wrong_.outside.note(coo ? entry : major, 0, double(minor + form_.base));
    if (coo && (major < 0 || major >= form_.rows))
      return wrong_.outside.note(entry, 1, double(major));
    const Triplet t = placed(form_, major, minor, value);
    if (!std::isfinite(value))
      return (parity_ ? wrong_.fraction : wrong_.not_finite).note(t.row, t.column, value);
    if (form_.triangle != Triangle::none) {
      const bool upper = t.column > t.row, lower = t.column < t.row;
      if ((upper && form_.triangle == Triangle::lower) ||
          (lower && form_.triangle == Triangle::upper))
        return wrong_.other.note(t.row, t.column, value);
      if (upper || lower) out.push_back({t.column, t.row, value});
    }
    out.push_back(t);
  }

 private:
  const SparseForm& form_;
  bool parity_;
  WrongEntries& wrong_;
};

}  // namespace

void each_entry(const Control& control, const InputFile& input, const SparseForm& form, Range share,
                bool parity, const std::function<void(std::span<const Triplet>)>& keep) {
  const bool coo = form.layout == Layout::coo;
  LargeVector<Index> pointers;
  Range all = share;
  if (!coo) {
    pointers = read_pointers(control, input, form, share);
    all = {pointers.front(), pointers.back() - pointers.front()};
  }
  const Index rounds = control.reduce(ceil_div(all.count, window), Reduce::max);
  Window w;
  std::vector<Triplet> entries;
  WrongEntries wrong;
  const Placing place(form, parity, wrong);
  Index major = 0;  // of the share
  for (Index round = 0; round < rounds; ++round) {
    const Index from = std::min(all.count, round * window);
    const Range range{all.first + from, std::min(window, all.count - from)};
    const auto size = std::size_t(range.count);
    collectively(control, [&] {
      w.minor.resize(size);
      w.value.resize(size);
      if (coo) w.row.resize(size);
      entries.clear();
      entries.reserve(size * (form.triangle == Triangle::none ? 1 : 2));
    });
    read_numbers(control, input, coo ? "col" : "indices", {&range, 1}, w.minor.data());
    if (coo) read_numbers(control, input, "row", {&range, 1}, w.row.data());
    read_values(control, input, form, {&range, 1}, parity, w.value.data());
    for (Index k = 0; k < range.count; ++k) {
      const Index entry = range.first + k;
      while (!coo && entry >= pointers[std::size_t(major) + 1]) ++major;
      place(entry, coo ? w.row[std::size_t(k)] : share.first + major, w.minor[std::size_t(k)],
            w.value[std::size_t(k)], entries);
    }
    keep(entries);
  }
  wrong.refuse(control, form, input.where());
}

}  // namespace terrace::io
