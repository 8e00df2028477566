#include "io/shared_text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "io/stored.hpp"
#include "io/volume.hpp"

namespace terrace::io {

namespace {
constexpr Index block_bytes = Index(1) << 20;
constexpr Index overhang = 4096;  // of a block's last line; more is read where that is too little

bool separates(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '\r' || c == '\f' || c == '\n';
}
}  // namespace

SharedText::SharedText(const Control& control, const std::string& path, Index from)
    : path_(path), from_(from), rank_(control.rank()) {
  struct stat status {};
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool mine = file_ >= 0 && fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  const Index size = mine ? Index(status.st_size) : -1;
  end_ = std::max(from, control.reduce(size, Reduce::max));
  const Index first = control.reduce(rank_ == 0 ? size : -1, Reduce::max);
  if (control.reduce(size, Reduce::min) == end_)
    readers_ = control.size();
  else
    end_ = std::max(from, first);
  const Range all = blocks();
  posix_fadvise(file_, from_ + all.first * block_bytes, all.count * block_bytes,
                POSIX_FADV_WILLNEED);
}

SharedText::~SharedText() {
  if (file_ >= 0) close(file_);
}

Index SharedText::rounds(Index each) const {
  return ceil_div(ceil_div(end_ - from_, block_bytes), each * readers_);
}

Range SharedText::blocks(Index round, Index each) const {
  const Index all = ceil_div(end_ - from_, block_bytes), first = round * each * readers_;
  const Index count = std::min(all - first, each * readers_), part = ceil_div(count, readers_);
  const Index begin = std::min(count, rank_ * part);
  return {first + begin, rank_ < readers_ ? std::min(part, count - begin) : 0};
}

Range SharedText::blocks() const {
  return blocks(0, std::max<Index>(1, ceil_div(end_ - from_, block_bytes)));
}

Index SharedText::bytes() const {
  const Range all = blocks();
  return std::min(end_ - from_, all.end() * block_bytes) -
         std::min(end_ - from_, all.first * block_bytes);
}

void SharedText::load(Index from, Index to, std::vector<char>& buffer) const {
  buffer.resize(std::size_t(to - from));
  read_at(file_, from, to - from, buffer.data(), path_);
}

std::string_view SharedText::block(Index k, std::vector<char>& buffer) const {
  const Index begin = from_ + k * block_bytes, end = std::min(end_, begin + block_bytes);
  const Index before = begin == from_ ? 0 : 1;  // the byte that may end the line before
  for (Index more = overhang;; more *= 16) {
    const Index to = std::min(end_, end + more);
    load(begin - before, to, buffer);
    const auto newline = [&](Index at) -> Index {  // behind the first one from `at` on; -1: none
      const void* found = std::memchr(buffer.data() + at, '\n', buffer.size() - std::size_t(at));
      return found ? static_cast<const char*>(found) - buffer.data() + 1 : -1;
    };
    const Index first = before == 0 ? 0 : newline(0);
    if (first < 0 || first >= end - begin + before) return {};  // no line begins here
    Index last = newline(end - begin + before - 1);
    if (last < 0 && to < end_) continue;
    if (last < 0) last = Index(buffer.size());
    count_volume(end - begin, 0);
    return {buffer.data() + first, std::size_t(last - first)};
  }
}

bool next_word(std::string_view& text, std::string_view& word) {
  std::size_t begin = 0;
  while (begin < text.size() && separates(text[begin])) ++begin;
  std::size_t end = begin;
  while (end < text.size() && !separates(text[end])) ++end;
  word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return !word.empty();
}

bool next_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const auto end = text.find('\n');
  line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return true;
}

bool is_number(std::string_view word, double& value) {
  if (!word.empty() && word[0] == '+') word.remove_prefix(1);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && std::isfinite(value);
}

bool is_whole(std::string_view word, Index& value) {
  if (word.empty() || word.size() > 18) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size();
  }
  Index sum = 0;
  const bool minus = word[0] == '-';
  for (const char c : word.substr(minus ? 1 : 0)) {
    if (c < '0' || c > '9') return false;
    sum = sum * 10 + (c - '0');
  }
  value = minus ? -sum : sum;
  return word.size() > std::size_t(minus);
}

}  // namespace terrace::io
