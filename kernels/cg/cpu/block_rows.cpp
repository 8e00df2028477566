// Bound by multiplications: two to three a cycle and core for blocks of 3 x 3 and 3 x 6.
#include "kernels/cg/cpu/block_rows.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/base/cpu/sums.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

std::size_t place_of(Index i) { return std::size_t(i); }

constexpr Index most_wide = most_group_rows;  // columns of a piece

bool same_columns(const HostRows& a, Index i, Index j) {
  const Index from = a.start[place_of(i)], size = a.start[place_of(i) + 1] - from;
  const Index other = a.start[place_of(j)];
  return a.start[place_of(j) + 1] - other == size &&
         std::equal(a.column.begin() + from, a.column.begin() + from + size,
                    a.column.begin() + other);
}

/// B as blocks: its columns are cut into pieces such that each group's columns are whole pieces.
struct Blocks {
  const HostRows& b;
  const RowGroups& groups;
  std::vector<std::int32_t> first;  ///< column of each piece, and the number of columns
  std::vector<Index> start;         ///< of each group's pieces in `piece`
  std::vector<std::int32_t> piece;

  Blocks(const HostRows& matrix, const RowGroups& rows) : b(matrix), groups(rows) {
    const std::vector<std::int32_t> of = cut();
    start.assign(place_of(groups.count()) + 1, 0);
    for (const bool fill : {false, true}) {
      if (fill) {
        for (std::size_t g = 1; g < start.size(); ++g) start[g] += start[g - 1];
        piece.resize(place_of(start.back()));
      }
      parallel_ranges(groups.count(), 1024, [&](Index from, Index to) {
        for (Index g = from; g < to; ++g) {
          Index count = fill ? start[place_of(g)] : 0;
          columns_of(g, [&](std::int32_t c) {
            const std::int32_t p = of[place_of(c)];
            if (first[place_of(p)] != c) return;
            if (fill) piece[place_of(count)] = p;
            ++count;
          });
          if (!fill) start[place_of(g) + 1] = count;
        }
      });
    }
  }
  [[nodiscard]] Index width(std::int32_t p) const {
    return first[place_of(p) + 1] - first[place_of(p)];
  }

 private:
  template <class F>
  void columns_of(Index g, const F& f) const {
    const Index row = groups.first[place_of(g)];
    for (Index e = b.start[place_of(row)]; e < b.start[place_of(row) + 1]; ++e)
      f(b.column[place_of(e)]);
  }
  /// Fills `first`; the piece of each column.
  std::vector<std::int32_t> cut() {
    std::vector<char> begins(place_of(b.columns) + 1, 0);
    for (Index g = 0; g < groups.count(); ++g) {
      std::int32_t before = -2;
      columns_of(g, [&](std::int32_t c) {
        if (c != before + 1)
          begins[place_of(before == -2 ? c : before + 1)] = begins[place_of(c)] = 1;
        before = c;
      });
      if (before >= 0) begins[place_of(before) + 1] = 1;
    }
    std::vector<std::int32_t> of(place_of(b.columns));
    for (std::int32_t c = 0; c < b.columns; ++c) {
      if (c == 0 || begins[place_of(c)] || c - first.back() == most_wide) first.push_back(c);
      of[place_of(c)] = std::int32_t(first.size()) - 1;
    }
    first.push_back(std::int32_t(b.columns));
    return of;
  }
};

// Wider ones go through memory where the processor, or the clone, has no such registers.
using Two = double __attribute__((vector_size(16)));

/// c[r][j] += scale[r] a[r][t] b[t][j], r < rows, t < inner, j < 2 twos.
template <int twos>
[[gnu::always_inline]] inline void add_twos(Index rows, Index inner, const double* scale,
                                            const double* a, Index lda, const double* b, Index ldb,
                                            double* c) {
  for (Index r = 0; r < rows; ++r) {
    Two sum[twos], v;
    for (int f = 0; f < twos; ++f) std::memcpy(&sum[f], c + r * most_wide + 2 * f, sizeof v);
    for (Index t = 0; t < inner; ++t) {
      const double factor = scale[r] * a[r * lda + t];
      for (int f = 0; f < twos; ++f) {
        std::memcpy(&v, b + t * ldb + 2 * f, sizeof v);
        sum[f] += factor * v;
      }
    }
    for (int f = 0; f < twos; ++f) std::memcpy(c + r * most_wide + 2 * f, &sum[f], sizeof v);
  }
}
/// The same, j < wide; b has `room` numbers. Of an odd width, the next column of c may become anything.
[[gnu::always_inline]] inline void add_block(Index wide, Index rows, Index inner,
                                             const double* scale, const double* a, Index lda,
                                             const double* b, Index ldb, Index room, double* c) {
  if ((inner - 1) * ldb + wide + wide % 2 <= room) {
    if (wide > 6) return add_twos<4>(rows, inner, scale, a, lda, b, ldb, c);
    if (wide > 4) return add_twos<3>(rows, inner, scale, a, lda, b, ldb, c);
    if (wide > 2) return add_twos<2>(rows, inner, scale, a, lda, b, ldb, c);
    return add_twos<1>(rows, inner, scale, a, lda, b, ldb, c);
  }
  for (Index r = 0; r < rows; ++r)
    for (Index t = 0; t < inner; ++t)
      for (Index j = 0; j < wide; ++j)
        c[r * most_wide + j] += scale[r] * a[r * lda + t] * b[t * ldb + j];
}

