#include "src/bench/gf2_study.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "distrib/agree.hpp"
#include "kernels/gf2/codes.hpp"
#include "src/bench/gf2.hpp"

namespace terrace::gf2 {

namespace {

constexpr double longest = 25;  // seconds of one elimination that a study may take

/// A measurement and the words that say what of; seconds < 0: left out.
void keep(Run& run, nlohmann::json line, double seconds, const std::string& reason = {}) {
  line["who"] = "study";
  line["seconds"] = seconds < 0 ? nlohmann::json() : nlohmann::json(seconds);
  if (seconds < 0) line["reason"] = reason;
  run.report["runs"].push_back(std::move(line));
}

/// Seconds (a median where they are short) and rank of whole eliminations, certified.
template <class B>
std::pair<double, Index> eliminate_study(Run& run, Context<B>& context, Index n, double density,
                                         PanelPlan panels) {
  panels.witness = witness_seed(run.options.seed);
  const BitPlan plan{BitTask::rank, true, bit_row_layout(n, 1), n, 0, panels};
  const auto source =
      random_source(context, RandomBits{Word(run.options.seed), n, false, n, density}, plan.layout);
  BitResult<B> found;
  found.matrix = BitMatrix<B>(context, plan.layout, plan.all_words());
  Progress quiet(false, false);
  std::vector<double> seconds;
  while (seconds.empty() || (seconds.size() < 3 && seconds[0] < 1)) {
    load_bits(context, plan, source, {}, found.matrix);
    seconds.push_back(timed(context, nullptr, [&] {
      found = reduce_bits(context, plan, std::move(found.matrix), quiet);
    }));
  }
  const std::string broken = certify_bits(context, plan, source, {}, found);
  if (!broken.empty())
    run.outcome("check-failed",
                fmt::format("the certificate does not hold, {}; bench gf2 --study --n {}; please "
                            "report this as a bug",
                            broken, n));
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], found.pivots.rank()};
}

/// The plan of an elimination column by column; its kernels are loaded.
template <class B>
PanelPlan column_plan(Run& run, Context<B>& context, ColumnShape shape, bool swap, PivotPath path) {
  PanelPlan plan{64};
  plan.by_columns = true;
  plan.column_shape = shape;
  plan.column_swap = swap;
  plan.column_path = path;
  eliminate_study(run, context, 64, 0.5, plan);
  return plan;
}

void require_rank(Run& run, Index& known, Index rank, Index n) {
  if (known < 0) known = rank;
  if (rank != known)
    run.outcome("check-failed",
                fmt::format("two eliminations of one matrix give the ranks {} and {}; bench gf2 "
                            "--study --n {}; please report this as a bug",
                            known, rank, n));
}

template <class B>
void study_search(Run& run, Context<B>& context, Index n, double density) {
  std::string text;
  Index rank = -1;
  double last = 0;
  int last_threads = 1024;
  for (const int threads : {1024, 512, 300, 256, 128, 64, 32, 1}) {
    nlohmann::json line = {
        {"study", "search"}, {"n", n}, {"density", density}, {"threads", threads}};
    const double expected = last * last_threads / threads;  // at most
    if (expected > longest) {
      keep(run, line, -1, fmt::format("may take {:.0f} s", expected));
      text += fmt::format(" {}: -", threads);
      continue;
    }
    ColumnShape shape;
    shape.search_threads = threads;
    const PanelPlan plan = column_plan(run, context, shape, false, PivotPath::plain);
    const auto [seconds, found] = eliminate_study(run, context, n, density, plan);
    require_rank(run, rank, found, n);
    line["rank"] = found;
    line["certificate"] = "passed";
    keep(run, line, seconds);
    text += fmt::format(" {}: {:.4f}", threads, seconds);
    last = seconds, last_threads = threads;
  }
  run.say(fmt::format("n = {:>6}, density {:<7}, rank {:>6}, seconds by threads of the search{}", n,
                      density, rank, text));
}

template <class B>
void study_rows(Run& run, Context<B>& context, Index n, double density) {
  for (const bool swap : {true, false}) {
    std::string text;
    Index rank = -1;
    for (const int threads : {64, 128, 256, 512}) {
      if (std::is_same_v<B, Cpu> && threads != 256) continue;  // of a block: a GPU's
      ColumnShape shape;
      shape.threads = threads;
      const PanelPlan plan = column_plan(run, context, shape, swap, PivotPath::plain);
      const auto [seconds, found] = eliminate_study(run, context, n, density, plan);
      require_rank(run, rank, found, n);
      keep(run,
           {{"study", "rows"},
            {"n", n},
            {"density", density},
            {"rows", swap ? "swapped" : "index array"},
            {"threads", threads},
            {"rank", found},
            {"certificate", "passed"}},
           seconds);
      text += fmt::format(" {}: {:.4f}", threads, seconds);
    }
    run.say(fmt::format("n = {:>6}, density {:<7}, {:<11}, seconds by threads of a block{}", n,
                        density, swap ? "swapped" : "index array", text));
  }
}

