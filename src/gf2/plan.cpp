#include "src/gf2/plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/gf2/full_panel.hpp"

namespace terrace::gf2 {

namespace {

constexpr Index column_block = 64;
constexpr Index most_candidate_multiple = max_candidates / 64;
/// Of panels whose search tries so many times their columns.
constexpr Index widest_with(Index candidates) { return max_candidates / candidates / 64 * 64; }

[[noreturn]] void refuse(const std::string& message) { fail_together(Exit::usage, message); }

const TableShape* find_shape(const std::vector<TableShape>& shapes, const TableShape& wanted) {
  for (const TableShape& s : shapes)
    if (s.k == wanted.k && (wanted.tables == 0 || s.tables == wanted.tables) &&
        (wanted.rows == 0 || s.rows == wanted.rows) &&
        (wanted.threads == 0 || s.threads == wanted.threads))
      return &s;
  return nullptr;
}

/// Measured on one and two H200, n = 4,096 and more: of panels that a device eliminates alone the
/// widest are fastest. Of others wider ones pay where each rank's update hides them.
Index default_columns(const Context<Cpu>&, bool, Index) { return 256; }
[[maybe_unused]] Index default_columns(const Context<Cuda>& context, bool tables, Index most_rank) {
  const Index share = most_rank / std::min(context.size(), 4);
  if (tables || !has_bit_tensor_cores()) return 512;
  if (has_full_panels<Cuda>() || share >= 65536) return 64 * max_wide_words;
  return share < 24576 ? 512 : 2048;
}

/// The last entry with from <= share; 0: none, or none that fits.
Index measured_columns(const PanelMeasurements::Widths& widths, Index share, Index most) {
  Index columns = 0;
  for (const auto& [from, width] : widths)
    if (from <= share) columns = width;
  return columns > 0 && columns <= most && columns % 64 == 0 ? columns : 0;
}

/// The measured shape of the tables of one k, or of the best k.
template <class B>
TableShape measured_shape(const PanelMeasurements& measured, Index k) {
  const auto shapes = table_shapes<B>();
  for (const TableShape& shape : measured.shapes) {
    if (k != 0 && shape.k != k) continue;
    const TableShape* found = find_shape(shapes, shape);
    return found ? *found : TableShape{};
  }
  return {};
}

/// The measured launch shape of --method columns, or the default.
ColumnShape measured_column_shape(const PanelMeasurements& measured, bool& found) {
  const auto [search, threads, lanes, blocks] = measured.columns;
  if (search < 1 || search > 1024 || threads < 1 || threads > 1024 || lanes < 1 ||
      (lanes & (lanes - 1)) != 0 || threads % lanes != 0 || blocks < 1 || blocks > (1 << 20))
    return {};
  found = true;
  return {int(search), int(threads), int(lanes), int(blocks)};
}

}  // namespace

bool wants_bit_tables(const PanelWish& o) {
  return o.method == "tables" || o.k > 0 || !o.tables.empty() || o.candidates > 0;
}

void require_bit_method(const PanelWish& o) {
  if (!o.method.empty() && o.method != "tables" && o.method != "tensor" && o.method != "columns")
    refuse("gf2 has no method '" + o.method + "'; --method; use tables, tensor or columns");
  if (!o.tables.empty() && o.tables != "local" && o.tables != "broadcast")
    refuse("gf2 has no such tables '" + o.tables + "'; --tables; use local or broadcast");
  if (!o.panels.empty() && o.panels != "device" && o.panels != "host")
    refuse("gf2 has no such panels '" + o.panels + "'; --panels; use device or host");
  if (o.k < 0 || o.k > 14)
    refuse(fmt::format("tables combine 1 to 14 rows, not {}; --k; choose one of these", o.k));
  if (o.method == "tensor" && wants_bit_tables(o))
    refuse(
        "--k, --tables and --candidates apply to tables; --method tensor; leave one of them out");
  if (o.method == "columns" && (wants_bit_tables(o) || !o.panels.empty()))
    refuse(
        "--k, --tables, --candidates and --panels shape panels, and this method has none; --method "
        "columns; leave them out");
  if (o.method == "columns" && o.block > 0 && o.block != column_block)
    refuse(
        fmt::format("without panels the host looks once in {} columns; --block {}; leave it "
                    "out with --method columns",
                    column_block, o.block));
  if (o.candidates > most_candidate_multiple)
    refuse(
        fmt::format("candidates are 1 to {} times the columns of a panel, not {} times; "
                    "--candidates; choose one of these",
                    most_candidate_multiple, o.candidates));
  if (o.candidates > 0 && o.candidates * round_up(o.block, 64) > max_candidates)
    refuse(fmt::format(
        "the search of a panel takes at most {} rows, not {} times {}; --candidates and "
        "--block; use a block of {} or less",
        max_candidates, o.candidates, round_up(o.block, 64), widest_with(o.candidates)));
}

template <class B>
void require_bit_method_on(const PanelWish& o) {
  require_bit_method(o);
  if (o.method == "tensor" && BitProduct<B>::bytes(1, 64 * max_panel_words, 1) == 0)
    refuse("no binary tensor cores on this device; --method tensor; use tables");
}

template <class B>
PanelPlan plan_panels(const Context<B>& context, const PanelWish& o, Index most_rank,
                      const PanelMeasurements& measured) {
  require_bit_method_on<B>(o);
  PanelPlan plan;
  if (o.method == "columns") {
    if (context.size() > 1)
      refuse(
          fmt::format("this method runs on one rank, not on {}; --method columns; "
                      "start one rank, or use tables or tensor",
                      context.size()));
    plan.by_columns = true;
    plan.columns = column_block;
    plan.guard = o.guard;
    plan.column_shape = measured_column_shape(measured, plan.measured);
    return plan;
  }
  plan.host_panels = o.panels == "host";
  plan.candidates = o.candidates;
  plan.guard = o.guard;
  plan.product.tables = wants_bit_tables(o);
  plan.product.stored = o.tables == "broadcast";
  plan.product.shape = measured_shape<B>(measured, o.k);
  if (plan.product.shape.k == 0) plan.product.shape.k = o.k;
  const bool narrow = plan.product.tables || plan.host_panels;
  Index most = 64 * (narrow ? max_panel_words : max_wide_words);
  if (o.candidates > 0) most = std::min(most, widest_with(o.candidates));
  const Index share = most_rank / context.size();
  if (o.block > 0) {
    plan.columns = std::min(round_up(o.block, 64), most);
    return plan;
  }
  plan.columns = measured_columns(narrow ? measured.table_panels : measured.panels, share, most);
  plan.measured = plan.columns > 0;
  if (!plan.measured) plan.columns = std::min(most, default_columns(context, narrow, most_rank));
  return plan;
}

template <class B>
const char* elimination_method(PanelPlan plan) {
  if (plan.by_columns) return "columns";
  return !plan.product.needs_tables() && BitProduct<B>::bytes(1, plan.columns, 1, plan.product) > 0
             ? "tensor cores"
             : "tables";
}

template <class B>
std::string describe_tables(const ProductMethod& method) {
  const TableShape& s = method.shape;
  const TableShape* shape = nullptr;
  const auto shapes = table_shapes<B>();
  shape = find_shape(shapes, {s.k == 0 ? 8 : s.k, s.tables, s.rows, s.threads});
  if (!shape) return "unknown tables";
  return fmt::format("tables of {} combinations, {} a pass{}", Index(1) << shape->k, shape->tables,
                     method.stored ? ", built by one rank and broadcast" : "");
}

#define TERRACE_INSTANTIATE(B)                                               \
  template void require_bit_method_on<B>(const PanelWish&);                  \
  template PanelPlan plan_panels(const Context<B>&, const PanelWish&, Index, \
                                 const PanelMeasurements&);                  \
  template const char* elimination_method<B>(PanelPlan);                     \
  template std::string describe_tables<B>(const ProductMethod&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
