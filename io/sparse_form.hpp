// What a group says of the sparse matrix that it holds: SciPy, AnnData, h5sparse, 10x, MATLAB,
// PETSc and Binsparse name their datasets and facts differently.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "io/inspect.hpp"

namespace terrace::io {

/// How the entries stand: by rows, by columns, or each with its row and column.
enum class Layout { csr, csc, coo };
enum class Triangle { none, lower, upper };

struct SparseForm {
  Layout layout = Layout::csr;
  Index rows = 0, columns = 0;
  Index stored = 0;                    ///< entries in the file
  Index base = 0;                      ///< 1: pointers and indices count from one
  Triangle triangle = Triangle::none;  ///< all that is stored; the other one is its mirror image
  bool same = false;                   ///< `data` holds one value, that of all entries
  /// Rows of a CSR, columns of a CSC matrix: what the pointers point at.
  [[nodiscard]] Index majors() const { return layout == Layout::csc ? columns : rows; }
  [[nodiscard]] Index minors() const { return layout == Layout::csc ? rows : columns; }
};

/// Our names of a group's datasets, and what the file calls them: data, indices, indptr; row, col;
/// shape. `has`: whether the group holds a dataset of this name.
std::map<std::string, std::string> sparse_names(const AnyAttributes& attributes,
                                                const std::function<bool(const char*)>& has);
/// Whether the group holds what a sparse matrix needs.
bool is_sparse(const Object& object);
/// What a group is, where a dataset is needed.
inline const char* what_group(const Object& group) {
  return is_sparse(group) ? "a sparse matrix, which only cg, gf2 and convert read"
                          : "a group, not a dataset";
}
/// "csr", "csc" or "coo" where the file says so, else empty.
std::string stated_layout(const Object& object);
/// Rows and columns where the file or `said` says them, else empty.
std::vector<Index> sparse_shape(const Object& object, const FormOptions& said);
/// Throws agreed Errors(input) for what does not fit together, in the file or with `said`. What is
/// recognised rather than stated is noted (io/recognised.hpp).
SparseForm sparse_form(const Object& object, const FormOptions& said, const std::string& where);

}  // namespace terrace::io
