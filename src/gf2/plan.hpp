// How an elimination over GF(2) works: panel width, products, tables; from the options, from what
// calibration measured on this model of device, or from defaults.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "distrib/context.hpp"
#include "kernels/gf2/columns.hpp"
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {

/// How the panels of an elimination are worked on.
struct PanelPlan {
  Index columns = 0;         ///< width, a multiple of 64, at most 4,096
  ProductMethod product{};   ///< of updates
  bool host_panels = false;  ///< the host factors the candidates of a GPU's panel
  bool measured = false;     ///< from the profile of this model of device
  bool guard = false;        ///< the last word of the matrix is for check sums; src/frame/guard.hpp
  Word witness = 0;          ///< seed of the word before it
  Index guard_interval = 0;  ///< panels from a check to the next; 0: so that they cost little
  Index candidates = 0;      ///< rows that a panel's search tries first, by columns; 0: its choice
  bool by_columns = false;   ///< column by column; src/gf2/columns.hpp
  ColumnShape column_shape{};
  bool column_swap = false;  ///< studies only: rows are swapped, and put back at the end
  PivotPath column_path = PivotPath::plain;  ///< studies only
};

/// How the user wants the panels; the names are those of the options.
struct PanelWish {
  std::string method;          ///< "tables", "tensor", "columns"; empty: the plan's choice
  std::string tables, panels;  ///< "local" or "broadcast"; "device" or "host"
  Index k = 0, block = 0;      ///< 0: the plan's choice
  Index candidates = 0;        ///< by columns of a panel; 0: the search's choice
  bool guard = false;
};

/// What was measured on a model of device (src/program/profile.hpp); empty: nothing.
struct PanelMeasurements {
  using Widths = std::vector<std::pair<Index, Index>>;  ///< share of the rank from which, columns
  Widths panels, table_panels;
  std::vector<TableShape> shapes;  ///< best first
  struct Launch {
    Index search_threads = 0, threads = 0, lanes = 0, blocks = 0;
  };
  Launch columns;  ///< of --method columns
};

/// Refuses a `--method` that GF(2) does not have, and options that contradict each other:
/// Error(usage) on all ranks.
void require_bit_method(const PanelWish& wish);
/// Whether the options mean tables on every device.
bool wants_bit_tables(const PanelWish& wish);
/// The same as require_bit_method(), and "tensor" where there are no binary tensor cores.
template <class B>
void require_bit_method_on(const PanelWish& wish);

/// From `--block` (rounded up to a multiple of 64), `--method` ("tables": panels of at most 512
/// columns; "tensor" where there are no binary tensor cores is an Error(usage) on all ranks), `--k`
/// and `--tables` (both mean tables), `--candidates` (as well: tables; panels narrow enough) and
/// `--panels`; "columns" (one rank: an Error(usage) on several); for the rest what was measured, or
/// defaults, for a matrix of rank `most_rank` at most; both go by most_rank / ranks.
template <class B>
PanelPlan plan_panels(const Context<B>& context, const PanelWish& wish, Index most_rank,
                      const PanelMeasurements& measured = {});

/// How updates are computed, for reports: "tables", "tensor cores" or "columns".
template <class B>
const char* elimination_method(PanelPlan plan);

/// "k = 8, 4 a pass" and whether they are stored.
template <class B>
std::string describe_tables(const ProductMethod& method);

}  // namespace terrace::gf2
