#include "io/zip.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <libdeflate.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "io/files.hpp"
#include "io/stored.hpp"
#include "io/volume.hpp"
#include "kernels/base/error.hpp"

namespace terrace::io {

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& where) {
  throw Error(Exit::input, what + "; " + where + "; write it again");
}

/// A little-endian number of `count` bytes at `at`; 0 beyond the end.
Index number(const LargeVector<char>& from, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int k = count - 1; k >= 0; --k)
    value = value << 8 | (at + std::size_t(k) < from.size()
                              ? static_cast<unsigned char>(from[at + std::size_t(k)])
                              : 0u);
  return Index(value);
}

void put(std::string& to, std::uint64_t value, int count) {
  for (int k = 0; k < count; ++k) to += char(value >> (8 * k) & 255);
}

constexpr std::uint32_t local_mark = 0x04034b50, entry_mark = 0x02014b50, end_mark = 0x06054b50,
                        end64_mark = 0x06064b50, locator_mark = 0x07064b50,
                        descriptor_mark = 0x08074b50;
constexpr Index all_ones = 0xffffffff;

/// Where the directory begins, its bytes and its entries.
struct Directory {
  Index begin = 0, bytes = 0, entries = 0;
};

/// a b modulo the polynomial of CRC-32, whose bits, and those of a and b, stand in reverse.
std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? 0xedb88320u : 0u);
  }
  return product;
}

}  // namespace

std::uint32_t zip_sum(std::string_view bytes) {
  return libdeflate_crc32(0, bytes.data(), bytes.size());
}

std::uint32_t zip_sum_of_both(std::uint32_t first, std::uint32_t second, Index bytes) {
  std::uint32_t shift = 1u << 31, power = 1u << 23;  // 1, and x^8: one byte
  for (; bytes > 0; bytes >>= 1) {
    if ((bytes & 1) != 0) shift = times(shift, power);
    power = times(power, power);
  }
  return times(shift, first) ^ second;
}

ZipReader::ZipReader(const std::string& path) : path_(path) {
  require_regular_file(path, "name an archive");
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0)
    throw Error(Exit::input, std::string("cannot read the file: ") + std::strerror(errno) + "; " +
                                 path + "; check its permissions");
  struct stat status {};
  if (fstat(file_, &status) == 0) size_ = Index(status.st_size);
}

ZipReader::~ZipReader() { close(file_); }

void ZipReader::bytes(Index from, Index count, char* to) const {
  if (from < 0 || count < 0 || from > size_ || count > size_ - from)
    refuse("a damaged archive: it points outside the file", path_);
  read_at(file_, from, count, to, path_);
  count_volume(count, 0);
}

LargeVector<char> ZipReader::bytes(Index from, Index count) const {
  if (count < 0 || count > size_) refuse("a damaged archive: it points outside the file", path_);
  LargeVector<char> result(static_cast<std::size_t>(count));
  bytes(from, count, result.data());
  return result;
}

namespace {

Directory find_directory(const ZipReader& archive, const std::string& path) {
  const auto bytes = [&](Index from, Index count) {
    LargeVector<char> result(std::size_t(std::min(count, archive.size())));
    archive.bytes(from, count, result.data());
    return result;
  };
  const Index tail = std::min<Index>(archive.size(), 65557);
  const auto end = bytes(archive.size() - tail, tail);
  for (Index at = tail - 22; at >= 0; --at) {
    if (number(end, std::size_t(at), 4) != Index(end_mark)) continue;
    const auto field = [&](int offset, int count) {
      return number(end, std::size_t(at + offset), count);
    };
    Directory d{field(16, 4), field(12, 4), field(10, 2)};
    if (at >= 20 && number(end, std::size_t(at - 20), 4) == Index(locator_mark)) {
      const auto wide = bytes(number(end, std::size_t(at - 12), 8), 56);
      if (number(wide, 0, 4) != Index(end64_mark)) refuse("a damaged archive", path);
      d = {number(wide, 48, 8), number(wide, 40, 8), number(wide, 32, 8)};
    }
    return d;
  }
  refuse("not a zip archive, or a truncated one", path);
}

/// The member that stands at byte `at` of the directory; moves behind it.
ZipMember next_member(const LargeVector<char>& all, std::size_t& at, const std::string& path) {
  if (at + 46 > all.size() || number(all, at, 4) != Index(entry_mark))
    refuse("a damaged archive: its directory", path);
  ZipMember m;
  m.method = int(number(all, at + 10, 2));
  m.sum = std::uint32_t(number(all, at + 16, 4));
  m.stored = number(all, at + 20, 4);
  m.size = number(all, at + 24, 4);
  m.header = number(all, at + 42, 4);
  const auto name = std::size_t(number(all, at + 28, 2)),
             extra = std::size_t(number(all, at + 30, 2)),
             comment = std::size_t(number(all, at + 32, 2));
  const std::size_t begin = at + 46 + name, end = begin + extra;
  if (end + comment > all.size()) refuse("a damaged archive: its directory", path);
  m.name.assign(all.data() + at + 46, name);
  for (std::size_t e = begin; e + 4 <= end; e += 4 + std::size_t(number(all, e + 2, 2))) {
    if (number(all, e, 2) != 1) continue;  // 64-bit sizes, those that are needed
    std::size_t next = e + 4;
    for (Index* const value : {&m.size, &m.stored, &m.header})
      if (*value == all_ones) {
        *value = number(all, next, 8);
        next += 8;
      }
  }
  if ((number(all, at + 8, 2) & 1) != 0) refuse("an encrypted archive", path);
  at = end + comment;
  return m;
}

}  // namespace

