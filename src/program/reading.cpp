#include "src/program/reading.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "distrib/agree.hpp"
#include "src/program/register.hpp"
#include "src/program/summary.hpp"

namespace terrace {

void add_reading_options(CLI::App& command, CommonOptions& o,
                         const std::vector<std::string>& forms) {
  io::FormOptions& form = o.reading;
  const auto add = [&](const char* name, std::string& value, const char* about,
                       const std::vector<std::string>& words) {
    command.add_option(name, value, about)->check(CLI::IsMember(words))->group("Input");
  };
  const bool bits = std::find(forms.begin(), forms.end(), "bits") != forms.end();
  const bool band = forms.front() == "band";
  std::string shown;
  for (const std::string& name : forms) shown += (shown.empty() ? "" : ",") + name;
  // Every form is a word of the option; one that this command does not read is refused beside the
  // file, which may contradict it.
  command.add_option("--format", form.format, "What the matrix is, if its file does not say")
      ->check(CLI::IsMember(all_forms))
      ->type_name("{" + shown + "}")
      ->group("Input");
  if (forms.size() > 1 || band)
    add("--uplo", form.uplo,
        band ? "Which triangle of the band is stored"
             : "Which triangle is stored, also of a band matrix",
        {"lower", "upper"});
  add("--order", form.order, "Storage order: column-major in files from Fortran, MATLAB or Julia",
      {"row-major", "column-major"});
  if (bits) {
    command.add_option("--columns", form.columns, "Columns of packed bits")
        ->check(not_negative())
        ->group("Input");
    add("--bitorder", form.bitorder, "Order of the bits in a byte, as in numpy.packbits",
        {"little", "big"});
  }
  command
      .add_option_function<std::string>(
          "--shape",
          [&form](const std::string& text) { form.shape = io::FormOptions::shape_from(text); },
          "Rows and columns of the matrix, such as 300x400")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return io::FormOptions::shape_from(text).empty() ? text + " is not ROWSxCOLUMNS"
                                                             : std::string();
          },
          "ROWSxCOLUMNS"))
      ->group("Input");
}

void refuse_rows(Index wanted, Index rows, Index columns, const io::Location& rhs) {
  fail_together(Exit::input, fmt::format("the right-hand side has {}, the matrix {}; {}; give one "
                                         "row for each row of the matrix{}",
                                         counted(rows, "row"), wanted, io::to_string(rhs),
                                         columns == wanted ? " (this one is transposed)" : ""));
}

io::Location matrix_location(const Run& run, const std::string& text) {
  io::Location location = io::parse_location(text);
  location.form = run.options.reading;
  return location;
}

io::Location other_location(const Run& run, const std::string& text,
                            const std::string& default_file) {
  io::Location location = io::parse_location(text, default_file);
  location.form = run.options.reading.of_others();
  return location;
}

}  // namespace terrace
