#include "src/api/terrace/gf2.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/rows.hpp"
#include "src/api/held.hpp"
#include "src/api/inside.hpp"
#include "src/gf2/backend.hpp"
#include "src/gf2/multiply.hpp"
#include "src/gf2/system.hpp"

namespace terrace::api::gf2 {

namespace {

using terrace::gf2::BitMatrix;
using terrace::gf2::BitPlan;
using terrace::gf2::BitRequest;
using terrace::gf2::BitResult;
using terrace::gf2::BitSink;
using terrace::gf2::BitSource;
using terrace::gf2::BitTask;

constexpr Index certificate_seed = 1;

/// The caller's rows as the solvers read them. Bits behind the last column are cleared.
template <class T, class B>
BitSource<B> source(terrace::Context<B>& context, const Held<T, B>& held, Index columns,
                    BlockCyclic layout) {
  BitSource<B> source{held.holders().extent(), columns, {}};
  const Index words = source.words();
  source.read = [&context, &held, columns, words, layout](const BitSink<B>& sink) {
    const auto ranges = layout.ranges(context.rank());
    const Index chunk = std::min(terrace::gf2::staging_rows(words),
                                 std::max<Index>(1, layout.slots(context.rank())));
    const auto staging = collectively(context.control, [&] {
      return Buffer<Word, B>(std::is_same_v<B, Cpu> && columns % 64 == 0 ? 0 : chunk * words);
    });
    const bool as_it_is = std::is_same_v<B, Cpu> && columns % 64 == 0;
    const auto take = [&](Index position, Index count, const Word* data) {
      for (Index i = 0; i < count; i += chunk) {
        const Index rows = std::min(chunk, count - i);
        const Word* from = data + i * words;
        if (!as_it_is) {
          upload(context.bulk, staging.view().slice(0, rows * words), from);
          from = staging.data();
        }
        if (columns % 64 != 0)
          mask_words(context.bulk, rows, (Word(1) << (columns % 64)) - 1,
                     staging.data() + words - 1, words);
        sink(position + i, {from, words, rows, nullptr});
        context.bulk.synchronize();
      }
    };
    held.read(ranges, take, true);
  };
  return source;
}

/// An elimination of the caller's matrix: its parts, in their order.
template <class B>
struct Elimination {
  Context::Inside& ranks;
  terrace::Context<B>& context;
  AskingProgress progress;
  BitPlan plan;
  BitSource<B> a, b;
  BitResult<B> found;
  Report report;

  Elimination(Context::Inside& inside, terrace::Context<B>& on, Index rows, Index columns,
              Index right, BitTask task, bool transform = false)
      : ranks(inside), context(on), progress(inside) {
    BitRequest request;
    request.task = task;
    request.seed = certificate_seed;
    request.certify = inside.options.check;
    request.transform = transform;
    request.guard = inside.options.guard;
    plan = terrace::gf2::plan_bits(on, rows, columns, right, request);
    const auto [host, device] =
        terrace::gf2::host_and_device<B>(terrace::gf2::bits_memory<B>(plan, inside.control.size()));
    inside.require(host, device);
  }
  void solve() {
    timed(report.seconds.prepare, [&] {
      found.matrix = collectively(
          context.control, [&] { return BitMatrix<B>(context, plan.layout, plan.all_words()); });
      terrace::gf2::load_bits(context, plan, a, b, found.matrix);
    });
    timed(report.seconds.solve, [&] {
      found = terrace::gf2::reduce_bits(context, plan, std::move(found.matrix), progress);
    });
    report.rank = found.pivots.rank();
    report.pivots = found.pivots.columns;
  }
  void check() {
    if (!plan.certify) return;
    const std::string broken = timed(report.seconds.check, [&] {
      return terrace::gf2::certify_bits(context, plan, a, b, found);
    });
    if (!broken.empty()) check_failed("the certificate does not hold: " + broken);
    report.certified = true;
  }
  void give(const Held<Word, B>& to, const BitMatrix<B>& from, Index word, Index words,
            std::span<const Index> destination) {
    timed(report.seconds.give, [&] {
      to.write(destination, terrace::gf2::row_source<B>(context, from.rows(), word, words), true);
    });
  }
};

Index words_of(Index columns) { return ceil_div(columns, 64); }

void require_columns(Index columns, Index wanted, const char* what) {
  if (columns != wanted)
    fail_together(Exit::usage, fmt::format("'{}' has {} columns, not {}; Local::columns; give as "
                                           "many as the product has",
                                           what, columns, wanted));
}

Report reduced(Context& context, Index rows, const Local<Word>& a, const Local<Word>* transform,
               Form form) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    There there(a);
    if (transform) there.note(*transform);
    ranks.require_alike({{"rows", rows},
                         {"Local::columns of a", a.columns},
                         {"Local::columns of transform", transform ? transform->columns : -1},
                         {"the form", form}});
    if (transform) require_columns(transform->columns, rows, "transform");
    return with_backend(
        ranks, there, terrace::gf2::elimination_hint(rows, a.columns),
        [&]<class B>(terrace::Context<B>& on) {
          const Held<Word, B> held(on, rows, a, words_of(a.columns), "a");
          std::optional<Held<Word, B>> t;
          if (transform) t.emplace(on, rows, *transform, words_of(rows), "transform");
          Elimination<B> work(ranks, on, rows, a.columns, 0,
                              form == Form::reduced ? BitTask::rref : BitTask::echelon,
                              transform != nullptr);
          work.a = source(on, held, a.columns, work.plan.layout);
          work.solve();
          work.check();
          const std::vector<Index> places = terrace::gf2::destination_of(work.found);
          work.give(held, work.found.matrix, 0, work.plan.words(), places);
          if (t)
            work.give(*t, work.found.matrix, work.plan.words(), work.plan.right_words(), places);
          return work.report;
        });
  });
}

}  // namespace

