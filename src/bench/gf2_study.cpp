#include "src/bench/gf2_study.hpp"

#include <fmt/core.h>

#include <numeric>

#include "kernels/bits_columns.hpp"
#include "src/bit_matrix.hpp"

namespace terrace {

namespace {

template <class Work>
[[maybe_unused]] double seconds_of(const Context<Cuda>& context, Work&& work) {
  const auto begin = context.bulk.record();
  work();
  const auto end = context.bulk.record();
  context.bulk.synchronize();
  return seconds_between(begin, end);
}

void keep(Run& run, nlohmann::json line, double seconds) {
  line["who"] = "study";
  line["seconds"] = seconds;
  run.report["runs"].push_back(std::move(line));
}

/// A matrix with what the column-by-column elimination keeps beside it.
struct Columns {
  BitMatrix<Cuda> matrix;
  Buffer<Index, Cuda> order, state;
  std::vector<Index> identity;

  Columns(const Context<Cuda>& context, Index n, double density)
      : matrix(context, {n, n, 1}, ceil_div(n, 64)), order(n), state(2), identity(std::size_t(n)) {
    std::iota(identity.begin(), identity.end(), 0);
    source = random_source(context, {1, n, false, n, density}, matrix.layout);
  }
  void restart(const Context<Cuda>& context) {
    load(context, source, matrix);
    upload(context.bulk, order.view(), identity.data());
    const Index start[2] = {0, -1};
    upload(context.bulk, state.view(), start);
    context.bulk.synchronize();
  }
  [[nodiscard]] ColumnGauss gauss(bool swap, int search_threads, int subtract_threads) const {
    BitRows<Word, Cuda> rows = matrix.rows();
    if (!swap) rows.list = order.data();
    return {rows,           swap ? nullptr : order.data(),
            matrix.words,   state.data(),
            search_threads, subtract_threads};
  }
  BitSource<Cuda> source;
};

[[maybe_unused]] void study_search(Run& run, const Context<Cuda>& context, Index n,
                                   double density) {
  Columns columns(context, n, density);
  columns.restart(context);
  const Index tried = std::min<Index>(n, 512);
  std::string line;
  for (int threads = 32; threads <= 1024; threads *= 2) {
    const ColumnGauss gauss = columns.gauss(true, threads, 256);
    const auto search = [&] {
      for (Index c = 0; c < tried; ++c) search_column(context.bulk, gauss, c * (n / tried), false);
    };
    search();
    const double seconds = seconds_of(context, search) / double(tried);
    line += fmt::format(" {}: {:.2f}", threads, 1e6 * seconds);
    keep(run, {{"study", "pivot search"}, {"n", n}, {"density", density}, {"threads", threads}},
         seconds);
  }
  run.say(fmt::format("n = {:>6}, density {:<7}, us a search (with its launch) by threads{}", n,
                      density, line));
}

[[maybe_unused]] void study_elimination(Run& run, const Context<Cuda>& context, Index n,
                                        double density) {
  Columns columns(context, n, density);
  for (const bool swap : {true, false}) {
    std::string line;
    for (const int threads : {64, 128, 256, 512}) {
      const ColumnGauss gauss = columns.gauss(swap, density < 0.01 ? 1024 : 256, threads);
      columns.restart(context);
      const double seconds = seconds_of(context, [&] {
        for (Index c = 0; c < n; ++c) {
          search_column(context.bulk, gauss, c, true);
          clear_column(context.bulk, gauss, c);
        }
      });
      Index state[2];
      download(context.bulk, state, columns.state.view());
      context.bulk.synchronize();
      line += fmt::format(" {}: {:.4f}", threads, seconds);
      keep(run,
           {{"study", "elimination column by column"},
            {"n", n},
            {"density", density},
            {"rows", swap ? "swapped" : "index array"},
            {"threads", threads},
            {"rank", state[0] + (state[1] >= 0)}},
           seconds);
    }
    run.say(fmt::format("n = {:>6}, density {:<7}, {:<11}, seconds by threads of a block{}", n,
                        density, swap ? "swapped" : "index array", line));
  }
}

void study(Run&, Context<Cpu>&, const std::vector<Index>&) {
  fail_together(Exit::usage, "the study measures a GPU; --study; add --backend cuda on one");
}
[[maybe_unused]] void study(Run& run, Context<Cuda>& context, const std::vector<Index>& sizes) {
  if (context.size() > 1)
    fail_together(Exit::usage, "the study measures one device; --study; start one rank");
  run.report["runs"] = nlohmann::json::array();
  for (const Index n : sizes)
    for (const double density : {0.5, 1e-3, 1e-4}) study_search(run, context, n, density);
  for (const Index n : sizes)
    for (const double density : {0.5, 1e-3}) study_elimination(run, context, n, density);
}

}  // namespace

template <class B>
void study_gf2(Run& run, Context<B>& context, const std::vector<Index>& sizes) {
  study(run, context, sizes);
}

#define TERRACE_INSTANTIATE(B) \
  template void study_gf2(Run&, Context<B>&, const std::vector<Index>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
