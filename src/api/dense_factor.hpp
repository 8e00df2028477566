// What a file and a dense factor have to do with each other; dense_factor.cpp.
#pragma once
#include <memory>
#include <string>

#include "io/output.hpp"
#include "src/api/terrace/dense.hpp"

namespace terrace::api::dense {

/// Made for one backend, which its solves use too.
struct Factor::Inside {
  virtual ~Inside() = default;
  [[nodiscard]] virtual bool is_cholesky() const = 0;
  virtual Report solve(Local<double> b) = 0;
  /// In the form of src/dense/factor_file.hpp.
  virtual void write(io::Output& output, const std::string& name, const std::string& matrix) = 0;
  Report report;
};

/// From that form; `a` of no columns: there is no matrix to check solutions with.
std::unique_ptr<Factor::Inside> read_factor(Context& context, const std::string& location,
                                            const Local<const double>& a);

}  // namespace terrace::api::dense
