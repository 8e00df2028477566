#include "kernels/cg/products.hpp"

#include <cmath>
#include <cstring>

#include "kernels/base/random.hpp"
#include "kernels/cg/heads.hpp"
#include "kernels/cg/short_columns.hpp"
#include "tests/cg/products.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

bool close_sums(const Vector& sums, const Vector& p, const Vector& product, bool with_pp) {
  long double pq = 0, pp = 0, bound = 0;
  for (std::size_t i = 0; i < product.size(); ++i) {
    pq += static_cast<long double>(p[i]) * product[i];
    bound += std::fabs(static_cast<long double>(p[i]) * product[i]);
    if (with_pp) pp += static_cast<long double>(p[i]) * p[i];
  }
  return std::fabs(sums[0] - pq) <= 1e-13L * bound && std::fabs(sums[1] - pp) <= 1e-13L * pp;
}

/// The nearest double of 20 bits after the point, ties away from zero.
double head_of(double v) {
  int exponent = 0;
  const double fraction = std::frexp(v, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 21)), exponent - 21);
}
template <class B>
Buffer<std::uint32_t, B> heads_of(const Stream<B>& lane, const Buffer<double, B>& v) {
  Buffer<std::uint32_t, B> heads(v.size());
  take_heads(lane, v.view(), heads.view());
  return heads;
}

/// Row i gets length(i) entries in columns [-halo, columns + halo), neighbours or all over.
template <class Length>
Csr make_csr(Index rows, Index columns, Index halo, bool near, const Length& length) {
  Csr a;
  for (Index i = 0; i < rows; ++i) {
    for (Index k = 0; k < length(i); ++k) {
      const Index at =
          near ? (i + k * k) % columns
               : Index(random_word(11, Word(a.column.size()), 3) % Word(columns + 2 * halo)) - halo;
      a.column.push_back(std::int32_t(at));
      a.value.push_back(random_uniform(5, Index(a.value.size()), 2));
    }
    a.start.push_back(Index(a.column.size()));
  }
  return a;
}

