#include "src/dense/factor_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/imagined.hpp"
#include "src/dense/cholesky.hpp"

namespace terrace::dense {

namespace {

/// As the file says.
bool is_cholesky(const FactorFile& file) {
  const auto at = file.attributes.find("content");
  if (at != file.attributes.end() && std::holds_alternative<std::string>(at->second)) {
    const std::string& content = std::get<std::string>(at->second);
    if (content == "Cholesky factor" && file.attributes.count("format") == 0) return true;
    if (content == "LU factor") return false;
  }
  fail_together(Exit::input, fmt::format("the dataset does not say that it is a factor of LU or "
                                         "Cholesky's; {}; name a dataset that dense factor wrote",
                                         io::to_string(file.factor.location())));
}

}  // namespace

double FactorFile::number(const char* name) const {
  const auto at = attributes.find(name);
  if (at != attributes.end() && std::holds_alternative<Index>(at->second))
    return double(std::get<Index>(at->second));
  if (at != attributes.end() && std::holds_alternative<double>(at->second))
    return std::get<double>(at->second);
  fail_together(Exit::input, fmt::format("the factor has no attribute '{}'; {}; name a dataset "
                                         "that dense factor wrote",
                                         name, io::to_string(factor.location())));
}

FactorFile open_factor(const Control& control, const io::Location& location) {
  FactorFile file{io::open_dense(control, location, io::Wanted::square_matrix()), {}, {}};
  const io::DenseInput& factor = file.factor;
  file.attributes = io::read_attributes(control, factor.location());
  const bool cholesky = is_cholesky(file);
  if (factor.rows() != factor.columns() || factor.is_vector())
    fail_together(Exit::input,
                  fmt::format("the factor is {} x {}, not square; {}; name a dataset that dense "
                              "factor wrote",
                              factor.rows(), factor.columns(), io::to_string(factor.location())));
  if (cholesky) return file;
  io::Location beside = factor.location();
  beside.path = beside.path.substr(0, beside.path.rfind('/') + 1) + "pivots";
  file.pivots = io::open_dense(control, beside, io::Wanted::vectors(factor.rows()));
  if (file.pivots->rows() != factor.rows() || file.pivots->columns() != 1)
    fail_together(Exit::input,
                  fmt::format("the factor has order {} and {} pivots; {}; write the "
                              "factor again",
                              factor.rows(), file.pivots->rows(), io::to_string(beside)));
  return file;
}

StoredFactor stored_factor(const Control& control, const FactorFile& file) {
  StoredFactor stored;
  stored.power = Index(file.number("power"));
  stored.norm = file.number("norm");
  stored.log_abs_determinant = file.number("log_abs_determinant");
  stored.determinant_sign = file.number("determinant_sign") < 0 ? -1 : 1;
  const Index n = file.factor.rows();
  std::vector<bool> seen(static_cast<std::size_t>(n));
  bool good = true;
  const Range all{0, n};
  file.pivots->read(ranks_here(control), {&all, 1}, [&](Index, Index count, const double* values) {
    for (Index i = 0; i < count; ++i) {
      const Index row = Index(values[i]);
      good = good && row >= 0 && row < n && double(row) == values[i] && !seen[std::size_t(row)];
      if (good) seen[std::size_t(row)] = true;
      stored.rows.push_back(row);
    }
  });
  if (control.reduce(Index(good), Reduce::min) == 0)
    fail_together(Exit::input, fmt::format("the pivots are no permutation of the rows; {}; write "
                                           "the factor again",
                                           io::to_string(file.pivots->location())));
  stored.read = [control, factor = file.factor](std::span<const Range> ranges,
                                                const io::Sink<double>& sink) {
    factor.read(control, ranges, sink);
  };
  return stored;
}

RowReader columns_of_cholesky(const Control& control, const FactorFile& file) {
  const Index n = file.factor.rows();
  const RowReader rows = [&](std::span<const Range> ranges, const io::Sink<double>& sink) {
    file.factor.read(ranks_here(control), ranges, sink);
  };
  return [&control, &file, n, read = lower_columns(n, rows)](std::span<const Range> ranges,
                                                             const io::Sink<double>& sink) {
    bool good = true;
    read(ranges, [&](Index position, Index count, const double* columns) {
      for (Index k = 0; k < count; ++k) good = good && columns[k * n] > 0;
      sink(position, count, columns);
    });
    if (control.reduce(Index(good), Reduce::min) == 0)
      fail_together(Exit::input, fmt::format("the factor has a diagonal element that is not "
                                             "positive; {}; write the factor again",
                                             io::to_string(file.factor.location())));
  };
}

void write_cholesky(io::Output& output, const std::string& name, Index n,
                    std::span<const Range> ranges, const io::Source<double>& columns,
                    const CholeskyNotes& notes) {
  output.write<double>(name, n, n, ranges, upper_rows(n, ranges, columns),
                       {{"content", std::string("Cholesky factor")},
                        {"matrix", notes.matrix},
                        {"log_abs_determinant", notes.log_abs_determinant},
                        {"uplo", std::string("upper")},
                        {"reciprocal_condition", notes.reciprocal_condition}});
}

void write_factor(const Control& control, io::Output& output, const std::string& name,
                  const StoredFactor& factor, std::span<const Index> destination,
                  const io::Source<double>& rows, const std::string& matrix) {
  const Index n = Index(factor.rows.size());
  std::vector<Range> ranges;
  if (control.rank() == 0) ranges.push_back({0, n});
  output.write<Index>("pivots", n, -1, ranges, [&](Index position, Index count, Index* out) {
    std::copy_n(factor.rows.begin() + position, count, out);
  });
  output.write_scattered<double>(name, n, n, destination, rows,
                                 {{"content", std::string("LU factor")},
                                  {"matrix", matrix},
                                  {"power", factor.power},
                                  {"norm", factor.norm},
                                  {"log_abs_determinant", factor.log_abs_determinant},
                                  {"determinant_sign", Index(factor.determinant_sign)}});
}

}  // namespace terrace::dense
