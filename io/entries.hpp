// The entries of a sparse matrix, read in windows in the order of the file.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "io/input_file.hpp"
#include "io/sparse_form.hpp"

namespace terrace::io {

/// What is wrong with entries; the first of each kind, agreed by refuse().
struct WrongEntries {
  Offender outside;     ///< row: the major (COO: the entry); column: 0 minor, 1 of COO: its row
  Offender not_finite;  ///< row, column
  Offender fraction;    ///< the same: over GF(2), not a whole number
  Offender other;       ///< the same: in the triangle that is not stored
  /// Throws an agreed Error(input) when there is one. Collective.
  void refuse(const Control& control, const SparseForm& form, const std::string& where) const;
};
/// Throws an agreed Error(input) where there is a wrong pointer. Collective.
void refuse_pointer(const Control& control, const InputFile& input, const SparseForm& form,
                    const Offender& wrong);

/// Numbers `ranges` of a 1-D dataset of the group, by our name for it; unsigned ones beyond 2^63
/// keep their low bits where `words`. Collective.
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  std::span<const Range> ranges, double* out);
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  std::span<const Range> ranges, Index* out, bool words = false);
/// The same of range `range`, handed on in pieces; positions count from range.first.
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  Range range, const Sink<double>& sink);
void read_numbers(const Control& control, const InputFile& input, const std::string& name,
                  Range range, const Sink<Index>& sink);
/// Values of entries `ranges`: as they are, or 0 and 1 of even and odd ones where `parity` (NaN of
/// what is no whole number). Collective.
void read_values(const Control& control, const InputFile& input, const SparseForm& form,
                 std::span<const Range> ranges, bool parity, double* out);
/// Pointers of majors `majors`, count + 1 values from zero on, checked to be monotone. Collective.
LargeVector<Index> read_pointers(const Control& control, const InputFile& input,
                                 const SparseForm& form, Range majors);
/// The same, handed on in pieces; positions count from majors.first. Refused when all is read.
void read_pointers(const Control& control, const InputFile& input, const SparseForm& form,
                   Range majors, const Sink<Index>& sink);

/// keep(entry) for the entries of `share`: majors, of COO entries; with their mirror images where
/// one triangle is stored. In the order of the file. Collective; throws agreed Errors(input).
void each_entry(const Control& control, const InputFile& input, const SparseForm& form, Range share,
                bool parity, const std::function<void(std::span<const Triplet>)>& keep);

}  // namespace terrace::io
