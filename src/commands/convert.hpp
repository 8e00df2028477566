// Between HDF5 and other files; one function per direction and form.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/location.hpp"
#include "io/offender.hpp"
#include "src/program/run.hpp"

namespace terrace {

enum class FileForm { text, csv, matrix_market, sms, alist, numpy, npz, hdf5 };
/// By the extension: .txt .dat, .csv, .mtx, .sms, .alist, .npy, .npz, .h5 .hdf5 .he5. Throws
/// Error(usage).
FileForm form_of(const std::string& file);

/// What is read: a file and how its numbers become a dataset.
struct ConvertFrom {
  std::string file;
  bool bits = false;  ///< --bits: packed bits, of numbers 0 and 1, of sparse ones odd and even
};

/// What has been read, to an output: dataset A, or b where it is a vector. Forms that come in the
/// order of the output are read in pieces while it is written. Collective.
using Writing = std::function<void(io::Output& output)>;

// Each reads a file. Collective.
/// Text that begins with n, or of rows.
Writing read_text(Run& run, const ConvertFrom& from, FileForm form);
/// Coordinate form: CSR group with the full pattern, duplicates summed; array form: dense.
Writing read_matrix_market(Run& run, const ConvertFrom& from);
/// LinBox's sparse form: CSR group.
Writing read_sms(Run& run, const ConvertFrom& from);
/// MacKay's form of LDPC codes: packed bits.
Writing read_alist(Run& run, const ConvertFrom& from);
/// Real and whole numbers: dense; uint8 and bool: packed bits.
Writing read_numpy(Run& run, const ConvertFrom& from);
/// scipy.sparse.save_npz: CSR group; numpy.savez: a dataset per array.
Writing read_npz(Run& run, const ConvertFrom& from);

class Entries;
/// Entries that were dealt: a CSR group, or packed bits.
Writing writing_of(Run& run, const ConvertFrom& from, Entries entries);
/// Progress of the phase in bytes: `all` are read, or written, from now on; `own` by this rank.
enum class Moved { read, written };
void show_bytes(Run& run, Moved moved, double own, double all);
/// Rows of numbers of this rank's `slice`: dataset `name`, dense or packed bits. fill(position,
/// count, out) gives rows.
void write_numbers(Run& run, io::Output& output, const std::string& name, const std::string& from,
                   Index rows, Index columns, bool vector, bool bits, const Range& slice,
                   const std::function<void(Index, Index, double*)>& fill);
/// This rank's contiguous rows.
Range own_slice(const Control& control, Index extent);
/// A number found by rank 0 inside collectively(), on every rank.
Index share(const Control& control, Index value);

/// How numbers stand in text: `plain` begins with n, `seed_python` and `seed_cpp` have the digits
/// and separators of the programs of the seed (a blank or a tab behind every number, no n).
enum class TextStyle { plain, plain_tabs, csv, seed_python, seed_cpp };
void hdf5_to_text(Run& run, const io::Location& from, const std::string& to, TextStyle style,
                  int digits);
void hdf5_to_matrix_market(Run& run, const io::Location& from, const std::string& to);
void hdf5_to_sms(Run& run, const io::Location& from, const std::string& to);
void hdf5_to_alist(Run& run, const io::Location& from, const std::string& to);
void hdf5_to_numpy(Run& run, const io::Location& from, const std::string& to);
void hdf5_to_npz(Run& run, const io::Location& from, const std::string& to);

/// All rows on rank 0, none elsewhere.
inline std::vector<Range> streamed(const Control& control, Index rows) {
  return control.rank() == 0 ? std::vector<Range>{{0, rows}} : std::vector<Range>{};
}

}  // namespace terrace
