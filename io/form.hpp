// What the command line says of an input's form where the file does not, in the words of the
// attributes that files have.
#pragma once
#include <string>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace::io {

struct FormOptions {
  std::string format;        ///< dense, band, csr, csc, coo or bits
  std::string uplo;          ///< lower or upper: of a band, or the one triangle that is stored
  std::string order;         ///< row-major or column-major
  std::string bitorder;      ///< little or big: bytes of packed bits
  Index columns = -1;        ///< of packed bits
  std::vector<Index> shape;  ///< rows, columns
  bool yields = false;       ///< says only what the file does not; else both must be equal

  [[nodiscard]] bool empty() const { return to_text().empty(); }
  /// "--format band --uplo upper": as on the command line.
  [[nodiscard]] std::string to_text() const;
  /// The reverse of to_text(); what it does not know is left out.
  static FormOptions from_text(const std::string& text);
  /// "RxC"; empty where it is none.
  static std::vector<Index> shape_from(const std::string& text);
  /// For a second input, as a right-hand side: how its array lies, where its file does not say.
  [[nodiscard]] FormOptions of_others() const;
  /// Takes what `said` says more. Throws an agreed Error(input) where both say different things.
  void add(const FormOptions& said, const std::string& where);
  /// Throws an agreed Error(usage) naming an option that `what` ("a band matrix") does not obey;
  /// `obeyed`: "--uplo --shape"; `formats`: those that --format may name.
  void require_obeyed(const std::string& what, const std::string& obeyed,
                      const std::string& formats) const;
};

}  // namespace terrace::io
