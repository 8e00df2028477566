#include "distrib/quote.hpp"

#include <fmt/core.h>

namespace terrace {

namespace {

void put_escaped(std::string& to, char c) {
  to += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
}

/// Bytes of the character at the front, 0 where it is no UTF-8 or none to show.
std::size_t shown(std::string_view text) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (size == 0 || first > 0xf4 || text.size() < size) return 0;
  unsigned code = first & (0x7fu >> size);
  for (std::size_t k = 1; k < size; ++k) {
    if ((byte(k) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(k) & 0x3fu);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  const bool hidden = code < 0xa0 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff ||
                      (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                      (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
  return overlong || hidden ? 0 : size;
}

}  // namespace

std::string in_quotes(std::string_view text, std::size_t most) {
  std::string result = "'";
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == ';' || c == '\\')
      put_escaped(result, c);
    else
      result += c;
  }
  return result + (text.size() > most ? "...'" : "'");
}

std::string printable(std::string_view message) {
  std::string result;
  while (!message.empty()) {
    const std::size_t size = shown(message);
    if (size == 0) put_escaped(result, message[0]);
    result += message.substr(0, size);
    message.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

std::string in_three_parts(const std::string& message, const std::string& where,
                           const std::string& todo) {
  const auto first = message.find("; ");
  if (first == std::string::npos) return message + "; " + where + "; " + todo;
  if (message.find("; ", first + 2) != std::string::npos) return message;
  return message.substr(0, first) + "; " + where + message.substr(first);
}

}  // namespace terrace
