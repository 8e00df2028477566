// terrace: parse the command line, run one command on every rank, report, exit.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "distrib/session.hpp"
#include "distrib/signals.hpp"
#include "kernels/base/preparations.hpp"
#include "kernels/base/timeline.hpp"
#include "src/program/command_line.hpp"
#include "src/program/machines.hpp"
#include "src/program/register.hpp"
#include "src/program/waiting.hpp"

// All commands and benchmarks; each registers itself in a file of its own.
namespace terrace {
using Register = void(CLI::App&, Selected&);
namespace gf2 {
Register add_commands, add_bench;
}
namespace band {
Register add_commands, add_bench;
}
namespace dense {
Register add_commands, add_bench, add_matrix_bench;
}
namespace cg {
Register add_commands, add_bench;
}
Register add_generate_commands, add_convert_command, add_verify_command, add_info_command;
Register add_bench_io, add_bench_profile;
}  // namespace terrace

namespace {

struct Family {
  terrace::Register *commands, *bench;
};
constexpr Family families[] = {
    // in the order of the help
    {terrace::gf2::add_commands, terrace::gf2::add_bench},
    {terrace::band::add_commands, terrace::band::add_bench},
    {terrace::dense::add_commands, terrace::dense::add_bench},
    {terrace::cg::add_commands, terrace::cg::add_bench},
};

void add_all(CLI::App& app, terrace::Selected& selected) {
  using namespace terrace;
  for (const Family& family : families) family.commands(app, selected);
  add_generate_commands(app, selected);
  add_convert_command(app, selected);
  add_verify_command(app, selected);
  CLI::App& bench = *app.add_subcommand(
      "bench", "Measure the solve phase on generated data; answers are checked");
  bench.require_subcommand(1);
  for (const Family& family : families) family.bench(bench, selected);
  dense::add_matrix_bench(bench, selected);
  add_bench_io(bench, selected);
  add_bench_profile(bench, selected);
  add_info_command(app, selected);
}

using terrace::Exit;

std::string joined(int argc, char** argv, char between) {
  std::string line = "terrace";
  for (int i = 1; i < argc; ++i) line += std::string(1, between) + argv[i];
  return line;
}

/// The command line, parsed. Needs no MPI, so that the help is there at once, and where MPI is
/// broken. One rank says it; the message of an error is for the caller to say.
struct CommandLine {
  CLI::App app{
      "Terrace reduces, factors, inverts and solves big matrices from HDF5 on many GPUs.\n"
      "Start it with mpirun or srun for more than one rank.",
      "terrace"};
  terrace::Selected selected;
  std::optional<int> exit_code;  ///< the program is over: help, or a usage error
  std::string message;           ///< of the error, and empty without

  CommandLine(int argc, char** argv) {
    add();
    parse({argv + 1, argv + argc});
  }
  [[nodiscard]] int tell() const {
    if (!message.empty())
      std::fputs(("terrace: " + terrace::printable(message) + "\n").c_str(), stderr);
    return *exit_code;
  }

