// Files that are not HDF5: text, Matrix Market and NumPy, read and written by one rank as a stream.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distrib/control.hpp"
#include "io/unfinished.hpp"

namespace terrace::io {

/// The name of standard input and standard output among files.
constexpr const char* standard_stream = "-";

/// Of a side of a matrix that needs no room of its own: more is a slip, or an attack.
constexpr Index max_extent = Index(1) << 36;

/// Words of a text file with their line numbers. Throws Error(input) "what; FILE line N; ...".
class TextReader {
 public:
  explicit TextReader(const std::string& path);
  /// The next word; false at the end. Valid until the next call.
  bool word(std::string_view& text);
  /// The rest of the current line (all of the next one at its start); false at the end.
  bool line(std::string& text);
  double number();
  Index whole();
  /// Bytes of a whole file; 0 of a stream.
  [[nodiscard]] Index size() const;
  /// Bytes taken so far; -1 of standard input.
  [[nodiscard]] Index offset() const;
  /// The byte where the text begins, behind a byte-order mark; after the first word or line.
  [[nodiscard]] Index begin() const { return Index(begin_); }
  /// Fails where the whole file has no room for so many words of at least `least` bytes: what its
  /// header says is believed only then. `what`: of the message.
  void require_room(double words, double least, const std::string& what) const;
  /// Fails where a side of the matrix is longer than any machine can hold.
  void require_extents(double rows, double columns) const;
  [[noreturn]] void fail(const std::string& what, const std::string& todo) const;

 private:
  bool refill();
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0, begin_ = 0;
  Index read_ = 0;
  Index line_ = 1, word_line_ = 1;
};

/// What the header of a .npy file says.
struct NpyHeader {
  char kind = 'f';           ///< f, i, u, b as NumPy's
  Index bytes = 8;           ///< of one element
  bool swapped = false;      ///< big-endian
  bool fortran = false;      ///< column-major
  std::vector<Index> shape;  ///< 1 or 2 numbers
  Index offset = 0;          ///< of the data
};
NpyHeader read_npy_header(const std::string& path);
/// The same of an array that begins with `head` and has `bytes` in all; `where`: for messages.
NpyHeader npy_header_of(std::string_view head, Index bytes, const std::string& where);
/// `count` elements in the file's form as numbers.
void npy_numbers(const NpyHeader& header, const char* data, Index count, double* out);
std::string npy_header(const std::string& descr, const std::vector<Index>& shape);
/// Elements [from, from + count) of a .npy file as numbers. Local; opens the file each time.
void read_npy(const std::string& path, const NpyHeader& header, Index from, Index count,
              double* out);

/// A plain output file written by rank 0 under a temporary name, or standard output; checks as
/// io::Output. Collective but for put().
class PlainOutput {
 public:
  /// `least_bytes`: what will be written at least; refused where the disk has no room for it.
  PlainOutput(const Control& control, const std::string& path, bool force, double least_bytes);
  ~PlainOutput();
  PlainOutput(const PlainOutput&) = delete;
  PlainOutput& operator=(const PlainOutput&) = delete;
  void put(std::string_view bytes);  ///< rank 0; throws Error(resources)
  void commit();

 private:
  Control control_;
  std::string path_, temporary_;
  bool standard_;
  bool fresh_ = false;  ///< nothing is to be replaced
  Unfinished unfinished_;
  std::FILE* file_ = nullptr;
};

}  // namespace terrace::io
