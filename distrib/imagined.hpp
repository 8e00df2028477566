// Ranks that are not there: what --plan --ranks plans for.
#pragma once
#include "distrib/control.hpp"

namespace terrace {

/// `here`, one rank, as the first of so many, `per_host` of them on each host. All others say what
/// this one says: a sum is so many times its number. Data cannot be moved.
Control imagined(const Control& here, int ranks, int per_host);
bool is_imagined(const Control& control);

}  // namespace terrace
