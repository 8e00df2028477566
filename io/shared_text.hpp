// A text file read by all ranks and all their threads: blocks of whole lines. Where not every rank
// sees the file, the first one's threads read it.
//
//   bytes   |....block 0....|....block 1....|....block 2....|
//   lines   --------\n---------\n------\n----------\n
//            block 0          | block 1   | block 2           a line is of the block it begins in
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "distrib/control.hpp"
#include "distrib/layout.hpp"

namespace terrace::io {

class SharedText {
 public:
  /// Lines from byte `from` on, which begins one; the file is regular and the first rank sees it.
  /// Collective.
  SharedText(const Control& control, const std::string& path, Index from);
  ~SharedText();
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;
  /// The blocks of this rank; ascending with the rank.
  [[nodiscard]] Range blocks() const;
  /// The same of round k of rounds(each), in which a rank has at most `each`.
  [[nodiscard]] Range blocks(Index round, Index each) const;
  [[nodiscard]] Index rounds(Index each) const;
  /// Bytes of this rank's blocks, of all rounds.
  [[nodiscard]] Index bytes() const;
  [[nodiscard]] Index all_bytes() const { return end_ - from_; }  ///< of all ranks
  /// Block k, in `buffer`. Any thread. Throws Error(input) when the file cannot be read.
  std::string_view block(Index k, std::vector<char>& buffer) const;

 private:
  void load(Index from, Index to, std::vector<char>& buffer) const;
  std::string path_;
  int file_ = -1;
  Index from_ = 0, end_ = 0;
  int rank_ = 0, readers_ = 1;  ///< ranks from 0 on that read
};

/// Cuts the next word off `text`, as TextReader::word() does within a line; false at its end.
bool next_word(std::string_view& text, std::string_view& word);
/// Cuts the next line off `text`, without its end; false at the end of the text.
bool next_line(std::string_view& text, std::string_view& line);
/// All of the word as a finite number, or a whole one; false where it is none.
bool is_number(std::string_view word, double& value);
bool is_whole(std::string_view word, Index& value);

}  // namespace terrace::io