std::vector<ZipMember> ZipReader::members() const {
  const Directory d = find_directory(*this, path_);
  const auto all = bytes(d.begin, d.bytes);
  std::vector<ZipMember> members;
  std::size_t at = 0;
  for (Index k = 0; k < d.entries; ++k) members.push_back(next_member(all, at, path_));
  return members;
}

Index ZipReader::data(const ZipMember& m) const {
  const std::string where = path_ + " member " + m.name;
  const auto head = bytes(m.header, 30);
  if (number(head, 0, 4) != Index(local_mark)) refuse("a damaged archive", where);
  const Index begin = m.header + 30 + number(head, 26, 2) + number(head, 28, 2);
  if (m.stored < 0 || begin > size_ || m.stored > size_ - begin)
    refuse("a damaged archive: it points outside the file", where);
  // Deflate makes at most 1032 bytes of one.
  if (m.size < 0 || double(m.size) > 1032.0 * double(m.stored) + 1024 ||
      (m.stored_as_is() && m.size != m.stored))
    refuse("a damaged archive: impossible sizes", where);
  return begin;
}

LargeVector<char> ZipReader::read(const ZipMember& m) const {
  const std::string where = path_ + " member " + m.name;
  LargeVector<char> raw = bytes(data(m), m.stored), data;
  if (m.stored_as_is()) {
    data = std::move(raw);
  } else if (m.method == 8) {
    data.resize(std::size_t(m.size));
    const std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> inflater(
        libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
    std::size_t made = 0;
    if (!inflater ||
        libdeflate_deflate_decompress(inflater.get(), raw.data(), raw.size(), data.data(),
                                      data.size(), &made) != LIBDEFLATE_SUCCESS ||
        made != data.size())
      refuse("a damaged archive: the data do not unpack", where);
  } else {
    throw Error(Exit::input, fmt::format("packed by method {}, not stored or deflated; {}; save it "
                                         "with numpy.savez or savez_compressed",
                                         m.method, where));
  }
  if (zip_sum({data.data(), data.size()}) != m.sum)
    refuse("a damaged archive: the check sum differs", where);
  return data;
}

/// What stands before a member, or for it in the directory.
std::string ZipWriter::head(const Entry& e, bool directory) {
  std::string head;
  put(head, directory ? entry_mark : local_mark, 4);
  if (directory) put(head, 45, 2);
  put(head, 45, 2);    // version: 64-bit sizes
  put(head, 8, 2);     // sizes and sum follow the data
  put(head, 0, 2);     // stored
  put(head, 0, 2);     // time
  put(head, 0x21, 2);  // 1980-01-01
  put(head, e.sum, 4);
  put(head, std::uint64_t(all_ones), 4);
  put(head, std::uint64_t(all_ones), 4);
  put(head, e.name.size(), 2);
  put(head, directory ? 28 : 20, 2);
  if (directory) {
    put(head, 0, 2);  // comment
    put(head, 0, 2);  // disk
    put(head, 0, 2);
    put(head, 0, 4);
    put(head, std::uint64_t(all_ones), 4);
  }
  head += e.name;
  put(head, 1, 2);
  put(head, directory ? 24 : 16, 2);
  put(head, std::uint64_t(e.bytes), 8);
  put(head, std::uint64_t(e.bytes), 8);
  if (directory) put(head, std::uint64_t(e.header), 8);
  return head;
}

std::string ZipWriter::begin(const std::string& name, Index bytes) {
  entries_.push_back({name, at_, bytes, 0});
  std::string before = head(entries_.back(), false);
  at_ += Index(before.size());
  return before;
}

void ZipWriter::add(std::string_view bytes) {
  entries_.back().sum = libdeflate_crc32(entries_.back().sum, bytes.data(), bytes.size());
  at_ += Index(bytes.size());
}

std::string ZipWriter::end() {
  std::string tail;
  put(tail, descriptor_mark, 4);
  put(tail, entries_.back().sum, 4);
  put(tail, std::uint64_t(entries_.back().bytes), 8);
  put(tail, std::uint64_t(entries_.back().bytes), 8);
  at_ += Index(tail.size());
  return tail;
}

std::string ZipWriter::finish() {
  const Index begin = at_;
  std::string all;
  for (const Entry& e : entries_) all += head(e, true);
  const auto bytes = Index(all.size()), entries = Index(entries_.size());
  const Index wide = begin + bytes;
  put(all, end64_mark, 4);
  put(all, 44, 8);
  put(all, 45, 2);
  put(all, 45, 2);
  put(all, 0, 4);
  put(all, 0, 4);
  for (const Index value : {entries, entries, bytes, begin}) put(all, std::uint64_t(value), 8);
  put(all, locator_mark, 4);
  put(all, 0, 4);
  put(all, std::uint64_t(wide), 8);
  put(all, 1, 4);
  put(all, end_mark, 4);
  put(all, 0, 4);
  put(all, 0xffff, 2);
  put(all, 0xffff, 2);
  put(all, std::uint64_t(all_ones), 4);
  put(all, std::uint64_t(all_ones), 4);
  put(all, 0, 2);
  at_ += Index(all.size());
  return all;
}

}  // namespace terrace::io
