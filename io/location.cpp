#include "io/location.hpp"

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"

namespace terrace::io {

Location parse_location(const std::string& text, const std::string& default_file) {
  Location location;
  location.file = text;
  auto colon = text.rfind(":/");
  if (colon == std::string::npos && !text.empty() && text.back() == ':') colon = text.size() - 1;
  if (colon != std::string::npos) {
    location.file = text.substr(0, colon);
    location.path = text.substr(colon + 1);
    while (location.path.size() > 1 && location.path.back() == '/') location.path.pop_back();
    if (location.path.rfind("//", 0) == 0 &&
        location.file.find_first_of("./") == std::string::npos && !location.file.empty())
      fail_together(Exit::usage, "an address, not a file; " + printable(text) + "; fetch it first");
    if (location.path == "/") location.path.clear();
  }
  if (location.file.empty()) location.file = default_file;
  if (location.file.empty())
    fail_together(Exit::usage,
                  "no file is named; '" + printable(text) + "'; write FILE.h5:/path/of/dataset");
  return location;
}

std::string to_string(const Location& location) {
  return location.path.empty() ? location.file : location.file + ":" + location.path;
}

}  // namespace terrace::io
