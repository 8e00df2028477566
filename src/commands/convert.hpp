// Between HDF5 and text, Matrix Market and NumPy files; one function a direction and form.
#pragma once
#include <string>
#include <vector>

#include "io/location.hpp"
#include "src/program/run.hpp"

namespace terrace {

enum class FileForm { text, matrix_market, numpy, hdf5 };
/// By the extension: .txt .dat, .mtx, .npy, .h5 .hdf5 .he5. Throws Error(usage).
FileForm form_of(const std::string& file);

/// Each writes dataset A (a vector: b) to the output. Rank 0 parses as a stream; no rank holds the
/// matrix.
void text_to_hdf5(Run& run, const std::string& from, io::Output& output);
/// Coordinate form: CSR group with the full pattern, duplicates summed; array form: dense.
void matrix_market_to_hdf5(Run& run, const std::string& from, io::Output& output);
/// Real and whole numbers: dense; uint8 and bool: packed bits.
void numpy_to_hdf5(Run& run, const std::string& from, io::Output& output);

/// How numbers stand in text: `plain` begins with n, `seed_python` and `seed_cpp` have the digits
/// and separators of the programs of the seed (a blank or a tab behind every number, no n).
enum class TextStyle { plain, plain_tabs, seed_python, seed_cpp };
void hdf5_to_text(Run& run, const io::Location& from, const std::string& to, TextStyle style);
void hdf5_to_matrix_market(Run& run, const io::Location& from, const std::string& to);
void hdf5_to_numpy(Run& run, const io::Location& from, const std::string& to);

/// All rows on rank 0, none elsewhere.
inline std::vector<Range> streamed(const Control& control, Index rows) {
  return control.rank() == 0 ? std::vector<Range>{{0, rows}} : std::vector<Range>{};
}

}  // namespace terrace