Report reduce(Context& context, std::int64_t rows, Local<Word> a, Form form) {
  return reduced(context, rows, a, nullptr, form);
}
Report reduce(Context& context, std::int64_t rows, Local<Word> a, Local<Word> transform,
              Form form) {
  return reduced(context, rows, a, &transform, form);
}

Report rank(Context& context, std::int64_t rows, Local<const Word> a) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    ranks.require_alike({{"rows", rows}, {"Local::columns of a", a.columns}});
    return with_backend(ranks, There(a), terrace::gf2::elimination_hint(rows, a.columns),
                        [&]<class B>(terrace::Context<B>& on) {
                          const Held<const Word, B> held(on, rows, a, words_of(a.columns), "a");
                          Elimination<B> work(ranks, on, rows, a.columns, 0, BitTask::rank);
                          work.a = source(on, held, a.columns, work.plan.layout);
                          work.solve();
                          work.check();
                          return work.report;
                        });
  });
}

Report solve(Context& context, std::int64_t rows, Local<const Word> a, Local<const Word> b,
             Local<Word> x) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    ranks.require_alike({{"rows", rows},
                         {"Local::columns of a", a.columns},
                         {"Local::columns of b", b.columns},
                         {"Local::columns of x", x.columns}});
    require_columns(x.columns, b.columns, "x");
    return with_backend(
        ranks, There(a, b, x), terrace::gf2::elimination_hint(rows, a.columns),
        [&]<class B>(terrace::Context<B>& on) {
          const Held<const Word, B> matrix(on, rows, a, words_of(a.columns), "a");
          const Held<const Word, B> right(on, rows, b, words_of(b.columns), "b");
          const Held<Word, B> result(on, a.columns, x, words_of(b.columns), "x");
          Elimination<B> work(ranks, on, rows, a.columns, b.columns, BitTask::solve);
          work.a = source(on, matrix, a.columns, work.plan.layout);
          work.b = source(on, right, b.columns, work.plan.layout);
          work.solve();
          if (!work.found.consistent)
            no_result(
                "the system is inconsistent: no X has A X = B; in the right-hand sides; check "
                "them",
                -1);
          work.check();
          work.give(result, work.found.x.rows, 0, work.plan.right_words(),
                    work.found.x.destination);
          return work.report;
        });
  });
}

Report inverse(Context& context, std::int64_t n, Local<Word> a) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    ranks.require_alike({{"n", n}, {"Local::columns of a", a.columns}});
    require_columns(a.columns, n, "a");
    return with_backend(
        ranks, There(a), terrace::gf2::elimination_hint(n, n),
        [&]<class B>(terrace::Context<B>& on) {
          const Held<Word, B> held(on, n, a, words_of(n), "a");
          Elimination<B> work(ranks, on, n, n, 0, BitTask::inverse);
          work.a = source(on, held, n, work.plan.layout);
          work.solve();
          if (const Index zero = work.found.pivots.first_zero_pivot; zero >= 0)
            no_result(fmt::format("the matrix is singular: column {} depends on the columns before "
                                  "it; in 'a'; it has no inverse",
                                  zero),
                      zero);
          work.check();
          work.give(held, work.found.matrix, 0, work.plan.words(),
                    terrace::gf2::destination_of(work.found));
          return work.report;
        });
  });
}

