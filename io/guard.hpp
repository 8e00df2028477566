// A damaged file must end in a message, not in a crash inside the HDF5 library.
#pragma once
#include <functional>
#include <string>

namespace terrace::io {

/// The text that `look` returns, computed in a child of this process: when HDF5 crashes or runs in
/// circles on damaged metadata of `file`, only the child ends and Error(input) is thrown. An Error
/// of `look` comes through. Where no child can be had, `look` runs in this process.
std::string look_safely(const std::string& file, const std::function<std::string()>& look);

}  // namespace terrace::io
