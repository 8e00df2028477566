#include "io/foreign.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/files.hpp"
#include "io/volume.hpp"

namespace terrace::io {

namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

/// What a file is that begins with these bytes, and what to do; empty: no other kind is known.
std::pair<std::string, std::string> other_kind(std::string_view head) {
  using namespace std::string_view_literals;
  const auto begins = [&](std::string_view with) { return head.substr(0, with.size()) == with; };
  if (begins("\x1f\x8b"sv)) return {"compressed by gzip", "unpack it first: gunzip"};
  if (begins("BZh"sv)) return {"compressed by bzip2", "unpack it first: bunzip2"};
  if (begins("\xfd"
             "7zXZ"sv))
    return {"compressed by xz", "unpack it first: unxz"};
  if (begins("\x28\xb5\x2f\xfd"sv)) return {"compressed by zstd", "unpack it first: unzstd"};
  if (begins("\x89HDF"sv)) return {"an HDF5 file", "give it a name that ends with .h5"};
  if (begins("PK\x03\x04"sv))
    return {"a zip archive", "unpack it first, or name it .npz if NumPy wrote it"};
  if (begins("\xff\xfe"sv) || begins("\xfe\xff"sv)) return {"text in UTF-16", "save it in UTF-8"};
  return {};
}

std::FILE* open_to_read(const std::string& path) {
  require_regular_file(path, "name a file with numbers");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    throw Error(Exit::input, fmt::format("cannot read the file: {}; {}; check its permissions",
                                         std::strerror(errno), path));
  char head[6] = {};
  const std::size_t got = std::fread(head, 1, sizeof head, file);
  std::rewind(file);
  if (const auto [kind, cure] = other_kind({head, got}); !kind.empty()) {
    std::fclose(file);
    throw Error(Exit::input, kind + "; " + path + "; " + cure);
  }
  return file;
}

bool blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == ',' || c == '\f';
}

}  // namespace

TextReader::TextReader(const std::string& path)
    : path_(path == standard_stream ? "standard input" : path),
      file_(path == standard_stream ? stdin : open_to_read(path)),
      buffer_(1 << 20) {}

/// Moves what is unread to the front and reads more; false when nothing more comes.
bool TextReader::refill() {
  std::copy(buffer_.begin() + std::ptrdiff_t(at_), buffer_.begin() + std::ptrdiff_t(end_),
            buffer_.begin());
  end_ -= at_;
  at_ = 0;
  if (end_ == buffer_.size()) fail("a word of more than a megabyte", "is it a text file?");
  const std::size_t got = std::fread(buffer_.data() + end_, 1, buffer_.size() - end_, file_.get());
  if (read_ == 0 && std::string_view(buffer_.data(), got).substr(0, 3) == byte_order_mark)
    at_ = begin_ = byte_order_mark.size();
  end_ += got;
  read_ += Index(got);
  count_volume(Index(got), 0);
  return got > 0;
}

Index TextReader::offset() const { return file_.get() == stdin ? -1 : read_ - Index(end_ - at_); }

Index TextReader::size() const {
  struct stat status {};
  const bool file = fstat(fileno(file_.get()), &status) == 0 && S_ISREG(status.st_mode);
  return file ? Index(status.st_size) : 0;
}

bool TextReader::word(std::string_view& text) {
  for (;;) {
    while (at_ < end_ && blank(buffer_[at_])) line_ += buffer_[at_++] == '\n';
    if (at_ < end_) break;
    if (!refill()) return false;
  }
  std::size_t length = 0;
  for (;;) {
    while (at_ + length < end_ && !blank(buffer_[at_ + length])) ++length;
    if (at_ + length < end_ || !refill()) break;
  }
  text = {buffer_.data() + at_, length};
  at_ += length;
  word_line_ = line_;
  return true;
}

bool TextReader::line(std::string& text) {
  text.clear();
  bool any = false;
  for (;;) {
    while (at_ < end_) {
      any = true;
      const char c = buffer_[at_++];
      if (c == '\n') {
        word_line_ = line_++;
        return true;
      }
      if (c != '\r') text += c;
      if (text.size() > buffer_.size())
        fail("a line of more than a megabyte", "is it a text file?");
    }
    if (!refill()) break;
  }
  word_line_ = line_;
  return any;
}

