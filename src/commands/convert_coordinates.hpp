// Text of lines "row column value": Matrix Market coordinates and SMS.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "distrib/agree.hpp"
#include "io/foreign.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

/// What a header says of the lines below it; the same bytes on every rank.
struct Coordinates {
  Index rows = 0, columns = 0;
  Index entries = -1;  ///< -1: the line 0 0 0 ends them
  Index pattern = 0;   ///< no values: 1
  Index symmetric = 0, skew = 0;
  Index body = 0;  ///< byte of the first entry; -1: of a stream
};

/// To a CSR group, or packed bits. All ranks and threads read blocks of lines; where anything is
/// unusual, and of a stream, the first rank reads in order and names what is wrong with its line.
/// `reader`: the first rank's, behind the header. Collective.
Writing read_coordinates(Run& run, const ConvertFrom& from, io::TextReader* reader,
                         const Coordinates& c);

/// Entries in the order of the file: next(t) on the first rank, false behind the last one, then
/// keep(t) on every rank. Collective.
template <class Next, class Keep>
void each_in_order(const Control& control, const Next& next, const Keep& keep) {
  constexpr Index piece = Index(1) << 18;
  std::vector<io::Triplet> entries;
  for (Index count = piece; count == piece;) {
    count = 0;
    collectively(control, [&] {
      entries.resize(std::size_t(piece));
      while (control.rank() == 0 && count < piece && next(entries[std::size_t(count)])) ++count;
    });
    count = share(control, count);
    control.broadcast(entries.data(), count * Index(sizeof(io::Triplet)), 0);
    for (Index k = 0; k < count; ++k) keep(entries[std::size_t(k)]);
  }
}

/// The next number of a line; moves behind it and the blanks before it. False where it is none.
bool take_whole(const char*& at, const char* end, Index& value);
bool take_number(const char*& at, const char* end, double& value);
bool rest_is_blank(const char* at, const char* end);

}  // namespace terrace
