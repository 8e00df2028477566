// terrace convert IN OUT: text, Matrix Market and NumPy to HDF5 and back, chosen by the extensions.
#include "src/convert.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "src/commands.hpp"

namespace terrace {

FileForm form_of(const std::string& file) {
  std::string end = std::filesystem::path(file).extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](char c) { return char(std::tolower(c)); });
  if (end == ".txt" || end == ".dat") return FileForm::text;
  if (end == ".mtx") return FileForm::matrix_market;
  if (end == ".npy") return FileForm::numpy;
  if (end == ".h5" || end == ".hdf5" || end == ".he5") return FileForm::hdf5;
  throw Error(Exit::usage, "unknown extension '" + end + "'; " + file +
                               "; use .txt, .dat, .mtx, .npy, .h5 or .hdf5");
}

namespace {

struct ConvertOptions {
  std::string from, to;
  bool tabs = false;
};

void convert(Run& run, const ConvertOptions& o) {
  const Control& control = run.control;
  io::Location from, to;
  FileForm in{}, out{};
  collectively(control, [&] {
    from = io::parse_location(o.from);
    to = io::parse_location(o.to);
    in = form_of(from.file);
    out = form_of(to.file);
    if ((in == FileForm::hdf5) == (out == FileForm::hdf5))
      throw Error(Exit::usage, "one of the two files must be HDF5; " + o.from + " and " + o.to +
                                   "; convert in two steps");
  });
  run.options.output = o.to;
  run.require_own_files();
  run.require_not_written("input", from);
  run.report["backend"] = "cpu";
  if (out == FileForm::hdf5) {
    io::Output output(control, o.to, run.options.force);
    run.phase("write", [&] {
      if (in == FileForm::text) text_to_hdf5(run, from.file, output);
      if (in == FileForm::matrix_market) matrix_market_to_hdf5(run, from.file, output);
      if (in == FileForm::numpy) numpy_to_hdf5(run, from.file, output);
      auto attributes = run.attributes();
      attributes["source"] = std::filesystem::absolute(from.file).lexically_normal().string();
      output.commit(attributes);
    });
  } else {
    run.phase("write", [&] {
      if (out == FileForm::text) hdf5_to_text(run, from, to.file, o.tabs ? '\t' : ' ');
      if (out == FileForm::matrix_market) hdf5_to_matrix_market(run, from, to.file);
      if (out == FileForm::numpy) hdf5_to_numpy(run, from, to.file);
    });
  }
  run.say(fmt::format("converted {} to {} in {:.3f} s", o.from, o.to, run.seconds("write")));
}

}  // namespace

void add_convert_command(CLI::App& app, Selected& selected) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = app.add_subcommand(
      "convert", "Text, Matrix Market or NumPy to HDF5 (dataset A, of a vector b) and back");
  command->add_option("in", options->from, "IN: .txt .dat .mtx .npy, or FILE.h5:/path")->required();
  command->add_option("out", options->to, "OUT: the same, one of the two is HDF5")->required();
  command->add_flag("--tabs", options->tabs, "Separate the numbers of a text file by tabs");
  command->add_flag("--force", selected.options.force, "Overwrite an existing output");
  command->add_option("--report", selected.options.report, "Write a JSON report to this file");
  command->add_flag("--quiet", selected.options.quiet, "Print errors only");
  command->callback([&selected, options] {
    selected.command = "convert";
    selected.action = [options](Run& run) { convert(run, *options); };
  });
}

}  // namespace terrace
