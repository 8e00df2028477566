// Zip archives as NumPy writes and reads them: members stored or deflated, 64-bit sizes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/backend.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace::io {

struct ZipMember {
  std::string name;
  Index header = 0;  ///< byte of its local header
  Index stored = 0;  ///< bytes in the file
  Index size = 0;    ///< bytes unpacked
  int method = 0;    ///< 0 stored, 8 deflated
  std::uint32_t sum = 0;
  [[nodiscard]] bool stored_as_is() const { return method == 0; }
};

/// The check sum of some bytes, and of two parts behind each other, the second of `bytes` bytes.
std::uint32_t zip_sum(std::string_view bytes);
std::uint32_t zip_sum_of_both(std::uint32_t first, std::uint32_t second, Index bytes);

/// An archive open for reading. Local; any thread may read. All throw Error(input).
class ZipReader {
 public:
  explicit ZipReader(const std::string& path);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;
  [[nodiscard]] Index size() const { return size_; }
  /// By the archive's directory.
  [[nodiscard]] std::vector<ZipMember> members() const;
  /// All of a member, its check sum tested.
  [[nodiscard]] LargeVector<char> read(const ZipMember& member) const;
  /// The byte of the file where the data of a member begin, all of them inside the file.
  [[nodiscard]] Index data(const ZipMember& member) const;
  /// Bytes of the file.
  void bytes(Index from, Index count, char* to) const;

 private:
  [[nodiscard]] LargeVector<char> bytes(Index from, Index count) const;
  std::string path_;
  int file_ = -1;
  Index size_ = 0;
};

/// Makes an archive of stored members piece by piece: what comes back is to be written next.
class ZipWriter {
 public:
  /// A member of so many bytes begins.
  std::string begin(const std::string& name, Index bytes);
  /// Notes bytes of it that are written.
  void add(std::string_view bytes);
  std::string end();
  /// The directory.
  std::string finish();

 private:
  struct Entry {
    std::string name;
    Index header, bytes;
    std::uint32_t sum;
  };
  static std::string head(const Entry& entry, bool directory);
  std::vector<Entry> entries_;
  Index at_ = 0;
};

}  // namespace terrace::io