void TextReader::require_room(double words, double least, const std::string& what) const {
  if (!(words <= 0x1p56)) fail(what + " are more than any machine can hold", "correct the sizes");
  if (size() == 0) return;
  const double wanted = words * (least + 1) - 1;  // a blank between two words
  constexpr double little = 0x1p20;               // what is short is read: the line then is named
  if (!(wanted <= std::max(little, double(size()))))
    fail(fmt::format("the file is too short for {}: {:.17g} bytes, at least {:.6g} are wanted",
                     what, double(size()), wanted),
         "correct the sizes, or write it again");
}

void TextReader::require_extents(double rows, double columns) const {
  if (std::max(rows, columns) > double(max_extent))
    fail(fmt::format("{:.17g} x {:.17g} is more than any machine can hold", rows, columns),
         "correct the sizes");
}

void TextReader::fail(const std::string& what, const std::string& todo) const {
  throw Error(Exit::input, fmt::format("{}; {} line {}; {}", what, path_, word_line_, todo));
}

double TextReader::number() {
  std::string_view text;
  if (!word(text)) fail("the file ends too early", "give all the numbers that it announces");
  std::string_view digits = text[0] == '+' ? text.substr(1) : text;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    if (error == std::errc::result_out_of_range)
      fail(in_quotes(text) + " is outside the range of numbers", "scale the matrix");
    fail(in_quotes(text) + " is not a finite number", "write it as 1.5 or 1.5e-3");
  }
  return value;
}

Index TextReader::whole() {
  std::string_view text;
  if (!word(text)) fail("the file ends too early", "give all the numbers that it announces");
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(in_quotes(text) + " is not a whole number", "give a count or an index");
  return value;
}

NpyHeader read_npy_header(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(open_to_read(path), &std::fclose);
  std::string head((std::size_t(1) << 20) + 12, '\0');
  head.resize(std::fread(head.data(), 1, head.size(), file.get()));
  struct stat status {};
  if (fstat(fileno(file.get()), &status) != 0) status.st_size = 0;
  return npy_header_of(head, Index(status.st_size), path);
}

