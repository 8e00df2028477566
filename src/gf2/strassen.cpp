#include "src/gf2/strassen.hpp"

#include <algorithm>
#include <cmath>

namespace terrace::gf2 {

namespace {

constexpr Index inner_step = 64 * bit_row_alignment;  // bits; columns of A are cut at these

/// rows x inner bits times inner x words words.
struct Shape {
  Index rows, inner, words;

  [[nodiscard]] Shape first() const {
    return {rows / 2, inner / (2 * inner_step) * inner_step,
            words / (2 * bit_row_alignment) * bit_row_alignment};
  }
  /// Not smaller than first().
  [[nodiscard]] Shape second() const {
    const Shape f = first();
    return {rows - f.rows, inner - f.inner, words - f.words};
  }
  [[nodiscard]] Index inner_words() const { return round_up(inner, inner_step) / 64; }
  [[nodiscard]] Index temporaries() const {
    return rows * inner_words() + inner * words + rows * words;
  }
};

/// Words of all levels' temporaries; every product of a level fits second().
Index all_temporaries(Shape shape, int levels) {
  Index sum = 0;
  for (; levels > 0; --levels) {
    shape = shape.second();
    sum += shape.temporaries();
  }
  return sum;
}

/// The largest leaf, as BitProduct takes it: inner rows in steps of `panel`.
Shape leaf_shape(Shape shape, int levels, Index panel) {
  for (; levels > 0; --levels) shape = shape.second();
  return {std::max<Index>(1, shape.rows),
          std::clamp<Index>(round_up(shape.inner, 64), 64, std::max<Index>(64, panel)),
          std::max(bit_row_alignment, shape.words)};
}

/// Three of the size of the longer halves, one after the other.
template <class B>
struct Temporaries {
  BitRows<Word, B> s, t, x;
  Temporaries(const Shape& two, Word* free)
      : s{free, two.inner_words(), two.rows, nullptr},
        t{s.data + two.rows * two.inner_words(), two.words, two.inner, nullptr},
        x{t.data + two.inner * two.words, two.words, two.rows, nullptr} {}
};

template <class Rows>
Rows window(Rows rows, Index row, Index count, Index word) {
  return {rows.data + row * rows.stride + word, rows.stride, count, nullptr};
}
template <class Rows>
Rows top(Rows rows, Index count) {
  return window(rows, 0, count, 0);
}

}  // namespace

int admitted_levels(Index rows, Index inner, Index words, int levels) {
  Shape shape{rows, inner, words};
  for (int level = 0; level < levels; ++level) {
    shape = shape.first();
    if (shape.rows == 0 || shape.inner == 0 || shape.words == 0) return level;
  }
  return levels;
}

int strassen_levels(Index rows, Index inner, Index columns, Index leaf) {
  int levels = 0;
  for (Index side = std::min({rows, inner, columns}) / 2; side >= leaf; side /= 2) ++levels;
  return std::min(levels, most_strassen_levels);
}

template <class B>
BitStrassen<B>::BitStrassen(Index rows, Index inner, Index words, int levels, Index panel,
                            ProductMethod method)
    : levels_(admitted_levels(rows, inner, words, levels)) {
  const Shape shape{rows, inner, words}, leaf = leaf_shape(shape, levels_, panel);
  rows_ = leaf.rows, panel_ = leaf.inner, words_ = leaf.words;
  leaf_ = BitProduct<B>(rows_, panel_, words_, method);
  temporaries_ = Buffer<Word, B>(all_temporaries(shape, levels_));
}

template <class B>
Index BitStrassen<B>::bytes(Index rows, Index inner, Index words, int levels, Index panel,
                            ProductMethod method) {
  levels = admitted_levels(rows, inner, words, levels);
  const Shape shape{rows, inner, words}, leaf = leaf_shape(shape, levels, panel);
  return Index(sizeof(Word)) * all_temporaries(shape, levels) +
         BitProduct<B>::bytes(leaf.rows, leaf.inner, leaf.words, method);
}

template <class B>
void BitStrassen<B>::add(const Stream<B>& stream, BitRows<const Word, B> a,
                         BitRows<const Word, B> b, BitRows<Word, B> c, Index words,
                         const Hooks& hooks) {
  a.count = c.count;
  const int most = levels(c.count, b.count, words);
  leaves_ = std::pow(7.0, most);
  leaves_done_ = most > 0 ? double(hooks.first) * leaves_ / 7 : 0;
  product(stream, a, b, c, words, most, temporaries_.data(), hooks);
}

template <class B>
int BitStrassen<B>::levels(Index rows, Index inner, Index words) const {
  int levels = admitted_levels(rows, inner, words, levels_);
  while (all_temporaries({rows, inner, words}, levels) > temporaries_.size()) --levels;
  return levels;
}
template <class B>
Index BitStrassen<B>::steps(Index rows, Index inner, Index words) const {
  return levels(rows, inner, words) > 0 ? 7 : ceil_div(inner, panel_);
}
template <class B>
BitRows<Word, B> BitStrassen<B>::sums(Index rows, Index inner, Index words) const {
  return Temporaries<B>(Shape{rows, inner, words}.second(), temporaries_.data()).x;
}

// In steps that the memory of leaf_ holds.
template <class B>
void BitStrassen<B>::leaf(const Stream<B>& stream, BitRows<const Word, B> a,
                          BitRows<const Word, B> b, BitRows<Word, B> c, Index words,
                          const Hooks& hooks) {
  for (Index first = hooks.first * panel_; first < b.count; first += panel_) {
    const Index inner = std::min(panel_, b.count - first);
    if (hooks.need) hooks.need(first + inner);
    for (Index word = 0; word < words; word += words_) {
      const Index width = std::min(words_, words - word);
      leaf_.set_right(stream, window(b, first, inner, word), width);
      for (Index row = 0; row < c.count; row += rows_) {
        const Index count = std::min(rows_, c.count - row);
        leaf_.set_left(stream, window(a, row, count, first / 64));
        leaf_.add(stream, window(c, row, count, word), 0, 0, width);
      }
    }
    if (hooks.enqueued)
      hooks.enqueued((leaves_done_ + double(first + inner) / double(b.count)) / leaves_);
    if (hooks.between && first + inner < b.count) hooks.between(first / panel_ + 1);
  }
  ++leaves_done_;
}

template <class B>
void BitStrassen<B>::product(const Stream<B>& stream, BitRows<const Word, B> a,
                             BitRows<const Word, B> b, BitRows<Word, B> c, Index words, int levels,
                             Word* free, const Hooks& hooks) {
  if (levels == 0) {
    leaf(stream, a, b, c, words, hooks);
    return;
  }
  using In = BitRows<const Word, B>;
  using Out = BitRows<Word, B>;
  const Shape all{c.count, b.count, words}, one = all.first(), two = all.second();
  const Index m1 = one.rows, m2 = two.rows, k1 = one.inner, k2 = two.inner;
  const Index n1 = one.words, n2 = two.words;
  const Index w1 = one.inner_words(), w2 = two.inner_words();  // widths of A's halves
  const In a11 = window(a, 0, m1, 0), a12 = window(a, 0, m1, w1);
  const In a21 = window(a, m1, m2, 0), a22 = window(a, m1, m2, w1);
  const In b11 = window(b, 0, k1, 0), b12 = window(b, 0, k1, n1);
  const In b21 = window(b, k1, k2, 0), b22 = window(b, k1, k2, n1);
  const Out c11 = window(c, 0, m1, 0), c12 = window(c, 0, m1, n1);
  const Out c21 = window(c, m1, m2, 0), c22 = window(c, m1, m2, n1);
  const Temporaries<B> temporaries(two, free);
  const Out s = temporaries.s, t = temporaries.t, x = temporaries.x;
  Word* const rest = x.data + m2 * n2;

  const auto multiply_add = [&](In left, In right, Out out, Index width) {
    product(stream, left, right, out, width, levels - 1, rest, {nullptr, hooks.enqueued});
  };
  const auto add = [&](Out out, Index width, In left, Index left_width, In right,
                       Index right_width) {
    add_bits(stream, out, width, left, left_width, right, right_width);
  };
  const auto accumulate = [&](Out out, In more, Index width) {
    add_bits(stream, out, width, out, width, more, width);
  };
  const auto clear_x = [&] { fill_zero(stream, View<Word, B>{x.data, m2 * n2}); };

  // S and T are made again where products that were done before are left out.
  Index done = 0;
  const auto step = [&](auto&& work) {
    if (done++ < hooks.first) return;
    work();
    if (hooks.between && done < 7) hooks.between(done);
  };

  if (hooks.need) hooks.need(k1);
  add(s, w2, a21, w1, a22, w2);           // S1 = A21 + A22
  add(top(t, k1), n2, b11, n1, b12, n2);  // T1 = B11 + B12
  step([&] {
    clear_x();
    multiply_add(s, top(t, k1), x, n2);  // X = P5 = S1 T1; T1 has no more rows
    accumulate(c12, x, n2);              // C12 += P5
    accumulate(c22, x, n2);              // C22 += P5
  });

  if (hooks.need) hooks.need(all.inner);
  accumulate(top(s, m1), a11, w1);      // S2 = S1 + A11
  add(t, n2, top(t, k1), n2, b22, n2);  // T2 = T1 + B22
  step([&] {
    clear_x();
    multiply_add(a11, b11, top(x, m1), n1);  // X = P1 = A11 B11
    accumulate(c11, x, n1);                  // C11 += P1
  });
  step([&] { multiply_add(a12, b21, c11, n1); });  // C11 += P2 = A12 B21
  step([&] {
    multiply_add(s, t, x, n2);  // X = P1 + P6, P6 = S2 T2
    accumulate(c12, x, n2);     // C12 += P1 + P6
  });

  accumulate(top(s, m1), a12, w2);                        // S4 = S2 + A12
  step([&] { multiply_add(top(s, m1), b22, c12, n2); });  // C12 += P3 = S4 B22
  accumulate(t, b21, n1);                                 // T4 = T2 + B21
  step([&] { multiply_add(a22, t, c21, n1); });           // C21 += P4 = A22 T4

  add(s, w1, a11, w1, a21, w1);                    // S3 = A11 + A21
  add(top(t, k1), n2, top(b22, k1), n2, b12, n2);  // T3 = B22 + B12; S3 has no more columns
  step([&] {
    multiply_add(s, top(t, k1), x, n2);  // X = P1 + P6 + P7, P7 = S3 T3
    accumulate(c21, x, n1);
    accumulate(c22, x, n2);
  });
}

#define TERRACE_INSTANTIATE(B) template class BitStrassen<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