/// Rows of one group of the result: pieces in the order in which they came, and their sums.
class BlockSum {
 public:
  explicit BlockSum(const Blocks& blocks) : blocks_(blocks), slot_(blocks.first.size() - 1, -1) {}
  /// Takes a piece in.
  void name(std::int32_t piece) {
    std::int32_t& slot = slot_[place_of(piece)];
    if (slot >= 0) return;
    slot = std::int32_t(pieces_.size());
    pieces_.push_back(piece);
    columns_ += blocks_.width(piece);
  }
  [[nodiscard]] Index columns() const { return columns_; }
  /// All pieces have names: their sums are zero.
  void begin() { sums_.assign(pieces_.size() * most_wide * most_wide, 0.0); }
  /// The sums of a piece, most_wide numbers a row.
  [[nodiscard]] double* at(std::int32_t piece) {
    return sums_.data() + slot_[place_of(piece)] * most_wide * most_wide;
  }
  /// Writes `rows` rows, one behind the other.
  void put(Index rows, std::int32_t* column, double* value) const {
    for (Index r = 0; r < rows; ++r) {
      const double* from = sums_.data() + r * most_wide;
      for (const std::int32_t p : pieces_) {
        const std::int32_t first = blocks_.first[place_of(p)],
                           width = std::int32_t(blocks_.width(p));
        for (std::int32_t j = 0; j < width; ++j) {
          column[j] = first + j;
          value[j] = from[j];
        }
        column += width, value += width, from += most_wide * most_wide;
      }
    }
  }
  void forget() {
    for (const std::int32_t p : pieces_) slot_[place_of(p)] = -1;
    pieces_.clear();
    columns_ = 0;
  }

 private:
  const Blocks& blocks_;
  std::vector<std::int32_t> slot_, pieces_;
  std::vector<double> sums_;
  Index columns_ = 0;
};

/// Entries e ... e + inner - 1 of a row of A: they name rows of one group of B that follow one another.
struct Run {
  Index e = 0, inner = 0, group = 0;
};
/// The run that begins at entry e < length.
[[gnu::always_inline]] inline Run run_at(const std::int32_t* column, Index length, Index e,
                                         const RowGroups& b) {
  const Index k = column[e], g = b.of[place_of(k)];
  const Index most = std::min(length - e, b.first[place_of(g) + 1] - k);
  Index inner = 1;
  while (inner < most && column[e + inner] == k + inner) ++inner;
  return {e, inner, g};
}

/// Names what a row of A B has.
void name_products(const HostRows& a, Index row, const Blocks& blocks, BlockSum& sum) {
  const Index begin = a.start[place_of(row)], length = a.start[place_of(row) + 1] - begin;
  for (Index e = 0; e < length;) {
    const Run run = run_at(a.column.data() + begin, length, e, blocks.groups);
    for (Index p = blocks.start[place_of(run.group)]; p < blocks.start[place_of(run.group) + 1];
         ++p)
      sum.name(blocks.piece[place_of(p)]);
    e += run.inner;
  }
}

/// sum += scale A B of a group's rows.
TERRACE_VECTOR_CLONES
void add_products(const HostRows& a, Index row, Index rows, const double* scale,
                  const Blocks& blocks, BlockSum& sum) {
  const HostRows& b = blocks.b;
  const Index begin = a.start[place_of(row)], length = a.start[place_of(row) + 1] - begin;
  const std::int32_t* const column = a.column.data() + begin;
  for (Index e = 0; e < length;) {
    const Run run = run_at(column, length, e, blocks.groups);
    const Index from = b.start[place_of(column[e])];
    const Index ldb = b.start[place_of(column[e]) + 1] - from;
    Index at = from;
    for (Index p = blocks.start[place_of(run.group)]; p < blocks.start[place_of(run.group) + 1];
         ++p) {
      const std::int32_t piece = blocks.piece[place_of(p)];
      const Index wide = blocks.width(piece);
      add_block(wide, rows, run.inner, scale, a.value.data() + begin + e, length,
                b.value.data() + at, ldb, b.nonzeros() - at, sum.at(piece));
      at += wide;
    }
    e += run.inner;
  }
}

