#include "src/bench/gf2_calibrate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "kernels/parallel.hpp"
#include "src/echelon.hpp"
#include "src/profile.hpp"

namespace terrace {

namespace {

double wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The fastest of `repeats` runs after a warm-up, each prepared outside the measurement.
template <class B, class Prepare, class Work>
double fastest(const Context<B>& context, int repeats, Prepare&& prepare, Work&& work) {
  double best = 0;
  for (int r = 0; r <= repeats; ++r) {
    prepare();
    context.bulk.synchronize();
    const double start = wall();
    work();
    context.bulk.synchronize();
    const double seconds = wall() - start;
    if (r == 1 || (r > 1 && seconds < best)) best = seconds;
  }
  return best;
}

struct Sizes {
  Index rows, inner, words;   ///< of the tables' problem
  std::vector<Index> panels;  ///< n at which panel widths are tried
  std::vector<Index> widths;  ///< tried
  int repeats;
};
Sizes sizes(const Context<Cpu>&) {
  return {4096 * thread_count(), 512, 64, {1024, 4096, 8192}, {64, 128, 192, 256, 384, 512}, 2};
}
[[maybe_unused]] Sizes sizes(const Context<Cuda>&) {
  return {65536,
          512,
          1024,
          {2048, 4096, 8192, 16384, 32768, 65536, 98304},
          {128, 256, 512, 1024, 2048, 4096},
          2};
}

/// Best first: {k, tables, rows, rate}.
template <class B>
nlohmann::json calibrate_shapes(Run& run, Context<B>& context) {
  const Sizes size = sizes(context);
  const Stream<B>& lane = context.bulk;
  const Buffer<Word, B> out(size.rows * size.words), source(size.inner * size.words),
      multipliers(size.rows * (size.inner / 64));
  std::vector<Index> numbers(static_cast<std::size_t>(size.rows));
  for (Index i = 0; i < size.rows; ++i) numbers[std::size_t(i)] = i;
  Buffer<Index, B> device_numbers(size.rows);
  upload(lane, device_numbers.view(), numbers.data());
  random_bits(lane, {source.data(), size.words, size.inner, nullptr}, device_numbers.data(),
              {1, 64 * size.words, false, 0});
  random_bits(lane, {multipliers.data(), size.inner / 64, size.rows, nullptr},
              device_numbers.data(), {2, size.inner, false, 0});
  fill_zero(lane, out.view());
  std::vector<std::pair<double, TableShape>> found;
  run.say(fmt::format("{:>4} {:>7} {:>7} {:>8} {:>12} {:>12}", "k", "tables", "rows", "threads",
                      "seconds", "bit-MAC/s"));
  for (const TableShape& shape : table_shapes<B>()) {
    const double seconds = fastest(
        context, size.repeats, [] {},
        [&] {
          combine(lane, BitRows<Word, B>{out.data(), size.words, size.rows, nullptr},
                  BitRows<const Word, B>{multipliers.data(), size.inner / 64, size.rows, nullptr},
                  BitRows<const Word, B>{source.data(), size.words, size.inner, nullptr}, 0, 0,
                  size.words, shape);
        });
    const double rate = double(size.rows) * double(size.inner) * double(64 * size.words) / seconds;
    found.emplace_back(rate, shape);
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

/// [[from n, columns], ...]: from each size on, the width that was fastest there.
template <class B>
nlohmann::json calibrate_panels(Run& run, Context<B>& context, const ProductMethod& method,
                                Index most) {
  const Sizes size = sizes(context);
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
void calibrate_gf2(Run& run, Context<B>& context) {
  if (context.size() > 1)
    fail_together(Exit::usage, "calibration measures one device; --calibrate; start one rank");
  const std::string model = device_model(context);
  run.say("device: " + model);
  nlohmann::json values;
  values["shapes"] = calibrate_shapes(run, context);
  ProductMethod tables{true, false, {}};
  tables.shape = {values["shapes"][0]["k"], values["shapes"][0]["tables"],
                  values["shapes"][0]["rows"], values["shapes"][0]["threads"]};
  run.say("panels, updates by tables:");
  values["table_panels"] = calibrate_panels(run, context, tables, 64 * max_panel_words);
  if (std::is_same_v<B, Cuda> && has_bit_tensor_cores()) {
    run.say("panels, updates by binary tensor cores:");
    values["panels"] = calibrate_panels(run, context, {}, 64 * max_wide_words);
  } else {
    values["panels"] = values["table_panels"];
  }
  save_profile(context.control, model, "gf2", values);
  run.report["profile"] = {{"path", profile_path()}, {"device", model}, {"gf2", values}};
  run.say("stored in " + profile_path());
}

#define TERRACE_INSTANTIATE(B) template void calibrate_gf2(Run&, Context<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