/// All ways to multiply by `a`; p has `halo` entries on either side of `columns`.
template <class B>
void check_csr(const Csr& a, Index columns, Index halo) {
  const Stream<B> lane;
  const SumSpace<B> space(lane, 16);
  const Index count = a.row.empty() ? a.rows() : columns;
  const Vector p = random_numbers(columns + 2 * halo, 3), before = random_numbers(count, 4);
  const Vector own(p.begin() + halo, p.end() - halo);
  const Buffer<double, B> from = put(lane, p), no = put(lane, Vector{0}),
                          yes = put(lane, Vector{1});
  for (const bool cut : {false, true}) {
    const CsrOn<B> there(lane, a, cut);
    const Buffer<std::uint32_t, B> heads = heads_of(lane, there.value);
    ShortColumns<B> shorter;
    if (a.row.empty()) shorter = short_columns(lane, there.view(), 0);
    for (const bool add : {false, true})
      for (const bool absolute : {false, true})
        for (const bool head : {false, true}) {
          if (!a.row.empty() && !add) continue;  // rows in a list are only ever added
          if (head && absolute) continue;
          INFO("cut " << cut << " add " << add << " absolute " << absolute << " head " << head);
          CsrRows<B> rows = there.view();
          if (head) rows.head = heads;
          Sums expected(count);
          Vector product(std::size_t(count), 0.0);
          for (Index k = 0; k < a.rows(); ++k) {
            const Index i = a.row.empty() ? k : a.row[std::size_t(k)];
            for (Index e = a.start[std::size_t(k)]; e < a.start[std::size_t(k) + 1]; ++e) {
              const double stored = a.value[std::size_t(e)];
              const long double v = head ? head_of(stored) : stored;
              expected.add(i, (absolute ? std::fabs(v) : v) *
                                  p[std::size_t(halo + a.column[std::size_t(e)])]);
            }
            product[std::size_t(i)] = double(expected.value[std::size_t(i)]);
          }
          for (Index i = 0; i < count; ++i)
            if (add) expected.add(i, before[std::size_t(i)]);
          Vector first, first_sums;
          for (int time = 0; time < 2; ++time) {
            const Buffer<double, B> q = put(lane, before), sums = put(lane, Vector{0, 0});
            multiply(lane, rows, from.data() + halo, q.view(), sums_to(space, sums.view(), add),
                     absolute, no.data());
            const Vector result = get(lane, q), pair = get(lane, sums);
            if (time == 0) {
              first = result;
              first_sums = pair;
              CHECK(close(result, expected));
              CHECK(close_sums(pair, own, product, !add));
            }
            CHECK((same_bits(first, result) && same_bits(first_sums, pair)));
            if (shorter.listed.size() + shorter.near.size() > 0) {
              CsrRows<B> brief = rows;
              brief.listed = shorter.listed, brief.near = shorter.near;
              brief.distance = shorter.distance;
              const Buffer<double, B> r = put(lane, before), of_r = put(lane, Vector{0, 0});
              multiply(lane, brief, from.data() + halo, r.view(), sums_to(space, of_r.view(), add),
                       absolute, no.data());
              CHECK((same_bits(get(lane, r), first) && same_bits(get(lane, of_r), first_sums)));
            }
            multiply(lane, rows, from.data() + halo, q.view(), sums_to(space, sums.view(), add),
                     absolute, yes.data());
            CHECK((same_bits(get(lane, q), result) && same_bits(get(lane, sums), pair)));
          }
        }
    for (Index wide = 1; wide <= 16; ++wide) {
      INFO("cut " << cut << " columns " << wide);
      const Vector many = random_numbers((columns + 2 * halo) * wide, 6);
      const Buffer<double, B> ps = put(lane, many);
      for (const bool add : {false, true}) {
        if (!a.row.empty() && !add) continue;
        const Vector old = random_numbers(count * wide, 7);
        Sums expected(count * wide);
        for (Index k = 0; k < a.rows(); ++k)
          for (Index e = a.start[std::size_t(k)]; e < a.start[std::size_t(k) + 1]; ++e)
            for (Index c = 0; c < wide; ++c)
              expected.add((a.row.empty() ? k : a.row[std::size_t(k)]) * wide + c,
                           static_cast<long double>(a.value[std::size_t(e)]) *
                               many[std::size_t((halo + a.column[std::size_t(e)]) * wide + c)]);
        const Sums product = expected;
        const Vector mine(many.begin() + halo * wide, many.begin() + (halo + count) * wide);
        for (Index i = 0; i < count * wide; ++i)
          if (add) expected.add(i, old[std::size_t(i)]);
        const Vector begun(std::size_t(2 * wide), 5.0);
        const double* const origin = ps.data() + halo * wide;
        Vector first, first_sums;
        for (int time = 0; time < 3; ++time) {
          CsrRows<B> rows = there.view();
          if (time == 2) rows.listed = shorter.listed, rows.near = shorter.near;
          if (time == 2) rows.distance = shorter.distance;
          const Buffer<double, B> q = put(lane, old), sums = put(lane, begun);
          const SumTarget<B> target = sums_to(space, sums.view(), add);
          multiply_columns(lane, rows, origin, q.view(), target, wide, yes.data());
          CHECK((same_bits(get(lane, q), old) && same_bits(get(lane, sums), begun)));
          multiply_columns(lane, rows, origin, q.view(), target, wide, no.data());
          if (time == 0) {
            first = get(lane, q), first_sums = get(lane, sums);
            CHECK(close(first, expected));
            CHECK(close_columns(first_sums, mine, product, wide, !add, add ? 5 : 0));
          }
          CHECK((same_bits(get(lane, q), first) && same_bits(get(lane, sums), first_sums)));
        }
      }
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("CSR rows of all lengths times a vector and several", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  for (const Index rows : {1, 2, 31, 32, 33, 127, 129, 400})
    for (const Index length : {0, 1, 7, 8, 12, 16, 27, 32, 100}) {
      INFO("rows " << rows << " length " << length);
      check_csr<TestType>(make_csr(rows, rows, 0, true, [&](Index) { return length; }), rows, 0);
    }
}

TEMPLATE_TEST_CASE("CSR rows of mixed lengths, empty ones, one dense row", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Index big = fewer_cases ? 5000 : 100000;
  const auto mixed = [&](Index i) {
    return i == 57 ? big : i % 3 == 0 ? 0 : i % 50 == 7 ? 500 + i : i % 60;
  };
  check_csr<TestType>(make_csr(300, 2000, 90, false, mixed), 2000, 90);
  // At the sizes of a chunk, and of copies that end on 16 bytes.
  for (const Index length : {csr_chunk_entries - 1, csr_chunk_entries, csr_chunk_entries + 1,
                             2 * csr_chunk_entries, 2 * csr_chunk_entries + 1})
    for (const Index rows : {1, 5})
      check_csr<TestType>(make_csr(rows, 50, 0, false, [&](Index) { return length; }), 50, 0);
}

TEMPLATE_TEST_CASE("listed CSR rows of the other ranks' columns", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  Csr a = make_csr(120, 1000, 64, false, [](Index i) { return i == 9 ? 1500 : 1 + i % 5; });
  for (Index k = 0; k < a.rows(); ++k) a.row.push_back(3 + 8 * k);
  check_csr<TestType>(a, 1000, 64);
}

#if TERRACE_WITH_CUDA
namespace {

/// Columns of one entry per row, at these distances; said: bytes of a short column, 0 for none.
void check_short(const std::vector<Index>& distances, std::size_t said) {
  const Stream<Cuda> lane;
  Csr a;
  for (Index i = 0; i < Index(distances.size()); ++i) {
    a.column.push_back(std::int32_t(i + distances[std::size_t(i)]));
    a.value.push_back(1);
    a.start.push_back(i + 1);
  }
  const CsrOn<Cuda> there(lane, a, true);
  const ShortColumns<Cuda> made = short_columns(lane, there.view(), 0);
  const auto down = [&]<class T>(const Buffer<T, Cuda>& from) {
    std::vector<T> to(std::size_t(from.size()));
    download(lane, to.data(), from.view());
    lane.synchronize();
    return to;
  };
  const auto listed = down(made.listed);
  const auto near = down(made.near);
  const auto distance = down(made.distance);
  REQUIRE((listed.empty() ? near.empty() ? 0 : 2 : near.empty() ? 1 : 3) == said);
  bool right = true;
  for (std::size_t i = 0; i < distances.size() && said > 0; ++i)
    right = right && distances[i] == (said == 1 ? Index(distance[listed[i]]) : near[i] - 32768);
  CHECK(right);
  CHECK(short_columns(lane, there.view(), Index(1) << 50).listed.size() == 0);
}

}  // namespace

TEST_CASE("columns in a byte, in two, or whole", "[cuda][gpu]") {
  if (!context<Cuda>()) return;
  std::vector<Index> stencil, near, far;
  for (Index i = 0; i < 50000; ++i) {
    stencil.push_back((i % 3 - 1) + 256 * (i / 3 % 3 - 1) + 65536 * (i / 9 % 3 - 1));
    near.push_back(Index(random_word(3, Word(i), 0) % 65536) - 32768);
  }
  check_short(stencil, 1);
  check_short({0}, 1);
  check_short(near, 2);
  near[7] = -32768, near[8] = 32767;
  check_short(near, 2);
  near[9] = 32768;
  check_short(near, 0);
  near[9] = -32769;
  check_short(near, 0);
  for (Index i = 0; i < 20000; ++i) far.push_back(100000 + 7919 * (i % csr_most_distances));
  check_short(far, 1);
  far[11] = 5;
  check_short(far, 0);
}
#endif

TEMPLATE_TEST_CASE("slices of a band times a vector and several", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  using B = TestType;
  const Stream<B> lane;
  const SumSpace<B> space(lane, 16);
  const Buffer<double, B> no = put(lane, Vector{0}), yes = put(lane, Vector{1});
  Index turn = 0;
  const std::vector<Index> heights = {1, 2, 63, 64, 65, 128, 129, 1000, 3001};
  for (const Index rows : heights)
    for (const Index m : {0, 1, 2, 7, 16, 17, 48, 49, 64, 112, 113, 128, 255, 256, 700})
      for (const Index r0 : {Index(0), Index(m / 2), Index(m + 5)}) {
        if (rows > 1000 && (m > 256 || r0 == m / 2)) continue;
        if (fewer_cases && rows * m > 70000) continue;
        const Index n = r0 + rows + (turn++ % 3) * (m / 2 + 1);
        INFO("rows " << rows << " m " << m << " r0 " << r0 << " n " << n);
        const auto entry = [&](Index i, Index j) {
          if (i < j) std::swap(i, j);
          return j >= 0 && i < n && i - j <= m ? random_uniform(8, i, j) : 0.0;
        };
        BandRows<B> b;
        b.rows = rows;
        b.half_bandwidth = m;
        const Index w = std::min(m, rows);
        b.ld = round_up(w + rows, 16);
        Vector s(std::size_t((m + 1) * b.ld), 0.0);
        for (Index d = 0; d <= m; ++d) {
          for (Index i = 0; i < std::min(d, rows); ++i)
            s[std::size_t(d * b.ld + w + i - std::min(d, w))] = entry(r0 + i, r0 + i - d);
          for (Index j = 0; j < rows; ++j)
            s[std::size_t(d * b.ld + w + j)] = entry(r0 + j + d, r0 + j);
        }
        const Buffer<double, B> there = put(lane, s);
        const Buffer<std::uint32_t, B> heads = heads_of(lane, there);
        b.s = there;
        const Index columns = turn % 16 + 1;
        for (const Index wide : {Index(0), columns}) {  // 0: one vector, with sums
          const Index each = std::max<Index>(wide, 1);
          Vector p(std::size_t((rows + 2 * m) * each), 0.0);
          for (Index i = -m; i < rows + m; ++i)
            for (Index c = 0; c < each && r0 + i >= 0 && r0 + i < n; ++c)
              p[std::size_t((i + m) * each + c)] = random_uniform(9, r0 + i, c);
          const Buffer<double, B> from = put(lane, p);
          const double* const origin = from.data() + m * each;
          const Buffer<double, B> scratch(each * band_scratch(B{}, rows, m));
          for (const int way : {0, 1, 2}) {
            const bool absolute = way == 1, head = way == 2;
            if (wide > 0 && way > 0) continue;
            INFO("columns " << wide << " absolute " << absolute << " head " << head);
            b.head = head ? heads.view() : View<std::uint32_t, B>{};
            Sums expected(rows * each);
            for (Index i = 0; i < rows; ++i)
              for (Index j = i - m; j <= i + m; ++j)
                for (Index c = 0; c < each; ++c) {
                  const double stored = entry(r0 + i, r0 + j);
                  const long double v = head ? head_of(stored) : stored;
                  expected.add(i * each + c,
                               (absolute ? std::fabs(v) : v) * p[std::size_t((j + m) * each + c)]);
                }
            const Vector old = random_numbers(rows * each, 2);
            Vector first, first_sums;
            for (int time = 0; time < 2; ++time) {
              const Vector fives(std::size_t(2 * each), 5.0);
              const Buffer<double, B> q = put(lane, old), sums = put(lane, fives);
              const auto product = [&](const double* skip) {
                if (wide == 0)
                  multiply(lane, b, origin, q.view(), scratch.view(), sums_to(space, sums.view()),
                           absolute, skip);
                else
                  multiply_columns(lane, b, origin, q.view(), scratch.view(),
                                   sums_to(space, sums.view()), wide, skip);
              };
              product(yes.data());
              CHECK((same_bits(get(lane, q), old) && same_bits(get(lane, sums), fives)));
              product(no.data());
              const Vector result = get(lane, q), found = get(lane, sums);
              if (time == 0) {
                first = result, first_sums = found;
                CHECK(close(result, expected));
                CHECK(close_columns(found, Vector(p.begin() + m * each, p.end() - m * each),
                                    expected, each, true));
              }
              CHECK((same_bits(first, result) && same_bits(first_sums, found)));
            }
          }
        }
      }
}

TEMPLATE_TEST_CASE("dense rows times several vectors", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  using B = TestType;
  const Stream<B> lane;
  for (const Index n : {1, 15, 16, 17, 200})
    for (const Index rows : {Index(1), (n + 1) / 2, n})
      for (const Index wide : {1, 2, 7, 16}) {
        INFO("n " << n << " rows " << rows << " columns " << wide);
        const Index ld = round_up(n, 16);
        Vector a(std::size_t(rows * ld), 0.0), p(std::size_t(ld * wide), 0.0);
        Sums expected(rows * wide);
        for (Index k = 0; k < n * wide; ++k) p[std::size_t(k)] = random_uniform(4, k, 0);
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < n; ++j) {
            a[std::size_t(i * ld + j)] = random_uniform(3, i, j);
            for (Index c = 0; c < wide; ++c)
              expected.add(i * wide + c, static_cast<long double>(a[std::size_t(i * ld + j)]) *
                                             p[std::size_t(j * wide + c)]);
          }
        const Buffer<double, B> there = put(lane, a), from = put(lane, p), q(rows * wide);
        multiply_columns(lane, DenseRows<B>{there, rows, ld}, from.data(), q.view(), wide);
        CHECK(close(get(lane, q), expected));
      }
}
