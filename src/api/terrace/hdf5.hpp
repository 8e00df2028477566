// Matrices in the program's files: read into your memory, and saved from it, by all ranks at once.
//
//   terrace::hdf5::Shape a = terrace::hdf5::look(ranks, "system.h5:/A");
//   terrace::hdf5::read(ranks, "system.h5:/A", Local<double>{data, rows, a.columns});
//   terrace::hdf5::Output file(ranks, "result.h5");
//   file.write("x", n, Local<const double>{x, rows, 1});
//   file.write_factor("factor", factor);
//   file.commit();
//   terrace::dense::Factor again = terrace::hdf5::read_factor(ranks, "result.h5:/factor", {a, rows, n});
//
// A location is "FILE:/path/of/dataset"; without a path the file holds one fitting object. All calls
// are collective. They throw Code::input with the position for what the forms do not allow (NaN and
// Inf, bits other than 0 and 1, a wrong shape), Code::usage and Code::resources for the file itself.
#pragma once
#include <terrace/band.hpp>
#include <terrace/context.hpp>
#include <terrace/dense.hpp>
#include <terrace/gf2.hpp>

TERRACE_API_BEGIN

namespace hdf5 {

enum class Kind { dense, band, csr, bits };

struct Shape {
  Kind kind = Kind::dense;
  std::int64_t rows = 0, columns = 0;  ///< of the matrix; a vector has one column
  std::int64_t half_bandwidth = 0;     ///< of a band
  std::int64_t nonzeros = 0;           ///< of CSR
  bool is_vector = false;              ///< one dimension
};
TERRACE_API Shape look(Context& context, const std::string& location);

/// a := this rank's rows of the matrix, dense or of bits, on the host or a device.
TERRACE_API void read(Context& context, const std::string& location, Local<double> a);
TERRACE_API void read(Context& context, const std::string& location, Local<gf2::Word> a);

/// This rank's columns `columns` (a range) of a band by columns, lower: half_bandwidth + 1 numbers
/// each, side by side at `ab`, in host memory; zero outside the matrix.
TERRACE_API void read_band(Context& context, const std::string& location, Rows columns, double* ab);

/// Rows `rows` of a CSR matrix, ranges that ascend with the rank; both triangles where the file has
/// one. What cg::csr() takes.
struct Csr {
  Rows rows;
  std::vector<std::int64_t> start, column;
  std::vector<double> value;
};
TERRACE_API Csr read_csr(Context& context, const std::string& location, Rows rows);

/// A factor that `terrace dense factor` or Output::write_factor() wrote, by any number of ranks.
/// Solutions are held against `a`, the matrix, which is copied; without it Options::check is false.
TERRACE_API dense::Factor read_factor(Context& context, const std::string& location,
                                      Local<const double> a = {});

/// A file "FILE", or a group "FILE:/group" in it, that appears when it is complete.
class TERRACE_API Output {
 public:
  /// Throws Code::usage where it is there already, unless `overwrite`.
  Output(Context& context, const std::string& target, bool overwrite = false);
  ~Output();
  Output(Output&&) noexcept;
  Output& operator=(Output&&) noexcept;
  /// `rows` rows of doubles; `vector`: one column, in one dimension.
  void write(const std::string& name, std::int64_t rows, Local<const double> a,
             bool vector = false);
  /// Packed bits.
  void write(const std::string& name, std::int64_t rows, Local<const gf2::Word> a);
  /// In SciPy's lower form.
  void write_band(const std::string& name, std::int64_t n, const band::Matrix& a);
  /// Arguments as of cg::csr().
  void write_csr(const std::string& name, std::int64_t n, Rows rows, const std::int64_t* start,
                 const std::int64_t* column, const double* value);
  /// L and U, and "pivots" beside them, for `terrace dense solve --factor`. `matrix`: where the matrix
  /// stands, for people.
  void write_factor(const std::string& name, const dense::Factor& factor,
                    const std::string& matrix = "");
  /// The file gets its name; nothing is left of one that was not committed.
  void commit();

  struct Inside;

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace hdf5

TERRACE_API_END
