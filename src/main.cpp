// terrace: parse the command line, run one command on every rank, report, exit.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>

#include "distrib/quote.hpp"
#include "distrib/session.hpp"
#include "distrib/signals.hpp"
#include "kernels/base/preparations.hpp"
#include "kernels/base/timeline.hpp"
#include "src/program/register.hpp"
#include "src/program/waiting.hpp"

namespace {

using terrace::Exit;

std::string joined(int argc, char** argv) {
  std::string line = "terrace";
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  return line;
}

/// The command line, parsed. Needs no MPI, so that the help is there at once, and where MPI is
/// broken. One rank says it.
struct CommandLine {
  CLI::App app{
      "Terrace reduces, factors, inverts and solves big matrices from HDF5 on many GPUs.\n"
      "Start it with mpirun or srun for more than one rank.",
      "terrace"};
  terrace::Selected selected;
  std::optional<int> exit_code;  ///< the program is over: help, or a usage error

  CommandLine(int argc, char** argv) {
    app.set_version_flag("--version", "terrace " TERRACE_VERSION);
    app.require_subcommand(1);
    app.fallthrough(false);
    app.set_help_all_flag("--help-all", "Help of every command");
    terrace::gf2::add_commands(app, selected);
    terrace::band::add_commands(app, selected);
    terrace::dense::add_commands(app, selected);
    terrace::cg::add_command(app, selected);
    terrace::add_generate_commands(app, selected);
    terrace::add_convert_command(app, selected);
    terrace::add_verify_command(app, selected);
    terrace::add_bench_commands(app, selected);
    terrace::add_info_command(app, selected);
    app.footer(
        "Exit codes: 0 done, 2 usage, 3 input, 4 outcome, 5 resources, 6 fault, 70 internal, 75 "
        "requeue.");
    const bool speaks = terrace::launched_rank() == 0;
    const auto fail = [&](int code, const std::string& message) {
      exit_code = code;
      const std::string text =
          terrace::in_three_parts(message, "on the command line", "see terrace --help");
      if (speaks) std::fputs(("terrace: " + terrace::printable(text) + "\n").c_str(), stderr);
    };
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& e) {
      exit_code = speaks ? app.exit(e) : 0;
    } catch (const CLI::ParseError& e) {
      fail(int(Exit::usage), std::string(e.what()) + "; on the command line; see terrace --help");
    } catch (const terrace::Error& e) {
      fail(int(e.code()), e.what());
    }
  }
};

/// What a device needs, begun as soon as MPI has left the environment alone.
struct Preparations {
  explicit Preparations(const terrace::Selected& selected) {
    if (selected.options.backend != "cpu")
      terrace::prepare_device(selected.options.backend == "cuda",
                              terrace::makes_products(selected.command));
  }
  ~Preparations() { terrace::end_preparations(); }
  Preparations(const Preparations&) = delete;
  Preparations& operator=(const Preparations&) = delete;
};

int run(const terrace::Session& session, const terrace::Selected& selected,
        const std::string& command_line) {
  const terrace::Control& control = session.control();
  terrace::Run the_run(session, selected.options, selected.command, command_line);
  return terrace::guarded(
      control,
      [&] {
        terrace::check_common_options(the_run.options, the_run.command);
        the_run.begin_checkpoints();
        try {
          selected.action(the_run);
        } catch (...) {
          the_run.progress.end();  // the message gets a line of its own
          throw;
        }
        the_run.progress.end();
        the_run.detail_ranks();
        the_run.write_report(0, "");
        return 0;
      },
      [&](int code, const std::string& message) {
        // Other failures may have left ranks behind.
        if (code == int(Exit::outcome) || code == int(Exit::requeue)) the_run.detail_ranks();
        the_run.write_report(code, message);
      });
}

}  // namespace

int main(int argc, char** argv) {
  // A file must not get the number of a closed standard stream: messages would be written into it.
  int file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= 2) file = open("/dev/null", O_RDWR);
  if (file > 2) close(file);
  // From the first moment to the last: a request waits for a solve, or comes too late and does
  // nothing.
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--checkpoint", 12) == 0) {
      terrace::watch_signals();
      break;
    }
  const CommandLine line(argc, argv);
  // A launcher ends the other ranks when one ends with an error: they have to meet first.
  if (line.exit_code && (*line.exit_code == 0 || !terrace::launched())) return *line.exit_code;
  const std::string text = joined(argc, argv);
  terrace::wait_asleep_where_crowded();
  const terrace::Session session(&argc, &argv);
  terrace::note_span("run", "start", 0);
  if (line.exit_code) return *line.exit_code;
  const Preparations preparations(line.selected);
  return terrace::guarded(session.control(), [&] { return run(session, line.selected, text); });
}