 private:
  void add() {
    app.option_defaults()->always_capture_default();
    app.add_flag("-V,--version", version_, "Version, commit and libraries");
    app.add_option("--completion", completion_, "Print the script that completes commands")
        ->check(CLI::IsMember({"bash", "zsh"}));
    app.add_option("--pages", pages_, "Folder for all man pages and scripts")->group("");
    add_all(app, selected);
    terrace::read_decimal(app);
    app.footer("mpirun -n 2 terrace dense invert dense.h5:/A -o inverse.h5");
  }
  void parse(std::vector<std::string> words) {
    if (words.size() > 1 && words[0] == "bench" && words[1] == "--profile") words[1] = "profile";
    try {
      if (const auto mistake = terrace::find_mistake(app, words)) {
        if (mistake->group != nullptr) say(terrace::list_of_commands(*mistake->group));
        return fail(int(Exit::usage), mistake->message);
      }
      std::reverse(words.begin(), words.end());
      app.parse(words);
      const auto chosen = app.get_subcommands();
      if (chosen.size() > 1 || (!chosen.empty() && chosen[0]->get_subcommands().size() > 1))
        return fail(int(Exit::usage),
                    "two commands at once; on the command line; start one at a time");
      if (version_) return end(terrace::version_text());
      if (completion_ == "bash") return end(terrace::bash_completion(app));
      if (completion_ == "zsh") return end(terrace::zsh_completion(app));
      if (pages_.empty()) return;
      if (terrace::write_pages(app, pages_)) return end("");
      fail(int(Exit::resources), "the pages cannot be written; " + pages_ + "; name a folder");
    } catch (const CLI::CallForHelp&) {
      end(terrace::help_of(terrace::chosen_command(app)));
    } catch (const CLI::ParseError& e) {
      fail(int(Exit::usage), terrace::in_our_words(e, app));
    } catch (const terrace::Error& e) {
      fail(int(e.code()), e.what());
    }
  }

  void say(const std::string& text) const {
    if (!speaks_) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  void end(const std::string& text) {
    say(text);
    exit_code = 0;
  }
  void fail(int code, const std::string& what) {
    exit_code = code;
    message = terrace::in_three_parts(what, "on the command line", "see terrace --help");
  }

  std::string completion_, pages_;
  bool version_ = false, speaks_ = terrace::launched_rank() == 0;
};

/// What a device needs, begun beside MPI's start: the environment may be changed meanwhile
/// (src/program/environment.cpp).
struct Preparations {
  explicit Preparations(const terrace::Selected& selected) {
    // Of the queues from the host to a GPU that CUDA makes, eight where nobody says otherwise, each
    // takes 10 ms of a context and 5 of its end; two do what eight do for all that is here.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 0);
    const terrace::CommonOptions& options = selected.options;
    if (options.backend == "cpu" || !options.gpu.empty()) return;
    if (!terrace::launched() && options.ranks == 0 && selected.command != "info")
      terrace::see_one_device();
    terrace::prepare_device(options.backend == "cuda", terrace::makes_products(selected.command));
  }
  ~Preparations() { terrace::end_preparations(); }
  Preparations(const Preparations&) = delete;
  Preparations& operator=(const Preparations&) = delete;
};

int run(const terrace::Session& session, const terrace::Selected& selected,
        const std::string& command_line) {
  const terrace::Control control = terrace::ranks_to_plan(session.control(), selected.options);
  terrace::Run the_run(control, selected.options, selected.command, command_line);
  return terrace::guarded(
      control,
      [&] {
        the_run.begin_checkpoints();
        try {
          selected.action(the_run);
        } catch (...) {
          the_run.progress.clear();  // the message gets a line of its own
          throw;
        }
        the_run.progress.clear();
        the_run.detail_ranks();
        the_run.write_report(0, "");
        return the_run.lost_answer() ? int(Exit::resources) : 0;
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
  // Under a launcher all ranks meet first: one that is over would be waited for, or end the others.
  if (line.exit_code && !terrace::launched()) return line.tell();
  const std::string text = joined(argc, argv, ' '), words = joined(argc, argv, '\n');
  terrace::wait_asleep_where_crowded();
  std::optional<Preparations> preparations;
  if (!line.exit_code) preparations.emplace(line.selected);
  terrace::Session session(&argc, &argv);
  terrace::note_span("run", "start", 0);
  const int code = terrace::guarded(session.control(), [&] {
    // One mpirun may start several commands, and a script one for each rank.
    terrace::require_alike(session.control(), {{"the command line", words}});
    if (!line.exit_code) return run(session, line.selected, text);
    if (*line.exit_code == 0) return 0;
    throw terrace::Error(terrace::Exit(*line.exit_code), line.message).as_agreed();
  });
  preparations.reset();
  session.ends_with(code);
  return code;
}
