#include "src/commands/cg_inputs.hpp"

#include "distrib/agree.hpp"

namespace terrace::cg {

void open_inputs(Run& run, const CgCommand& options, CgInputs& in) {
  const Control& control = run.control;
  const io::Location location = io::parse_location(options.matrix);
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
  run.report["preconditioner"] = options.solve.preconditioner;
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

void refuse_asymmetry(const CgInputs& in, const std::optional<Asymmetry>& found,
                      const std::vector<Index>& order) {
  if (!found) return;
  const auto old = [&](Index row) { return order.empty() ? row : order[std::size_t(row)]; };
  fail_together(
      Exit::input,
      fmt::format("the matrix is not symmetric: A[{0}, {1}] = {2:.17g}, A[{1}, {0}] = "
                  "{3:.17g}; {4}; conjugate gradients need a symmetric matrix",
                  old(found->row), old(found->column), found->value, found->transposed, in.where));
}

}  // namespace terrace::cg
