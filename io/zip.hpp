// Zip archives as NumPy writes and reads them: members stored or deflated, 64-bit sizes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace::io {

struct ZipMember {
  std::string name;
  Index header = 0;  ///< byte of its local header
  Index stored = 0;  ///< bytes in the file
  Index size = 0;    ///< bytes unpacked
  int method = 0;    ///< 0 stored, 8 deflated
  std::uint32_t sum = 0;
};

/// The members by the archive's directory. Local; throws Error(input).
std::vector<ZipMember> zip_members(const std::string& path);
/// All of a member, its check sum tested.
std::vector<char> zip_read(const std::string& path, const ZipMember& member);

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
  std::vector<Entry> entries_;
  Index at_ = 0;
};

}  // namespace terrace::io
