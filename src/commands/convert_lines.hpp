// What writers of text share.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "distrib/agree.hpp"
#include "io/foreign.hpp"
#include "io/location.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace {

/// Lines made by all threads, put in order: line(i, text) appends row i of `count` rows.
template <class F>
void put_lines(io::PlainOutput& out, Index count, const F& line) {
  constexpr Index block = 64;
  std::vector<std::string> texts(static_cast<std::size_t>(ceil_div(count, block)));
  parallel_for(Index(texts.size()), [&](Index b) {
    for (Index i = b * block; i < std::min(count, (b + 1) * block); ++i)
      line(i, texts[std::size_t(b)]);
  });
  for (const std::string& text : texts) out.put(text);
}

[[noreturn]] inline void no_form(const io::Location& from, const std::string& what,
                                 const std::string& todo) {
  fail_together(Exit::input, what + "; " + io::to_string(from) + "; " + todo);
}

inline void first_line(const Control& control, io::PlainOutput& out, const std::string& text) {
  collectively(control, [&] {
    if (control.rank() == 0) out.put(text);
  });
}

}  // namespace terrace
