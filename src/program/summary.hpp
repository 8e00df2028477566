// What every solver says at its end: the problem, the answer, how it was checked, the seconds of
// each phase, and the file.
#pragma once
#include <string>

#include "src/program/run.hpp"

namespace terrace {

/// "1 right-hand side", "2 right-hand sides"; `many`, where it is not the word with an s.
std::string counted(Index number, const std::string& one, const std::string& many = {});
/// Four digits: "1234", "0.001235", "1.235e-07".
std::string digits(double number);

/// Lines of the summary, from the report; `file`: the output, or empty.
void say_summary(const Run& run, const std::string& problem, const std::string& answer,
                 const std::string& file);

}  // namespace terrace