Basis kernel(Context& context, std::int64_t rows, Local<const Word> a) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    ranks.require_alike({{"rows", rows}, {"Local::columns of a", a.columns}});
    return with_backend(
        ranks, There(a), terrace::gf2::elimination_hint(rows, a.columns),
        [&]<class B>(terrace::Context<B>& on) {
          const Held<const Word, B> held(on, rows, a, words_of(a.columns), "a");
          Elimination<B> work(ranks, on, rows, a.columns, 0, BitTask::kernel);
          work.a = source(on, held, a.columns, work.plan.layout);
          work.solve();
          work.check();
          Basis basis;
          basis.columns = a.columns;
          basis.ld = words_of(a.columns);
          basis.dimension = a.columns - work.report.rank;
          const BlockCyclic share = contiguous(basis.dimension, on.size());
          const Index first = std::min(basis.dimension, share.block * on.rank());
          basis.rows = Rows::range(first, std::min(share.block, basis.dimension - first));
          collectively(on.control,
                       [&] { basis.words.resize(std::size_t(basis.rows.count * basis.ld)); });
          const Held<Word, B> to(
              on, basis.dimension,
              Local<Word>{basis.words.data(), basis.rows, basis.columns, basis.ld}, basis.ld,
              "basis");
          const BitMatrix<B>& found = work.found.basis;
          std::vector<Index> places;
          for (Index slot = 0; slot < found.slots(); ++slot)
            places.push_back(found.layout.global(slot, on.rank()));
          work.give(to, found, 0, basis.ld, places);
          basis.report = work.report;
          return basis;
        });
  });
}

Report multiply(Context& context, std::int64_t rows, Local<const Word> a, Local<const Word> b,
                Local<Word> c) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    const Index inner = a.columns, columns = b.columns;
    ranks.require_alike({{"rows", rows},
                         {"Local::columns of a", inner},
                         {"Local::columns of b", columns},
                         {"Local::columns of c", c.columns}});
    require_columns(c.columns, columns, "c");
    return with_backend(
        ranks, There(a, b, c), terrace::gf2::product_hint(rows, inner, columns),
        [&]<class B>(terrace::Context<B>& on) {
          const Held<const Word, B> left(on, rows, a, words_of(inner), "a");
          const Held<const Word, B> right(on, inner, b, words_of(columns), "b");
          const Held<Word, B> result(on, rows, c, words_of(columns), "c");
          AskingProgress progress(ranks);
          terrace::gf2::PanelWish wish;
          wish.guard = ranks.options.guard;
          const auto plan =
              terrace::gf2::plan_product(on, rows, inner, columns, wish, -1, progress);
          const BitSource<B> from_a = source(on, left, inner, plan.layout);
          const BitSource<B> from_b = source(on, right, columns, plan.b_layout);
          Report report;
          auto factors = timed(report.seconds.prepare, [&] {
            return terrace::gf2::read_factors(on, plan, from_a, from_b);
          });
          timed(report.seconds.solve, [&] {
            terrace::gf2::multiply_bits(on, factors.a, factors.b, factors.c, inner, factors.memory,
                                        progress);
          });
          if (ranks.options.check) {
            const std::string broken = timed(report.seconds.check, [&] {
              return terrace::gf2::certify_product(on, plan, from_a, from_b, factors,
                                                   terrace::gf2::witness_seed(certificate_seed),
                                                   progress, {[] {}, [] {}});
            });
            if (!broken.empty()) check_failed("the certificate does not hold: " + broken);
            report.certified = true;
          }
          std::vector<Index> places;
          for (Index slot = 0; slot < factors.c.slots(); ++slot)
            places.push_back(factors.c.layout.global(slot, on.rank()));
          timed(report.seconds.give, [&] {
            result.write(
                places, terrace::gf2::row_source<B>(on, factors.c.rows(), 0, plan.b_words()), true);
          });
          return report;
        });
  });
}

}  // namespace terrace::api::gf2
