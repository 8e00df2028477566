// Forms that were recognised rather than stated, for the warnings of a run.
#pragma once
#include <string>
#include <vector>

namespace terrace::io {

/// What inputs were recognised as since the last call, "what; where; what to do" each; the same on
/// all ranks.
std::vector<std::string> take_recognised();
/// Notes one; the same text twice counts once. Every rank calls it with the same text.
void recognise(const std::string& what_where_what_to_do);

}  // namespace terrace::io
