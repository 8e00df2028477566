// Inputs of terrace cg: what the options name, opened; the matrix read into an operator.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "src/cg/operators.hpp"
#include "src/cg/operators_triangle.hpp"
#include "src/cg/reorder.hpp"
#include "src/cg/system.hpp"
#include "src/program/register.hpp"
#include "src/program/run.hpp"

namespace terrace::cg {

struct CgCommand {
  std::string matrix, rhs, x0, near_null_space, layout = "triangle", norm = "unpreconditioned";
  double condition = 0;  ///< for --plan; 0: not given
  Index monitor = 0;
  bool reorder = false;
  int parts = 1;    ///< of a reordered matrix; after check_request()
  CgRequest solve;  ///< complete after check_request()
};

/// The opened inputs: metadata, no data; and the output, none with --plan.
struct CgInputs {
  io::Kind kind = io::Kind::dense;
  io::DenseInput dense;
  io::BandInput band;
  io::SparseInput sparse;
  Index n = 0;
  io::DenseInput rhs;
  std::optional<io::DenseInput> x0, near_null_space;
  std::string where;  ///< the matrix, for messages
  std::optional<io::Output> output;
};
void open_inputs(Run& run, const CgCommand& options, CgInputs& in);

inline const char* form_name(io::Kind kind) {
  return kind == io::Kind::dense ? "dense" : kind == io::Kind::band ? "band" : "csr";
}

/// "not symmetric", exit 3, where a pair was found; `order`: the caller's number of each row, if they differ.
void refuse_asymmetry(const CgInputs& in, const std::optional<Asymmetry>& found,
                      const std::vector<Index>& order = {});

/// reorder() in options.parts parts; options.solve.order and the report say so. Collective.
void reorder_rows(Run& run, CgCommand& options, std::vector<Index>& first, CsrSlice& slice);

/// This rank's rows of a dense input, row-major.
std::vector<double> read_rows(const Control& control, const io::DenseInput& input, Range rows);

// read_matrix() into each operator, in the phases that it takes.

template <class B>
void read_matrix(Run& run, const Context<B>& c, const CgInputs& in, CgCommand&,
                 std::optional<DenseOperator<B>>& a) {
  a.emplace(c, in.n);
  const Range rows = a->rows();
  run.phase("read", [&] {
    in.dense.read(c.control, {&rows, 1}, [&](Index position, Index count, const double* data) {
      a->put_rows(c, position, count, data);
    });
  });
  if (!run.options.no_check) run.phase("check", [&] { refuse_asymmetry(in, a->asymmetry(c)); });
}

/// Slabs of rows from the last to the first: lower parts are packed, upper parts compared with
/// the tiles that are already there.
template <class B>
void read_matrix(Run& run, const Context<B>& c, const CgInputs& in, CgCommand& options,
                 std::optional<TriangleOperator<B>>& a) {
  std::optional<Asymmetry> found;
  /// False: a diagonal entry is too small to be halved, as the tiles hold it.
  const auto read = [&](int power) {
    double least = 1;
    a.reset();
    a.emplace(c, in.n, options.solve.mixed);
    a->scale.power = -power;
    for (Index round = 0; round < a->rounds(); ++round) {
      const Range rows = a->slab(round);
      a->put_slab(c, round, [&](const io::Sink<double>& sink) {
        in.dense.read(c.control, {&rows, 1}, [&](Index position, Index count, const double* data) {
          for (Index i = 0; i < count; ++i) {
            const double entry = std::fabs(data[i * in.n + rows.first + position + i]);
            if (entry > 0) least = std::min(least, std::ldexp(entry, power));
          }
          sink(position, count, data);
        });
      });
    }
    return c.control.reduce(least, Reduce::min) >= 2 * std::numeric_limits<double>::min();
  };
  run.phase("read", [&] {
    constexpr int up = 200;
    const bool again = !read(0);
    if (again) (void)read(up);
    found = a->asymmetry(c);
    if (again && found) {
      found->value = std::ldexp(found->value, -up);
      found->transposed = std::ldexp(found->transposed, -up);
    }
  });
  if (!run.options.no_check) refuse_asymmetry(in, found);
}

template <class B>
void read_matrix(Run& run, const Context<B>& c, const CgInputs& in, CgCommand&,
                 std::optional<BandOperator<B>>& a) {
  a.emplace(c, in.n, in.band.half_bandwidth());
  run.phase("read", [&] {
    const Index height = in.band.half_bandwidth() + 1;
    if (c.size() == 1 && in.band.by_diagonals())  // as they will lie
      return in.band.read_diagonals(
          c.control, a->rows(), [&](Index position, Index count, const double* data) {
            a->put_diagonals(c, a->rows().first + position, count, height, data);
          });
    for (const Range range : {a->columns_before(), a->rows()})
      in.band.read(c.control, {&range, 1}, [&](Index position, Index count, const double* data) {
        a->put_columns(c, range.first + position, count, height, data);
      });
  });
}

/// Rows of each rank, with about equal numbers of nonzeros.
inline std::vector<Index> cut_rows(const Control& control, const io::SparseInput& input) {
  const Index n = input.rows();
  if (control.size() == 1) return {0, n};
  const BlockCyclic deal = contiguous(n, control.size());
  const Index from = std::min(n, deal.block * control.rank());
  const Range piece{from, std::min(n, from + deal.block) - from};
  if (!input.streams()) {
    const LargeVector<Index> pointers = input.row_pointers(control, piece);
    const Index nonzeros = control.reduce(pointers.back(), Reduce::max);
    return balanced_rows(control, n, nonzeros, from, pointers);
  }
  RowCuts cuts(control.size(), n, input.nonzeros());
  input.row_pointers(control, piece, [&](Index position, Index count, const Index* start) {
    cuts.note(from + position, {start, std::size_t(count)});
  });
  return cuts.agreed(control);
}

/// Straight to the backend, and judged there, where the file holds rows. Rows that must be sorted,
/// summed up or reordered, and those with something to say of them, go through the host's memory.
template <class B>
void read_matrix(Run& run, const Context<B>& c, const CgInputs& in, CgCommand& options,
                 std::optional<CsrOperator<B>>& a) {
  const io::SparseInput& input = in.sparse;
  std::vector<Index> first;
  std::optional<CsrLoad<B>> load;
  CsrSlice slice;
  run.phase("read", [&] {
    first = cut_rows(c.control, input);
    const auto me = std::size_t(c.rank());
    const Range rows{first[me], first[me + 1] - first[me]};
    if (input.streams() && !options.reorder) {
      load.emplace(c, first);
      Range entries;
      input.row_pointers(c.control, rows, [&](Index position, Index count, const Index* start) {
        if (position == 0) entries.first = start[0];
        entries.count = start[count - 1] - entries.first;
        load->put_start(c, position, count, start);
      });
      load->take_entries(c, entries);
      input.entries(
          c.control, entries,
          [&](Index position, Index count, const Index* columns) {
            load->put_columns(c, position, count, columns);
          },
          [&](Index position, Index count, const double* values) {
            load->put_values(c, position, count, values);
          });
      const CsrFaults faults = load->faults(c);
      if (faults.outside + faults.unsorted + faults.not_finite == 0) return;
      load.reset();
    }
    io::SparseRows own;
    input.read(c.control, rows, own);
    slice = {std::move(own.start), std::move(own.columns), std::move(own.values)};
  });
  if (options.reorder) run.phase("solve", [&] { reorder_rows(run, options, first, slice); });
  // Sorting, numbering the halo and the symmetry check: a part of the solve.
  run.phase("solve", [&] {
    if (load)
      a.emplace(c, std::move(*load));
    else
      a.emplace(c, std::move(first), std::move(slice));
  });
  run.report["nonzeros"] = a->nonzeros();
  run.report["halo"] = c.control.reduce(a->halo(), Reduce::sum);
  if (!run.options.no_check) refuse_asymmetry(in, a->asymmetry(c), options.solve.order.old);
}

}  // namespace terrace::cg
