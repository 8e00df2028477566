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

}  // namespace

FactorFile open_factor(Run& run, const io::DenseInput& a, const DenseOptions& options) {
  const io::Location at = io::parse_location(options.factor, a.location().file);
  FactorFile file = open_factor(run.control, at);
  check_factor_options(run, options, file.pivots ? "lu" : "cholesky");
  if (file.factor.rows() != a.rows())
    fail_together(Exit::input,
                  fmt::format("the factor has order {}, the matrix {}; {}; name the factor of this "
                              "matrix",
                              file.factor.rows(), a.rows(), io::to_string(file.factor.location())));
  run.note_input("factor", file.factor.location());
  return file;
}

}  // namespace terrace::dense
