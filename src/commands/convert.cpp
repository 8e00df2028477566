// terrace convert IN OUT: text, files of entries and NumPy's to HDF5 and back, chosen by the
// extensions.
#include "src/commands/convert.hpp"
#include "src/commands/verify.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "distrib/agree.hpp"
#include "distrib/session.hpp"
#include "io/foreign.hpp"
#include "src/program/reading.hpp"
#include "src/program/register.hpp"

namespace terrace {

FileForm form_of(const std::string& file) {
  std::string end = std::filesystem::path(file).extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](char c) { return char(std::tolower(c)); });
  if (end == ".txt" || end == ".dat") return FileForm::text;
  if (end == ".csv") return FileForm::csv;
  if (end == ".mtx") return FileForm::matrix_market;
  if (end == ".sms") return FileForm::sms;
  if (end == ".alist") return FileForm::alist;
  if (end == ".npy") return FileForm::numpy;
  if (end == ".npz") return FileForm::npz;
  if (end == ".h5" || end == ".hdf5" || end == ".he5") return FileForm::hdf5;
  if (end == ".mat")
    throw Error(Exit::usage,
                "a MATLAB file is not converted; " + file +
                    "; save it with -v7.3: such files are read as they are, as in FILE.mat:/A");
  for (const auto& [packed, unpack] : {std::pair{".gz", "gunzip"},
                                       {".bz2", "bunzip2"},
                                       {".xz", "unxz"},
                                       {".zst", "unzstd"},
                                       {".zip", "unzip"}})
    if (end == packed)
      throw Error(Exit::usage, "a compressed file; " + file + "; unpack it first: " + unpack);
  throw Error(Exit::usage,
              "unknown extension '" + end + "'; " + file +
                  "; use .txt, .dat, .csv, .mtx, .sms, .alist, .npy, .npz, .h5 or .hdf5");
}

namespace {

struct ConvertOptions {
  std::string from, to, as;
  bool tabs = false, seed_format = false, bits = false;
  int digits = 0;  ///< 0: not given
  io::FormOptions reading;
};

/// The form of a file, or of what "-" carries: text if --as does not say.
FileForm form_named(const std::string& file, const ConvertOptions& o) {
  if (file != io::standard_stream) return form_of(file);
  return o.as == "mtx" ? FileForm::matrix_market : o.as == "npy" ? FileForm::numpy : FileForm::text;
}

[[noreturn]] void refuse(const std::string& what, const std::string& where,
                         const std::string& todo) {
  throw Error(Exit::usage, what + "; " + where + "; " + todo);
}

/// Options that the forms do not obey. Throws Error(usage).
void check_options(const ConvertOptions& o, const std::string& from, FileForm in,
                   const std::string& to, FileForm out) {
  if (in == FileForm::hdf5 && out == FileForm::hdf5)
    refuse("both files are HDF5", o.from + " and " + o.to,
           "name one of another form, such as .mtx or .npy");
  if (in != FileForm::hdf5 && out != FileForm::hdf5)
    refuse("neither file is HDF5", o.from + " and " + o.to,
           "convert in two steps, by a file such as between.h5");
  if (in != FileForm::hdf5 && !o.reading.empty())
    refuse("these options describe HDF5 files only", o.reading.to_text(), "leave it out");
  const bool reads = from == io::standard_stream, writes = to == io::standard_stream;
  if (!o.as.empty() && !reads && !writes)
    refuse("the extension of the file already names its form", "--as " + o.as,
           "use it with - (standard input or output) only");
  if (out != FileForm::text && (o.tabs || o.seed_format))
    refuse("separators are for text only", o.seed_format ? "--seed-format" : "--tabs",
           "leave it out, or write to a .txt file or -");
  const bool text = out == FileForm::text || out == FileForm::csv;
  if (o.digits > 0 && (!text || o.seed_format))
    refuse(text ? "the seed programs print seven digits" : "the number of digits is for text only",
           "--digits", "leave it out");
  if (o.bits && out != FileForm::hdf5)
    refuse("packed bits are for HDF5 only", "--bits", "leave it out");
  if (in == FileForm::numpy && reads)
    refuse("a NumPy file is read in pieces, by all ranks", "standard input",
           "store it in a file first, or send text or Matrix Market");
  if (reads && isatty(STDIN_FILENO) == 1)
    refuse("standard input is a terminal", "-", "name a file, or send one with <");
  if (out == FileForm::numpy && writes && !launched() && isatty(STDOUT_FILENO) == 1)
    refuse("a NumPy file is binary and standard output is a terminal", "-",
           "send it to a file or a program, or use --as text");
}

Writing read_foreign(Run& run, const ConvertFrom& from, FileForm form) {
  switch (form) {
    case FileForm::matrix_market:
      return read_matrix_market(run, from);
    case FileForm::sms:
      return read_sms(run, from);
    case FileForm::alist:
      return read_alist(run, from);
    case FileForm::numpy:
      return read_numpy(run, from);
    case FileForm::npz:
      return read_npz(run, from);
    default:
      return read_text(run, from, form);
  }
}

void write_foreign(Run& run, const io::Location& from, const std::string& to, FileForm form,
                   const ConvertOptions& o) {
  const int digits = o.digits > 0 ? o.digits : 7;
  const TextStyle style = o.seed_format ? (o.tabs ? TextStyle::seed_cpp : TextStyle::seed_python)
                          : o.tabs      ? TextStyle::plain_tabs
                                        : TextStyle::plain;
  switch (form) {
    case FileForm::text:
      return hdf5_to_text(run, from, to, style, digits);
    case FileForm::csv:
      return hdf5_to_text(run, from, to, TextStyle::csv, digits);
    case FileForm::matrix_market:
      return hdf5_to_matrix_market(run, from, to);
    case FileForm::sms:
      return hdf5_to_sms(run, from, to);
    case FileForm::alist:
      return hdf5_to_alist(run, from, to);
    case FileForm::numpy:
      return hdf5_to_numpy(run, from, to);
    case FileForm::npz:
      return hdf5_to_npz(run, from, to);
    case FileForm::hdf5:
      return;
  }
}

void convert(Run& run, const ConvertOptions& o) {
  const Control& control = run.control;
  io::Location from, to;
  FileForm in{}, out{};
  collectively(control, [&] {
    from = io::parse_location(o.from);
    from.form = run.options.reading;
    to = io::parse_location(o.to);
    in = form_named(from.file, o);
    out = form_named(to.file, o);
    // Standard input and output are those of rank 0.
    if (control.rank() == 0) check_options(o, from.file, in, to.file, out);
  });
  const bool to_standard_output = to.file == io::standard_stream;
  if (to_standard_output && run.reports_on_stdout())
    fail_together(Exit::usage,
                  "the result and the report both go to standard output; --json or --report -; "
                  "write one of them to a file");
  if (!to_standard_output) run.options.output = o.to;
  run.require_own_files();
  if (from.file != io::standard_stream) run.require_not_written("input", from);
  run.report["backend"] = "cpu";
  if (out == FileForm::hdf5) {
    io::Output output(control, o.to, run.options.force);
    Writing write;
    run.phase("read", [&] { write = read_foreign(run, {from.file, o.bits}, in); });
    run.phase("write", [&] {
      write(output);
      auto attributes = run.attributes();
      attributes["source"] = from.file == io::standard_stream
                                 ? "standard input"
                                 : std::filesystem::absolute(from.file).lexically_normal().string();
      output.commit(attributes);
    });
  } else {
    run.phase("write", [&] { write_foreign(run, from, to.file, out, o); });
  }
  if (!to_standard_output)
    run.say(fmt::format("converted {} to {} in {:.3f} s", o.from, o.to,
                        run.seconds("read") + run.seconds("write")));
}

}  // namespace

