// Foreign text in messages: nothing of it may break a line, end it, or make it endless.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace terrace {

/// 'text' for a message: bytes below 0x20 and from 0x7f on, quotes, semicolons and backslashes as
/// \xhh; what is longer than `most` bytes is cut.
std::string in_quotes(std::string_view text, std::size_t most = 40);
/// A message as one line: control characters and what is no UTF-8 as \xhh; names in any script stay
/// readable.
std::string printable(std::string_view message);
/// A message of three parts, what; where; what to do. One of two parts, without a where, or of one
/// gets the others.
std::string in_three_parts(const std::string& message, const std::string& where,
                           const std::string& todo);

}  // namespace terrace
