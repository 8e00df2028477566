// What the command line says of the inputs' forms: one set of options for every command that reads.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/program/run.hpp"

namespace terrace {

/// Every form of a matrix.
inline const std::vector<std::string> all_forms{"dense", "band", "csr", "csc", "coo", "bits"};
/// Adds --format and --shape; --uplo, --order, --columns and --bitorder where one of the `forms` that
/// the command reads has a use for it.
void add_reading_options(CLI::App& command, CommonOptions& options,
                         const std::vector<std::string>& forms);
[[noreturn]] void refuse_rows(Index wanted, Index rows, Index columns, const io::Location& rhs);
/// The matrix that is named, with what the options say of it.
io::Location matrix_location(const Run& run, const std::string& text);
/// Another input; of the options, --order and --bitorder are for it too, where its file says nothing.
io::Location other_location(const Run& run, const std::string& text,
                            const std::string& default_file);
/// Throws an agreed Error(input) where the right-hand side has not `rows` rows, those of the matrix.
template <class Input>
void require_rows(Index rows, const Input& rhs) {
  if (rhs.rows() != rows) refuse_rows(rows, rhs.rows(), rhs.columns(), rhs.location());
}

}  // namespace terrace