NpyHeader npy_header_of(std::string_view begin, Index size, const std::string& path) {
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    throw Error(Exit::input, what + "; " + path + "; " + todo);
  };
  unsigned char head[12] = {};
  begin.copy(reinterpret_cast<char*>(head), 12);
  if (begin.size() < 10 || std::memcmp(head, "\x93NUMPY", 6) != 0)
    refuse("not a NumPy file", "write it with numpy.save");
  std::size_t length = head[8] + 256u * head[9];
  Index offset = 10;
  if (head[6] >= 2) {
    if (begin.size() < 12) refuse("a truncated header", "save it again");
    length += 65536u * head[10] + 16777216u * head[11];
    offset = 12;
  }
  if (length > (1u << 20)) refuse("a damaged header", "save it again");
  if (begin.size() < std::size_t(offset) + length) refuse("a truncated header", "save it again");
  const std::string text(begin.substr(std::size_t(offset), length));
  NpyHeader header;
  header.offset = offset + Index(length);
  const auto after = [&](const std::string& key) {
    const auto at = text.find("'" + key + "'");
    const auto colon = at == std::string::npos ? at : text.find(':', at);
    const auto value = colon == std::string::npos ? colon : text.find_first_not_of(' ', colon + 1);
    if (value == std::string::npos) refuse("the header lacks " + key, "save it again");
    return value;
  };
  const auto type = after("descr");
  if (text[type] != '\'' || type + 4 > text.size()) refuse("a structured type", "save numbers");
  const std::string descr = text.substr(type + 1, text.find('\'', type + 1) - type - 1);
  header.swapped = descr[0] == '>';
  header.kind = descr.size() > 1 ? descr[1] : '?';
  header.bytes = std::atoi(descr.c_str() + std::min<std::size_t>(2, descr.size()));
  const bool real = header.kind == 'f' && (header.bytes == 4 || header.bytes == 8);
  const bool whole =
      (header.kind == 'i' || header.kind == 'u') &&
      (header.bytes == 1 || header.bytes == 2 || header.bytes == 4 || header.bytes == 8);
  if (!real && !whole && !(header.kind == 'b' && header.bytes == 1))
    refuse("wrong type " + in_quotes(descr), "save float64, float32, integers or bool");
  header.fortran = text.compare(after("fortran_order"), 4, "True") == 0;
  const auto open = text.find('(', after("shape")), close = text.find(')', open);
  if (open == std::string::npos || close == std::string::npos) refuse("no shape", "save it again");
  for (auto at = open + 1; at < close;) {
    const auto digit = text.find_first_of("0123456789", at);
    if (digit == std::string::npos || digit > close) break;
    Index extent = 0;
    const char* const end = text.data() + close;
    const auto [after_it, error] = std::from_chars(text.data() + digit, end, extent);
    if (error != std::errc() || text[digit - 1] == '-')
      refuse("impossible dimensions", "save it again");
    header.shape.push_back(extent);
    at = std::size_t(after_it - text.data());
  }
  if (header.shape.empty() || header.shape.size() > 2)
    refuse(fmt::format("wrong shape: {} dimensions", header.shape.size()),
           "a matrix has 2 dimensions, a vector 1");
  double bytes = double(header.bytes);
  Index largest = 0;
  for (const Index d : header.shape) {
    bytes *= double(d);
    largest = std::max(largest, d);
  }
  if (double(size) < double(header.offset) + bytes)
    refuse(fmt::format("the file is too short for its shape: {:.17g} bytes, {:.17g} are wanted",
                       double(size), double(header.offset) + bytes),
           "save it again");
  if (bytes == 0 && largest > max_extent) refuse("impossible dimensions", "save it again");
  return header;
}

std::string npy_header(const std::string& descr, const std::vector<Index>& shape) {
  const std::string size =
      shape.empty()
          ? "()"
          : fmt::format("({},{})", shape[0], shape.size() > 1 ? fmt::format(" {}", shape[1]) : "");
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, size);
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string result = "\x93NUMPY";
  result += {'\x01', '\x00', char(text.size() % 256), char(text.size() / 256)};
  return result + text;
}

namespace {
template <class T>
void convert(const char* from, Index count, bool swapped, double* out) {
  for (Index i = 0; i < count; ++i) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, from + i * Index(sizeof(T)), sizeof(T));
    if (swapped) std::reverse(bytes, bytes + sizeof(T));
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    out[i] = double(value);
  }
}
}  // namespace

void read_npy(const std::string& path, const NpyHeader& h, Index from, Index count, double* out) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(open_to_read(path), &std::fclose);
  std::vector<char> raw(std::size_t(count * h.bytes));
  if (fseeko(file.get(), off_t(h.offset + from * h.bytes), SEEK_SET) != 0 ||
      std::fread(raw.data(), 1, raw.size(), file.get()) != raw.size())
    throw Error(Exit::input, "cannot read the data; " + path + "; save it again");
  npy_numbers(h, raw.data(), count, out);
}

void npy_numbers(const NpyHeader& h, const char* data, Index count, double* out) {
  const int form = int(h.bytes) * 4 + (h.kind == 'f' ? 0 : h.kind == 'i' ? 1 : 2);
  switch (form) {
    case 8 * 4 + 0:
      return convert<double>(data, count, h.swapped, out);
    case 4 * 4 + 0:
      return convert<float>(data, count, h.swapped, out);
    case 8 * 4 + 1:
      return convert<std::int64_t>(data, count, h.swapped, out);
    case 4 * 4 + 1:
      return convert<std::int32_t>(data, count, h.swapped, out);
    case 2 * 4 + 1:
      return convert<std::int16_t>(data, count, h.swapped, out);
    case 1 * 4 + 1:
      return convert<std::int8_t>(data, count, h.swapped, out);
    case 8 * 4 + 2:
      return convert<std::uint64_t>(data, count, h.swapped, out);
    case 4 * 4 + 2:
      return convert<std::uint32_t>(data, count, h.swapped, out);
    case 2 * 4 + 2:
      return convert<std::uint16_t>(data, count, h.swapped, out);
    default:
      return convert<std::uint8_t>(data, count, h.swapped, out);
  }
}

