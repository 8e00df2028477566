#include "src/commands/dense_stored.hpp"

#include <fmt/core.h>

#include "distrib/agree.hpp"

namespace terrace::dense {
namespace {

/// Refuses what a solve with a stored factor does not obey; `kind`: the factor's method.
void check_factor_options(const Run& run, const DenseOptions& options, const std::string& kind) {
  const CommonOptions& o = run.options;
  const auto refuse = [](bool given, const std::string& name) {
    if (given)
      fail_together(Exit::usage, fmt::format("--factor has its factors already; {}; leave one of "
                                             "them out",
                                             name));
  };
  refuse(!o.method.empty() && o.method != kind, "--method " + o.method);
  refuse(options.pivoting != "auto", "--pivoting");
  refuse(!options.assume.empty(), "--assume");
  refuse(o.precision != "fp64", "--precision " + o.precision);
  refuse(o.guard, "--guard");
  refuse(!o.checkpoint.empty() || !o.restart.empty(), "--checkpoint, --restart");
}

/// "lu" or "cholesky", as the file says.
std::string kind_of(const FactorFiles& files) {
  const auto at = files.attributes.find("content");
  if (at != files.attributes.end() && std::holds_alternative<std::string>(at->second)) {
    const std::string& content = std::get<std::string>(at->second);
    if (content == "Cholesky factor" && files.attributes.count("format") == 0) return "cholesky";
    if (content == "LU factor") return "lu";
  }
  fail_together(Exit::input, fmt::format("the dataset does not say that it is a factor of LU or "
                                         "Cholesky's; {}; name a dataset that dense factor wrote",
                                         io::to_string(files.factor.location())));
}

}  // namespace

double FactorFiles::number(const char* name) const {
  const auto at = attributes.find(name);
  if (at != attributes.end() && std::holds_alternative<Index>(at->second))
    return double(std::get<Index>(at->second));
  if (at != attributes.end() && std::holds_alternative<double>(at->second))
    return std::get<double>(at->second);
  fail_together(Exit::input, fmt::format("the factor has no attribute '{}'; {}; name a dataset "
                                         "that dense factor wrote",
                                         name, io::to_string(factor.location())));
}

FactorFiles open_factor(Run& run, const io::DenseInput& a, const DenseOptions& options) {
  const io::Location at = io::parse_location(options.factor, a.location().file);
  FactorFiles files{io::open_dense(run.control, at, io::Wanted::square_matrix()), {}, {}};
  files.attributes = io::read_attributes(run.control, files.factor.location());
  const std::string kind = kind_of(files);
  check_factor_options(run, options, kind);
  if (kind == "lu") {
    io::Location of_pivots = files.factor.location();  // beside the factor
    of_pivots.path = of_pivots.path.substr(0, of_pivots.path.rfind('/') + 1) + "pivots";
    files.pivots = io::open_dense(run.control, of_pivots, io::Wanted::vectors(files.factor.rows()));
  }
  if (files.factor.rows() != a.rows() || files.factor.columns() != a.rows() ||
      (files.pivots && files.pivots->rows() != a.rows()))
    fail_together(
        Exit::input,
        fmt::format("the factor has order {}, the matrix {}; {}; name the factor of this "
                    "matrix",
                    files.factor.rows(), a.rows(), io::to_string(files.factor.location())));
  run.note_input("factor", files.factor.location());
  return files;
}

StoredFactor stored_factor(const Run& run, const FactorFiles& files) {
  StoredFactor stored;
  stored.power = Index(files.number("power"));
  stored.norm = files.number("norm");
  stored.log_abs_determinant = files.number("log_abs_determinant");
  stored.determinant_sign = files.number("determinant_sign") < 0 ? -1 : 1;
  const Index n = files.factor.rows();
  std::vector<bool> seen(static_cast<std::size_t>(n));
  bool good = true;
  const Range all{0, n};
  files.pivots->read(run.control, {&all, 1}, [&](Index, Index count, const double* values) {
    for (Index i = 0; i < count; ++i) {
      const Index row = Index(values[i]);
      good = good && row >= 0 && row < n && double(row) == values[i] && !seen[std::size_t(row)];
      if (good) seen[std::size_t(row)] = true;
      stored.rows.push_back(row);
    }
  });
  if (run.control.reduce(Index(good), Reduce::min) == 0)
    fail_together(Exit::input, fmt::format("the pivots are no permutation of the rows; {}; write "
                                           "the factor again",
                                           io::to_string(files.pivots->location())));
  stored.read = [&run, &files](std::span<const Range> ranges, const io::Sink<double>& sink) {
    files.factor.read(run.control, ranges, sink);
  };
  return stored;
}

}  // namespace terrace::dense
