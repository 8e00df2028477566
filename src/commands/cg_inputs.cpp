#include "src/commands/cg_inputs.hpp"

#include "distrib/agree.hpp"
#include "src/cg/reorder.hpp"

namespace terrace {

CgInputs open_inputs(Run& run, const CgCommand& options) {
  const Control& control = run.control;
  const io::Location location = io::parse_location(options.matrix);
  CgInputs in;
  if (options.format.empty()) {
    in.kind = io::kind_of(control, location, true);
  } else {
    in.kind = options.format == "dense"  ? io::Kind::dense
              : options.format == "band" ? io::Kind::band
                                         : io::Kind::csr;
  }
  Index columns = 0;
  io::Location found;
  switch (in.kind) {
    case io::Kind::dense:
      in.dense = io::open_dense(control, location);
      in.n = in.dense.rows();
      columns = in.dense.columns();
      found = in.dense.location();
      break;
    case io::Kind::band:
      in.band = io::open_band(control, location, options.format == "band");
      in.n = columns = in.band.n();
      found = in.band.location();
      run.report["half_bandwidth"] = in.band.half_bandwidth();
      break;
    case io::Kind::csr:
      in.csr = io::open_csr(control, location);
      in.n = in.csr.rows();
      columns = in.csr.columns();
      found = in.csr.location();
      run.report["nonzeros"] = in.csr.nonzeros();
      break;
    case io::Kind::bits:
      fail_together(Exit::input, "conjugate gradients need a real matrix, this one holds bits; " +
                                     io::to_string(location) + "; see terrace gf2 --help");
  }
  in.where = io::to_string(found);
  run.report["n"] = in.n;
  run.report["method"] = "conjugate-gradients";
  run.report["preconditioner"] = options.preconditioner;
  if (in.n != columns)
    fail_together(Exit::input, fmt::format("the matrix is {} x {}, not square; {}; conjugate "
                                           "gradients need a symmetric matrix",
                                           in.n, columns, in.where));
  in.rhs = io::open_dense(control, io::parse_location(options.rhs, location.file),
                          io::Role::right_hand_side);
  if (in.rhs.rows() != in.n)
    fail_together(Exit::input,
                  fmt::format("the right-hand side has {} rows, the matrix {}; {}; give one row "
                              "for each row of the matrix",
                              in.rhs.rows(), in.n, io::to_string(in.rhs.location())));
  run.report["right_hand_sides"] = in.rhs.columns();
  run.note_input("input", found);
  run.note_input("rhs", in.rhs.location());
  if (!options.x0.empty()) {
    in.x0 = io::open_dense(control, io::parse_location(options.x0, location.file),
                           io::Role::right_hand_side);
    if (in.x0->rows() != in.n || in.x0->columns() != in.rhs.columns())
      fail_together(Exit::input, fmt::format("the start x0 is {} x {}, the solution {} x {}; {}; "
                                             "give it the shape of the right-hand side",
                                             in.x0->rows(), in.x0->columns(), in.n,
                                             in.rhs.columns(), io::to_string(in.x0->location())));
    run.note_input("x0", in.x0->location());
  }
  return in;
}

std::vector<double> read_rows(const Control& control, const io::DenseInput& input, Range rows) {
  const Index columns = input.columns();
  std::vector<double> data =
      collectively(control, [&] { return std::vector<double>(std::size_t(rows.count * columns)); });
  input.read(control, {&rows, 1}, [&](Index position, Index count, const double* from) {
    std::copy_n(from, count * columns, data.begin() + position * columns);
  });
  return data;
}

void reorder(CgInputs& in, CsrSlice& slice) {
  in.order = reverse_cuthill_mckee(slice.start, slice.column);
  std::vector<Index> place(in.order.size());
  for (std::size_t i = 0; i < place.size(); ++i) place[std::size_t(in.order[i])] = Index(i);
  CsrSlice moved;
  moved.start.reserve(slice.start.size());
  moved.column.reserve(slice.column.size());
  moved.value.reserve(slice.value.size());
  for (const Index old : in.order) {
    for (Index k = slice.start[std::size_t(old)]; k < slice.start[std::size_t(old) + 1]; ++k) {
      moved.column.push_back(place[std::size_t(slice.column[std::size_t(k)])]);
      moved.value.push_back(slice.value[std::size_t(k)]);
    }
    moved.start.push_back(Index(moved.column.size()));
  }
  slice = std::move(moved);
}

void refuse_asymmetry(const CgInputs& in, const std::optional<Asymmetry>& found) {
  if (!found) return;
  fail_together(Exit::input,
                fmt::format("the matrix is not symmetric: A[{0}, {1}] = {2:.17g}, A[{1}, {0}] = "
                            "{3:.17g}; {4}; conjugate gradients need a symmetric matrix",
                            in.old_row(found->row), in.old_row(found->column), found->value,
                            found->transposed, in.where));
}

}  // namespace terrace