PlainOutput::PlainOutput(const Control& control, const std::string& path, bool force,
                         double least_bytes)
    : control_(control),
      path_(path == standard_stream ? "standard output" : control.broadcast(followed(path), 0)),
      standard_(path == standard_stream) {
  if (standard_) {
    if (control_.rank() == 0) file_ = stdout;
    signal(SIGPIPE, SIG_IGN);  // a reader that has left is an error of the write
    return;
  }
  collectively(control_, [&] {
    if (control_.rank() != 0) return;
    struct stat status {};
    const bool there = stat(path_.c_str(), &status) == 0;
    fresh_ = !there && !force;
    if (!there && errno == ENAMETOOLONG)
      throw Error(Exit::usage,
                  "the output's name is too long; " + path_ + "; choose a shorter one");
    if (there && S_ISDIR(status.st_mode))
      throw Error(Exit::usage, "the output is a folder; " + path_ + "; name a file in it");
    if (there && !S_ISREG(status.st_mode))  // a rename would replace the device
      throw Error(Exit::usage,
                  "the output is not a regular file; " + path_ + "; choose another name");
    if (there && !force)
      throw Error(Exit::usage,
                  "the output exists; " + path_ + "; choose another name or add --force");
    const std::string folder = folder_of(path_), reason = why_not_writable(folder);
    if (!reason.empty())
      throw Error(Exit::usage, "cannot write in the output folder: " + reason + "; " + folder +
                                   "; choose a writable folder");
    if (const auto room = double(free_bytes(folder)); least_bytes > room)
      throw Error(Exit::resources,
                  fmt::format("no room on the disk: {:.3g} GB are needed at least, {:.3g} GB are "
                              "free; {}; free space or choose another folder",
                              least_bytes / 1e9, room / 1e9, path_));
    const auto bytes = static_cast<long long>(std::min(least_bytes, 0x1p62));
    if (const std::string limited = why_too_large(bytes); !limited.empty())
      throw Error(Exit::resources,
                  fmt::format("no room on the disk: {:.3g} GB are needed at least, {}; {}; raise "
                              "the limit",
                              least_bytes / 1e9, limited, path_));
  });
  temporary_ = control_.broadcast(unfinished_name(path_, getpid()), 0);
  collectively(control_, [&] {
    unfinished_.begin(temporary_);
    if (control_.rank() != 0) return;
    signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of the write, as a full disk is
    file_ = std::fopen(temporary_.c_str(), "wb");
    if (file_ == nullptr)
      throw Error(Exit::usage,
                  fmt::format("cannot create the output: {}; {}; choose a writable folder",
                              std::strerror(errno), path_));
  });
}

PlainOutput::~PlainOutput() {
  if (file_ && !standard_) std::fclose(file_);
}

void PlainOutput::put(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    throw Error(Exit::resources,
                fmt::format("cannot write the output: {}; {}; {}", std::strerror(errno), path_,
                            standard_ ? "look at what reads it" : "free space on the disk?"));
  count_volume(0, Index(bytes.size()));
}

void PlainOutput::commit() {
  if (standard_)
    return collectively(control_, [&] {
      if (control_.rank() == 0 && std::fflush(stdout) != 0)
        throw Error(Exit::resources,
                    fmt::format("cannot write the output: {}; {}; look at what reads it",
                                std::strerror(errno), path_));
    });
  collectively(control_, [&] {
    if (control_.rank() != 0) return;
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    const std::string reason = closed ? sync_file(temporary_) : std::strerror(errno);
    if (!reason.empty())
      throw Error(
          Exit::resources,
          fmt::format("cannot write the output: {}; {}; free space on the disk?", reason, path_));
    give_name(temporary_, path_, fresh_ && name_is_taken(path_));
  });
  unfinished_.finish();
}

}  // namespace terrace::io