template <class B>
void study_paths(Run& run, Context<B>& context, Index n) {
  constexpr const char* names[] = {"plain", "shared", "constant", "texture"};
  std::string text;
  Index rank = -1;
  for (const PivotPath path :
       {PivotPath::plain, PivotPath::shared, PivotPath::constant, PivotPath::texture}) {
    const char* name = names[std::size_t(path)];
    const PanelPlan plan = column_plan(run, context, {}, false, path);
    const auto [seconds, found] = eliminate_study(run, context, n, 0.5, plan);
    require_rank(run, rank, found, n);
    keep(run,
         {{"study", "paths"}, {"n", n}, {"path", name}, {"rank", found}, {"certificate", "passed"}},
         seconds);
    text += fmt::format(" {}: {:.4f}", name, seconds);
  }
  run.say(fmt::format("n = {:>6}, seconds by the path of the pivot row{}", n, text));
}

/// Updates of n rows of n columns by 512 source rows.
template <class B>
void study_codes(Run& run, const Context<B>& context, Index n) {
  constexpr std::pair<CodeOrder, const char*> orders[] = {{CodeOrder::standard, "standard"},
                                                          {CodeOrder::computed, "computed"},
                                                          {CodeOrder::table, "whole table"},
                                                          {CodeOrder::half, "half table"},
                                                          {CodeOrder::two_passes, "two passes"}};
  const Index inner = 512, words = round_up(ceil_div(n, 64), bit_row_alignment);
  const Stream<B>& lane = context.bulk;
  const Buffer<Word, B> out(n * words), source(inner * words), left(n * (inner / 64));
  Buffer<Index, B> numbers(std::max(n, inner));
  std::vector<Index> host(static_cast<std::size_t>(numbers.size()));
  std::iota(host.begin(), host.end(), 0);
  upload(lane, numbers.view(), host.data());
  random_bits(lane, {source.data(), words, inner, nullptr}, numbers.data(),
              {1, 64 * words, false, 0});
  random_bits(lane, {left.data(), inner / 64, n, nullptr}, numbers.data(), {2, inner, false, 0});
  std::vector<Word> expected(static_cast<std::size_t>(out.size())), got(expected);
  for (const Index k : code_order_k) {
    std::string text;
    for (const auto& [order, name] : orders) {
      const auto update = [&, wanted = order] {
        combine_with_codes(lane, {out.data(), words, n, nullptr},
                           {left.data(), inner / 64, n, nullptr},
                           {source.data(), words, inner, nullptr}, 0, 0, words, k, wanted);
      };
      fill_zero(lane, out.view());
      update();
      auto& result = order == CodeOrder::standard ? expected : got;
      download(lane, result.data(), out.view());
      lane.synchronize();
      if (order != CodeOrder::standard && got != expected)
        run.outcome("check-failed",
                    fmt::format("the order '{}' gives other bits than the default; bench gf2 "
                                "--study=codes --n {}; please report this as a bug",
                                name, n));
      constexpr int repeats = 10;
      double best = 0;
      for (int round = 0; round < 3; ++round) {
        const double seconds = timed(context, nullptr,
                                     [&] {
                                       for (int r = 0; r < repeats; ++r) update();
                                     }) /
                               repeats;
        if (round == 0 || seconds < best) best = seconds;
      }
      keep(run,
           {{"study", "codes"}, {"n", n}, {"k", k}, {"order", name}, {"bits", "as the default's"}},
           best);
      text += fmt::format(" {}: {:.6f}", name, best);
    }
    run.say(fmt::format("n = {:>6}, k = {:>2}, seconds of an update by 512 rows{}", n, k, text));
  }
}

}  // namespace

template <class B>
void study_gf2(Run& run, Context<B>& context, const std::vector<Index>& sizes,
               const std::string& what) {
  if (context.size() > 1)
    fail_together(Exit::usage, "the study measures one device; --study; start one rank");
  if (std::is_same_v<B, Cpu> && what != "rows")
    fail_together(Exit::usage,
                  "this study measures a GPU; --study; add --backend cuda on one, or take "
                  "--study=rows");
  run.report["runs"] = nlohmann::json::array();
  const auto wanted = [&](const char* part) { return what == part || what == "all"; };
  for (const Index n : sizes) {
    if (wanted("search"))
      for (const double density : {0.5, 1e-2, 1e-3, 3e-4, 1e-4})
        study_search(run, context, n, density);
    if (wanted("rows"))
      for (const double density : {0.5, 1e-3}) study_rows(run, context, n, density);
    if (wanted("paths")) study_paths(run, context, n);
    if constexpr (std::is_same_v<B, Cuda>)
      if (wanted("codes")) study_codes(run, context, n);
  }
}

#define TERRACE_INSTANTIATE(B) \
  template void study_gf2(Run&, Context<B>&, const std::vector<Index>&, const std::string&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