/// Rows whose pieces name(row, sum) names and add(row, rows, sum) sums, group by group: once to learn
/// their lengths, and once to write them where they stand.
template <class Name, class Add>
HostRows rows_of_blocks(const RowGroups& groups, const Blocks& blocks, const Name& name,
                        const Add& add) {
  HostRows result;
  result.columns = blocks.b.columns;
  result.start.assign(groups.of.size() + 1, 0);
  // Pieces with a table of columns each: a few a thread.
  const Index grain = std::max<Index>(256, ceil_div(groups.count(), 4 * Index(thread_count())));
  const auto each = [&](const auto& f) {
    parallel_ranges(groups.count(), grain, [&](Index from, Index to) {
      BlockSum sum(blocks);
      for (Index g = from; g < to; ++g) {
        const Index row = groups.first[place_of(g)];
        name(row, sum);
        f(row, groups.first[place_of(g) + 1] - row, sum);
        sum.forget();
      }
    });
  };
  each([&](Index row, Index rows, const BlockSum& sum) {
    std::fill_n(result.start.begin() + row + 1, rows, sum.columns());
  });
  for (std::size_t i = 1; i < result.start.size(); ++i) result.start[i] += result.start[i - 1];
  result.column.resize(place_of(result.nonzeros()));
  result.value.resize(place_of(result.nonzeros()));
  each([&](Index row, Index rows, BlockSum& sum) {
    sum.begin();
    add(row, rows, sum);
    const Index to = result.start[place_of(row)];
    sum.put(rows, result.column.data() + to, result.value.data() + to);
  });
  return result;
}

}  // namespace

RowGroups row_groups(const HostRows& a, Index most, const HostRows* also) {
  constexpr Index grain = 4096;
  const Index rows = a.rows();
  std::vector<char> same(place_of(rows), 0);  // as the row before
  parallel_ranges(rows, grain, [&](Index from, Index to) {
    for (Index i = std::max<Index>(1, from); i < to; ++i)
      same[place_of(i)] =
          char(same_columns(a, i, i - 1) && (also == nullptr || same_columns(*also, i, i - 1)));
  });
  RowGroups groups;
  groups.of.resize(place_of(rows));
  for (Index i = 0; i < rows; ++i) {
    if (!same[place_of(i)] || i - groups.first.back() == most) groups.first.push_back(i);
    groups.of[place_of(i)] = std::int32_t(groups.first.size()) - 1;
  }
  groups.first.push_back(rows);
  return groups;
}

bool has_company(const RowGroups& groups) {
  return groups.count() > 0 && 3 * groups.count() <= 2 * Index(groups.of.size());
}

HostRows block_product(const HostRows& a, const RowGroups& a_groups, const HostRows& b,
                       const RowGroups& b_groups) {
  const Blocks blocks(b, b_groups);
  const std::vector<double> ones(most_wide, 1.0);
  return rows_of_blocks(
      a_groups, blocks, [&](Index row, BlockSum& sum) { name_products(a, row, blocks, sum); },
      [&](Index row, Index rows, BlockSum& sum) {
        add_products(a, row, rows, ones.data(), blocks, sum);
      });
}

HostRows block_smoothed(const HostRows& a, const RowGroups& a_groups,
                        const std::vector<double>& factor, const HostRows& t,
                        const RowGroups& t_groups) {
  const Blocks blocks(t, t_groups);
  const auto own = [&](Index row, const auto& f) {  // f(piece) of T's row
    const Index g = t_groups.of[place_of(row)];
    for (Index p = blocks.start[place_of(g)]; p < blocks.start[place_of(g) + 1]; ++p)
      f(blocks.piece[place_of(p)]);
  };
  const auto is_empty = [&](Index row) {
    return t.start[place_of(row)] == t.start[place_of(row) + 1];
  };
  return rows_of_blocks(
      a_groups, blocks,
      [&](Index row, BlockSum& sum) {
        if (is_empty(row)) return;
        own(row, [&](std::int32_t piece) { sum.name(piece); });
        name_products(a, row, blocks, sum);
      },
      [&](Index row, Index rows, BlockSum& sum) {
        if (is_empty(row)) return;
        const Index from = t.start[place_of(row)], length = t.start[place_of(row) + 1] - from;
        Index at = from;
        own(row, [&](std::int32_t piece) {
          const Index width = blocks.width(piece);
          for (Index r = 0; r < rows; ++r)
            std::copy_n(t.value.begin() + at + r * length, width, sum.at(piece) + r * most_wide);
          at += width;
        });
        add_products(a, row, rows, factor.data() + row, blocks, sum);
      });
}

}  // namespace terrace::cg
