// "file.h5:/path/of/dataset".
#pragma once
#include <string>

#include "io/form.hpp"

namespace terrace::io {

struct Location {
  std::string file;
  std::string path;       ///< empty: the file must hold exactly one fitting object
  FormOptions form = {};  ///< what the user says of it
};

/// Splits at the last ':' that is followed by '/' or ends the file part. ":/b" takes
/// `default_file`. Throws an agreed Error(usage) when the file part is empty and there is no
/// default: all ranks are given the same text.
Location parse_location(const std::string& text, const std::string& default_file = {});
std::string to_string(const Location& location);

}  // namespace terrace::io
