// An archive of arrays as numpy.savez writes it, read by all ranks and threads.
//
//   stored   read where it lies: every rank the elements that it needs
//   packed   a deflated stream begins at its beginning: one thread of the rank that owns the array
//            unpacks all of it; what other ranks need of it is sent
#pragma once
#include <map>
#include <string>
#include <vector>

#include "distrib/control.hpp"
#include "distrib/layout.hpp"
#include "io/foreign.hpp"
#include "io/zip.hpp"

namespace terrace::io {

class NpzFile {
 public:
  struct Array {
    std::string name;
    NpyHeader header;
    ZipMember member;
    Index data = 0;              ///< byte of the file where a stored one begins
    int owner = -1;              ///< of a packed one
    LargeVector<char> unpacked;  ///< on its owner, from the header on
    /// Whether this rank holds or sees its elements.
    [[nodiscard]] bool here(const Control& c) const { return owner < 0 || owner == c.rank(); }
    [[nodiscard]] Index size() const;
  };

  /// Every rank opens it. Collective; throws Error(input).
  NpzFile(const Control& control, const std::string& path);
  [[nodiscard]] bool has(const std::string& name) const { return members_.count(name) > 0; }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::string where(const std::string& name) const;
  /// Bytes of the file.
  [[nodiscard]] Index bytes() const { return archive_->size(); }
  /// All of a small member. Local; throws Error(input).
  [[nodiscard]] LargeVector<char> raw(const std::string& name) const;

  /// Their headers, and what packed ones hold; check sums are tested. Memory: that of the packed
  /// ones. Collective; throws Error(input).
  [[nodiscard]] std::vector<Array> open(const std::vector<std::string>& names) const;
  /// Elements [range) in the order of the file as numbers, where the array is here. Any thread.
  void numbers(const Array& array, const Range& range, double* out) const;
  /// The same of any array, each rank a range of its own. Collective.
  [[nodiscard]] std::vector<double> take(const Array& array, const Range& range) const;

 private:
  [[nodiscard]] const ZipMember& member(const std::string& name) const;
  void test_sum(const Array& array) const;

  Control control_;
  std::string path_;
  std::unique_ptr<const ZipReader> archive_;
  std::map<std::string, ZipMember> members_;
};

}  // namespace terrace::io
