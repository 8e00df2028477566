#include "src/commands/cg_inputs.hpp"

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "src/program/reading.hpp"

namespace terrace::cg {

namespace {

void open_near_null_space(Run& run, const CgCommand& options, const io::Location& matrix,
                          CgInputs& in) {
  const Control& control = run.control;
  in.near_null_space =
      io::open_dense(control, other_location(run, options.near_null_space, matrix.file),
                     io::Wanted::vectors(in.n, io::Role::near_null_space));
  const io::DenseInput& v = *in.near_null_space;
  const std::string where = io::to_string(v.location());
  if (v.rows() != in.n)
    fail_together(Exit::input, fmt::format("the near null-space has {} rows, the matrix {}; {}; "
                                           "give one row for each row of the matrix",
                                           v.rows(), in.n, where));
  const Index most = std::min(in.n, NearNullSpace::most_columns);
  if (in.n > 0 && (v.columns() < 1 || v.columns() > most))
    fail_together(Exit::input, fmt::format("the near null-space has {} vectors; {}; give 1 to {}",
                                           v.columns(), where, most));
  run.note_input("near_null_space", v.location());
}

}  // namespace

void open_inputs(Run& run, const CgCommand& options, CgInputs& in) {
  const Control& control = run.control;
  io::Location location = matrix_location(run, options.matrix);
  const io::Location rhs = other_location(run, options.rhs, location.file);
  const std::string& format = location.form.format;
  if (format == "bits")
    location.form.require_obeyed("the matrix of cg", "", "dense band csr csc coo");
  const auto wanted =
      io::Wanted::square_matrix(rhs.file == location.file ? rhs.path : std::string());
  in.kind = format.empty()      ? io::kind_of(control, location, true, wanted)
            : format == "dense" ? io::Kind::dense
            : format == "band"  ? io::Kind::band
                                : io::Kind::sparse;
  Index columns = 0;
  io::Location found;
  switch (in.kind) {
    case io::Kind::dense:
      in.dense = io::open_dense(control, location, wanted);
      in.n = in.dense.rows();
      columns = in.dense.columns();
      found = in.dense.location();
      break;
    case io::Kind::band:
      in.band = io::open_band(control, location, wanted);
      in.n = columns = in.band.n();
      found = in.band.location();
      run.report["half_bandwidth"] = in.band.half_bandwidth();
      break;
    case io::Kind::sparse:
      in.sparse = io::open_sparse(control, location, wanted, true);
      in.n = in.sparse.rows();
      columns = in.sparse.columns();
      found = in.sparse.location();
      run.report["nonzeros"] = in.sparse.nonzeros();
      break;
    case io::Kind::bits:
      fail_together(Exit::input,
                    "conjugate gradients need a real matrix, but this one holds bits; " +
                        io::to_string(location) + "; see terrace gf2 --help");
  }
  in.where = io::to_string(found);
  run.report["n"] = in.n;
  run.report["method"] = "conjugate-gradients";
  run.report["preconditioner"] = options.solve.preconditioner;
  if (in.n != columns)
    fail_together(Exit::input, fmt::format("the matrix is {} x {}, not square; {}; conjugate "
                                           "gradients need a symmetric matrix{}",
                                           in.n, columns, in.where,
                                           in.kind == io::Kind::dense && in.n < columns
                                               ? " (of a band, add --format band)"
                                               : ""));
  in.rhs = io::open_dense(control, rhs, io::Wanted::vectors(in.n));
  require_rows(in.n, in.rhs);
  run.report["right_hand_sides"] = in.rhs.columns();
  run.note_input("input", found);
  run.note_input("rhs", in.rhs.location());
  if (!options.x0.empty()) {
    in.x0 = io::open_dense(control, other_location(run, options.x0, location.file),
                           io::Wanted::vectors(in.n, io::Role::start));
    if (in.x0->rows() != in.n || in.x0->columns() != in.rhs.columns())
      fail_together(Exit::input, fmt::format("the start x0 is {} x {}, the solution {} x {}; {}; "
                                             "give it the shape of the right-hand side",
                                             in.x0->rows(), in.x0->columns(), in.n,
                                             in.rhs.columns(), io::to_string(in.x0->location())));
    run.note_input("x0", in.x0->location());
  }
  if (!options.near_null_space.empty()) open_near_null_space(run, options, location, in);
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

void reorder_rows(Run& run, CgCommand& options, std::vector<Index>& first, CsrSlice& slice) {
  const auto start = Clock::now();
  RowOrder& order = options.solve.order;
  order = reorder(run.control, first, slice, options.parts);
  run.report["partition"] = {{"method", order.method},
                             {"parts", options.parts},
                             {"halo_before", order.halo_before},
                             {"seconds", run.control.reduce(since(start), Reduce::max)}};
}

void refuse_asymmetry(const CgInputs& in, const std::optional<Asymmetry>& found,
                      const std::vector<Index>& order) {
  if (!found) return;
  const bool turned = in.kind == io::Kind::sparse && in.sparse.transposed();
  const auto old = [&](Index row) { return order.empty() ? row : order[std::size_t(row)]; };
  fail_together(
      Exit::input,
      fmt::format("the matrix is not symmetric: A[{0}, {1}] = {2:.17g}, A[{1}, {0}] = "
                  "{3:.17g}; {4}; {5}",
                  old(found->row), old(found->column), turned ? found->transposed : found->value,
                  turned ? found->value : found->transposed, in.where,
                  in.kind == io::Kind::sparse
                      ? "store a symmetric matrix, or say --uplo lower or upper of one triangle"
                      : "conjugate gradients need a symmetric matrix"));
}

}  // namespace terrace::cg