Range own_slice(const Control& control, Index extent) {
  const auto ranges = contiguous(extent, control.size()).ranges(control.rank());
  return ranges.empty() ? Range{extent, 0} : ranges[0];
}

Index share(const Control& control, Index value) {
  return control.reduce(control.rank() == 0 ? value : 0, Reduce::sum);
}

void show_bytes(Run& run, Moved moved, double own, double all) {
  run.show_bytes(moved == Moved::read ? "reading" : "writing", moved == Moved::written, own, all);
}

void add_convert_command(CLI::App& app, Selected& selected) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = add_command(
      app, selected,
      {"convert",
       "Text, CSV, Matrix Market, SMS, alist or NumPy to HDF5 "
       "(dataset A, or b for a vector) and back",
       "terrace convert matrix.mtx matrix.h5", usual_options + "--force", verify_stored},
      [options](Run& run, const CLI::App&) {
        options->reading = run.options.reading;
        convert(run, *options);
      });
  command
      ->add_option("IN", options->from,
                   ".txt .dat .csv .mtx .sms .alist .npy .npz, FILE.h5:/path, or - for "
                   "standard input")
      ->required();
  command
      ->add_option("OUT", options->to, "The same, or - for standard output; one of the two is HDF5")
      ->required();
  command->add_option("--as", options->as, "Format of -; npy: of OUT only (default text)")
      ->check(CLI::IsMember({"text", "mtx", "npy"}));
  add_reading_options(*command, selected.options, all_forms);
  command->add_flag("--tabs", options->tabs, "Separate the numbers of a text file by tabs");
  command->add_flag("--seed-format", options->seed_format,
                    "Text in the format of the seed programs: no count first, a space after every "
                    "number, rounded to ten places; with --tabs a tab, not rounded");
  command->add_flag(
      "--bits", options->bits,
      "Write packed bits, from numbers 0 and 1; of sparse entries, whether they are odd");
  command
      ->add_option("--digits", options->digits,
                   "Digits of a number in text (default 7; 17 keep them all)")
      ->check(CLI::Range(1, 17));
}

}  // namespace terrace
