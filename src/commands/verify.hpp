// Checks of result files, in plain arithmetic of their own: nothing here is shared with the
// solvers.
//
// Every check streams the matrices in row (or column) slices, one contiguous slice per rank; vectors
// of the matrix's order are whole on every rank.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "io/output.hpp"

namespace terrace {

/// What was found: a word for PASS or FAIL, and the figure that decided.
struct Verdict {
  bool pass = false;
  std::string figure;
};

/// Something in the result itself cannot be read, or is no number: it fails. Thrown by all ranks
/// alike.
struct BadResult {
  std::string what;
};

/// A result file: where its datasets stand, and where its inputs are. Its own datasets are opened
/// and read by its members, which throw BadResult.
struct ResultFile {
  const Control& control;
  io::Location base;                           ///< file and group of the result
  io::Attributes run;                          ///< of the group `terrace`
  std::map<std::string, io::Location> inputs;  ///< "input", "rhs", "factor", ...
  /// Progress: `own` bytes of this rank, of `all`, are read of this matrix from now on.
  std::function<void(const io::Location& of, double own, double all)> show;

  [[nodiscard]] io::Location at(const std::string& name) const {
    return {base.file, base.path + "/" + name};
  }
  [[nodiscard]] bool owns(const io::Location& location) const;
  /// `work` reads nothing but the result.
  template <class F>
  auto own(const F& work) const {
    try {
      return work();
    } catch (const Error& e) {
      if (!e.agreed() || e.code() != Exit::input) throw;
      throw BadResult{e.what()};
    }
  }
  [[nodiscard]] io::BitInput bits(const std::string& name, io::Role role = io::Role::matrix) const {
    return own([&] { return io::open_bits(control, at(name), role); });
  }
  [[nodiscard]] io::DenseInput dense(const std::string& name,
                                     io::Role role = io::Role::matrix) const {
    return own([&] { return io::open_dense(control, at(name), role); });
  }
  [[nodiscard]] io::BandInput band(const std::string& name) const {
    return own([&] { return io::open_band(control, at(name)); });
  }
  [[nodiscard]] std::vector<Index> integers(const std::string& name) const {
    return own([&] { return io::read_integers(control, at(name)); });
  }
  /// A range of an input's rows, or columns, or of one of its own.
  template <class Input, class Sink>
  void read(const Input& input, const Range& range, const Sink& sink) const {
    if (show)
      show(input.location(), bytes_of(input, range.count), bytes_of(input, lines_of(input)));
    const auto now = [&] { input.read(control, {&range, 1}, sink); };
    owns(input.location()) ? own(now) : now();
  }
  static double bytes_of(const io::DenseInput& a, Index rows) {
    return 8.0 * double(rows) * double(a.columns());
  }
  static double bytes_of(const io::BitInput& a, Index rows) {
    return 8.0 * double(rows) * double(a.words());
  }
  static double bytes_of(const io::BandInput& a, Index columns) {
    return 8.0 * double(columns) * double(a.half_bandwidth() + 1);
  }
  static Index lines_of(const io::BandInput& a) { return a.n(); }
  template <class Input>
  static Index lines_of(const Input& a) {
    return a.rows();
  }
  [[nodiscard]] const io::Location& input(const std::string& key) const;  ///< throws Error(input)
  [[nodiscard]] std::string text(const std::string& key) const;
  [[nodiscard]] double number(const std::string& key, double otherwise) const;
  [[nodiscard]] Index whole(const std::string& key) const;  ///< throws BadResult
  /// This rank's slice of `extent` items.
  [[nodiscard]] Range slice(Index extent) const;
};

/// One for each command that writes results.
Verdict verify_rref(const ResultFile& result);
Verdict verify_rank(const ResultFile& result);
Verdict verify_bit_solution(const ResultFile& result);
Verdict verify_kernel(const ResultFile& result);
Verdict verify_bit_inverse(const ResultFile& result);
Verdict verify_product(const ResultFile& result);
Verdict verify_factor(const ResultFile& result);
Verdict verify_solution(const ResultFile& result);  ///< band solve, dense solve
Verdict verify_inverse(const ResultFile& result);
Verdict verify_dense_factor(const ResultFile& result);
Verdict verify_cg(const ResultFile& result);
Verdict verify_bit_problem(const ResultFile& result);  ///< generate gf2-*: b = A x_true
Verdict verify_stored(const ResultFile& result);       ///< convert: the content hashes say it all
Verdict verify_problem(const ResultFile& result);      ///< generate: b = A x_true

}  // namespace terrace
