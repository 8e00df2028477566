#include "src/bench/gf2_calibrate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/gf2/columns.hpp"
#include "src/gf2/echelon.hpp"
#include "src/program/profile.hpp"

namespace terrace::gf2 {

namespace {

/// The fastest of `repeats` runs after a warm-up, each prepared outside the measurement.
template <class B, class Prepare, class Work>
double fastest(const Context<B>& context, int repeats, Prepare&& prepare, Work&& work) {
  double best = 0;
  for (int r = 0; r <= repeats; ++r) {
    prepare();
    context.bulk.synchronize();
    const double start = clock_seconds();
    work();
    context.bulk.synchronize();
    const double seconds = clock_seconds() - start;
    if (r == 1 || (r > 1 && seconds < best)) best = seconds;
  }
  return best;
}

struct CalibratedSizes {
  Index rows, inner, words;   ///< of the tables' problem
  std::vector<Index> panels;  ///< n at which panel widths are tried
  std::vector<Index> widths;  ///< tried
  int repeats;
};
CalibratedSizes sizes(const Context<Cpu>&) {
  return {4096 * thread_count(), 512, 64, {1024, 4096, 8192}, {64, 128, 192, 256, 384, 512}, 2};
}
[[maybe_unused]] CalibratedSizes sizes(const Context<Cuda>&) {
  return {65536,
          512,
          1024,
          {2048, 4096, 8192, 16384, 32768, 65536, 98304},
          {128, 256, 512, 1024, 2048, 4096},
          2};
}

/// Seconds of every shape of tables on one update.
struct Update {
  Index rows, inner, words;
};
template <class B>
std::vector<std::pair<double, TableShape>> time_shapes(const Context<B>& context,
                                                       const Update& size, int repeats) {
  const Stream<B>& lane = context.bulk;
  const Buffer<Word, B> out(size.rows * size.words), source(size.inner * size.words),
      multipliers(size.rows * (size.inner / 64));
  std::vector<Index> numbers(static_cast<std::size_t>(std::max(size.rows, size.inner)));
  std::iota(numbers.begin(), numbers.end(), 0);
  Buffer<Index, B> device_numbers(Index(numbers.size()));
  upload(lane, device_numbers.view(), numbers.data());
  random_bits(lane, {source.data(), size.words, size.inner, nullptr}, device_numbers.data(),
              {1, 64 * size.words, false, 0});
  random_bits(lane, {multipliers.data(), size.inner / 64, size.rows, nullptr},
              device_numbers.data(), {2, size.inner, false, 0});
  fill_zero(lane, out.view());
  std::vector<std::pair<double, TableShape>> found;
  for (const TableShape& shape : table_shapes<B>()) {
    const double seconds = fastest(
        context, repeats, [] {},
        [&] {
          combine(lane, BitRows<Word, B>{out.data(), size.words, size.rows, nullptr},
                  BitRows<const Word, B>{multipliers.data(), size.inner / 64, size.rows, nullptr},
                  BitRows<const Word, B>{source.data(), size.words, size.inner, nullptr}, 0, 0,
                  size.words, shape);
        });
    found.emplace_back(seconds, shape);
  }
  return found;
}

/// Best first: {k, tables, rows, rate}.
template <class B>
nlohmann::json calibrate_shapes(Run& run, Context<B>& context) {
  const CalibratedSizes size = sizes(context);
  auto found = time_shapes(context, {size.rows, size.inner, size.words}, size.repeats);
  run.say(fmt::format("{:>4} {:>7} {:>7} {:>8} {:>12} {:>12}", "k", "tables", "rows", "threads",
                      "seconds", "bit-MAC/s"));
  for (auto& [rate, shape] : found) {
    const double seconds = rate;
    rate = double(size.rows) * double(size.inner) * double(64 * size.words) / seconds;
    run.say(fmt::format("{:>4} {:>7} {:>7} {:>8} {:>12.6f} {:>12.4g}", shape.k, shape.tables,
                        shape.rows, shape.threads, seconds, rate));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  nlohmann::json best = nlohmann::json::array();
  for (const auto& [rate, shape] : found)
    best.push_back({{"k", shape.k},
                    {"tables", shape.tables},
                    {"rows", shape.rows},
                    {"threads", shape.threads},
                    {"rate", rate}});
  return best;
}

/// Seconds of the reduced form of a random n x n matrix.
template <class B>
double reduction_seconds(Context<B>& context, Index n, const PanelPlan& plan, int repeats) {
  const BlockCyclic layout = bit_row_layout(n, 1);
  const auto source = random_source(context, {1, n, false, n}, layout);
  BitMatrix<B> matrix(context, layout, source.words());
  Progress quiet(false, false);
  return fastest(
      context, repeats, [&] { load(context, source, matrix); },
      [&] { (void)reduce_to_echelon(context, matrix, n, EchelonForm::reduced, plan, quiet); });
}

/// What the choice among shapes is worth on matrices of other forms: the shape that `best` names,
/// and the fastest there, beside the default.
template <class B>
nlohmann::json gain_of_shapes(Run& run, Context<B>& context, const TableShape& best) {
  const CalibratedSizes size = sizes(context);
  nlohmann::json gains = nlohmann::json::array();
  for (const Update& update :
       {Update{size.rows, size.inner, size.words},
        {size.rows / 16, size.inner, size.words},
        {4 * size.rows, size.inner, std::max(bit_row_alignment, size.words / 16)},
        {size.rows / 32, size.inner, 4 * size.words}}) {
    double chosen = 0, standard = 0, least = 0;
    for (const auto& [seconds, shape] : time_shapes(context, update, size.repeats)) {
      if (least == 0 || seconds < least) least = seconds;
      if (shape.k == 8 && standard == 0) standard = seconds;
      if (shape.k == best.k && shape.tables == best.tables && shape.rows == best.rows &&
          shape.threads == best.threads)
        chosen = seconds;
    }
    gains.push_back({{"rows", update.rows},
                     {"columns", 64 * update.words},
                     {"default_seconds", standard},
                     {"chosen_seconds", chosen},
                     {"fastest_seconds", least},
                     {"gain", standard / chosen},
                     {"most_gain", standard / least}});
    run.say(
        fmt::format("{:>7} x {:>7}: the default takes {:.3f} times the chosen shape's time, "
                    "{:.3f} times the fastest's here",
                    update.rows, 64 * update.words, standard / chosen, standard / least));
  }
  return gains;
}

/// Seconds of a pass of subtraction over a random matrix, by launch shape.
struct Pass {
  Index rows, columns;
  std::vector<double> seconds;  ///< of every shape tried
};

/// Every number of threads that is a multiple of half a warp, every form of a block of so many; of a GPU.
[[maybe_unused]] std::vector<ColumnShape> column_shapes() {
  std::vector<ColumnShape> shapes{{}};  // by hand
  for (int threads = 16; threads <= 1024; threads += 16)
    for (int lanes = 4; lanes <= threads; lanes *= 2)
      for (const int blocks : {132, 528, 2112, 8448})
        if (threads % lanes == 0 && threads / lanes <= 64)
          shapes.push_back({256, threads, lanes, blocks});
  return shapes;
}

template <class B>
void time_pass(const Context<B>& context, const std::vector<ColumnShape>& shapes, Pass& pass) {
  const Stream<B>& lane = context.bulk;
  const BlockCyclic layout = bit_row_layout(pass.rows, 1);
  const auto source = random_source(context, {1, pass.columns, false, pass.rows}, layout);
  BitMatrix<B> matrix(context, layout, source.words());
  load(context, source, matrix);
  const Buffer<Index, B> order(pass.rows), state(2), found(1);
  std::vector<Index> numbers(static_cast<std::size_t>(pass.rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  upload(lane, order.view(), numbers.data());
  const Index start[2] = {0, -1};
  upload(lane, state.view(), start);
  ColumnGauss<B> gauss{matrix.data.data(), matrix.stride, pass.rows,   matrix.words,
                       order.data(),       state.data(),  found.data()};
  gauss.in_place = true;  // the column stays as it is, so that every pass does the same work
  search_column(lane, gauss, 0, false);
  for (const ColumnShape& shape : shapes) {
    gauss.shape = shape;
    clear_column(lane, gauss, 0, 0);
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      const auto begin = lane.record();
      for (int r = 0; r < 4; ++r) clear_column(lane, gauss, 0, 0);
      const auto end = lane.record();
      lane.synchronize();
      const double seconds = seconds_between(begin, end) / 4;
      if (round == 0 || seconds < best) best = seconds;
    }
    pass.seconds.push_back(best);
  }
}

/// The launch shape of --method columns: {search_threads, threads, lanes, blocks}.
template <class B>
nlohmann::json calibrate_columns(Run& run, Context<B>& context, nlohmann::json& gains) {
  const std::vector<ColumnShape> shapes = column_shapes();
  std::vector<Pass> passes{{2048, 2048, {}},   {8192, 8192, {}},   {32768, 32768, {}},
                           {131072, 4096, {}}, {4096, 131072, {}}, {65536, 512, {}}};
  std::vector<double> sum(shapes.size(), 0);  // of times over the best of each matrix
  for (Pass& pass : passes) {
    time_pass(context, shapes, pass);
    const double best = *std::min_element(pass.seconds.begin(), pass.seconds.end());
    for (std::size_t s = 0; s < shapes.size(); ++s) sum[s] += pass.seconds[s] / best;
  }
  const auto chosen = std::size_t(std::min_element(sum.begin(), sum.end()) - sum.begin());
  ColumnShape shape = shapes[chosen];
  for (const Pass& pass : passes) {
    const auto fastest = std::size_t(std::min_element(pass.seconds.begin(), pass.seconds.end()) -
                                     pass.seconds.begin());
    const double hand = pass.seconds[0], best = pass.seconds[fastest];
    gains.push_back(
        {{"rows", pass.rows},
         {"columns", pass.columns},
         {"default_seconds", hand},
         {"chosen_seconds", pass.seconds[chosen]},
         {"fastest_seconds", best},
         {"fastest",
          {{"threads", shapes[fastest].threads},
           {"lanes", shapes[fastest].lanes},
           {"blocks", shapes[fastest].blocks}}},
         {"slowest_seconds", *std::max_element(pass.seconds.begin(), pass.seconds.end())},
         {"gain", hand / pass.seconds[chosen]},
         {"most_gain", hand / best}});
    run.say(
        fmt::format("{:>7} x {:>7}: {:.2f} us by hand, {:.2f} us as chosen ({:.3f} times as "
                    "fast), {:.2f} us at best ({} threads, {} a row, {} blocks)",
                    pass.rows, pass.columns, 1e6 * hand, 1e6 * pass.seconds[chosen],
                    hand / pass.seconds[chosen], 1e6 * best, shapes[fastest].threads,
                    shapes[fastest].lanes, shapes[fastest].blocks));
  }
  double least = 0;
  std::string text;
  for (const int threads : {32, 64, 128, 256, 512, 1024}) {
    PanelPlan plan{64};
    plan.by_columns = true;
    plan.column_shape = shape;
    plan.column_shape.search_threads = threads;
    const double seconds = reduction_seconds(context, 4096, plan, 2);
    text += fmt::format(" {}: {:.5f}", threads, seconds);
    if (least == 0 || seconds < 0.99 * least) least = seconds, shape.search_threads = threads;
  }
  run.say("n = 4,096, seconds by threads of the search" + text);
  run.say(
      fmt::format("columns: {} threads, {} a row, {} blocks at most, {} threads to search; {} "
                  "shapes tried",
                  shape.threads, shape.lanes, shape.blocks, shape.search_threads, shapes.size()));
  return {{"search_threads", shape.search_threads},
          {"threads", shape.threads},
          {"lanes", shape.lanes},
          {"blocks", shape.blocks}};
}

/// [[from n, columns], ...]: from each size on, the width that was fastest there.
template <class B>
nlohmann::json calibrate_panels(Run& run, Context<B>& context, const ProductMethod& method,
                                Index most) {
  const CalibratedSizes size = sizes(context);
  nlohmann::json steps = nlohmann::json::array();
  Index last = 0;
  for (const Index n : size.panels) {
    double best = 0;
    Index columns = 0;
    std::string line;
    for (const Index width : size.widths) {
      if (width > most || width > n) continue;
      const double seconds =
          reduction_seconds(context, n, {width, method}, n < 40000 ? size.repeats : 1);
      line += fmt::format(" {}: {:.5f}", width, seconds);
      // A wider panel takes more memory, so it has to be clearly faster.
      if (columns == 0 || seconds < 0.98 * best) best = seconds, columns = width;
    }
    run.say(fmt::format("n = {:>6}, seconds by panel width{}", n, line));
    if (columns != last) steps.push_back({steps.empty() ? 0 : n, columns});
    last = columns;
  }
  return steps;
}

}  // namespace

template <class B>
void calibrate_gf2(Run& run, Context<B>& context, const std::string& what) {
  if (context.size() > 1)
    fail_together(Exit::usage, "calibration measures one device; --calibrate; start one rank");
  if (std::is_same_v<B, Cpu> && what == "columns")
    fail_together(Exit::usage,
                  "columns have launch shapes on a GPU only; --calibrate=columns; add --backend "
                  "cuda on one");
  const auto wanted = [&](const char* part) { return what == part || what == "all"; };
  const std::string model = device_model(context);
  run.say("device: " + model);
  nlohmann::json values = load_profile(context.control, model, "gf2");
  nlohmann::json gains = nlohmann::json::object();
  if (!values.is_object()) values = nlohmann::json::object();
  if constexpr (std::is_same_v<B, Cuda>)
    if (wanted("columns")) {
      gains["columns"] = nlohmann::json::array();
      values["columns"] = calibrate_columns(run, context, gains["columns"]);
    }
  ProductMethod tables{true, false, {}};
  if (wanted("tables") || wanted("panels")) {
    if (wanted("tables") || !values.contains("shapes"))
      values["shapes"] = calibrate_shapes(run, context);
    const auto& first = values["shapes"][0];
    tables.shape = {first["k"], first["tables"], first["rows"], first["threads"]};
    if (wanted("tables")) gains["tables"] = gain_of_shapes(run, context, tables.shape);
  }
  if (wanted("panels")) {
    run.say("panels, updates by tables:");
    values["table_panels"] = calibrate_panels(run, context, tables, 64 * max_panel_words);
    if (std::is_same_v<B, Cuda> && has_bit_tensor_cores()) {
      run.say("panels, updates by binary tensor cores:");
      values["panels"] = calibrate_panels(run, context, {}, 64 * max_wide_words);
    } else {
      values["panels"] = values["table_panels"];
    }
  }
  save_profile(context.control, model, "gf2", values);
  run.report["profile"] = {{"path", profile_path()}, {"device", model}, {"gf2", values}};
  run.report["gains"] = gains;
  run.say("stored in " + profile_path());
}

#define TERRACE_INSTANTIATE(B) template void calibrate_gf2(Run&, Context<B>&, const std::string&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
