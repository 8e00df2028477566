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
/// The matrix that is named, with what the options say of it.
io::Location matrix_location(const Run& run, const std::string& text);
/// Another input; of the options, --order and --bitorder are for it too, where its file says nothing.
io::Location other_location(const Run& run, const std::string& text,
                            const std::string& default_file);

}  // namespace terrace
