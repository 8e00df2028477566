// Options that are given and would not be obeyed.
#pragma once
#include <string>
#include <vector>

#include "src/program/register.hpp"

namespace terrace {

/// Refuses those of `names` ("--block") that were given on the command line, with the reason why
/// `command` would not obey them: exit 2.
void refuse_given(const CLI::App& command, const std::vector<std::string>& names,
                  const std::string& reason);

}  // namespace terrace
