// L and U in a file, as `dense factor` writes them: the factor, and a dataset "pivots" beside it.
#pragma once
#include <string>

#include "io/input.hpp"
#include "io/output.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

struct FactorFile {
  io::DenseInput factor, pivots;
};
/// Throws agreed Error(input) where these are no two datasets that fit together. Collective, like
/// the next.
FactorFile open_factor(const Control& control, const io::Location& location);
/// The factor's rows are read when they are asked for.
StoredFactor stored_factor(const Control& control, const FactorFile& file);
/// `matrix`: where the matrix stands, for people. Collective.
void write_factor(const Control& control, io::Output& output, const std::string& name,
                  const StoredFactor& factor, std::span<const Index> destination,
                  const io::Source<double>& rows, const std::string& matrix);

}  // namespace terrace::dense
