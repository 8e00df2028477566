// Help, man pages and completion scripts, all from the tree of commands.
#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <utility>

#include "src/program/command_line.hpp"
#include "src/program/register.hpp"

namespace terrace {

namespace {

/// Words for a value whose type says too little.
std::string value_of(const CLI::Option& option) {
  static const std::pair<const char*, const char*> words[] = {
      {"--output", "FILE.h5[:/group]"}, {"--report", "FILE.json"},
      {"--rhs", "FILE.h5[:/path]"},     {"--x0", "FILE.h5:/path"},
      {"--factor", "FILE.h5[:/path]"},  {"--input", "FILE.h5"},
      {"--checkpoint", "FILE"},         {"--restart", "FILE"},
      {"--checkpoint-every", "TIME"},   {"--folder", "FOLDER"},
      {"--file-dir", "FOLDER"},         {"--scratch-dir", "FOLDER"},
      {"--shape", "ROWSxCOLUMNS"}};
  const std::string type = option.get_type_name();
  if (option.get_expected_max() == 0) return {};
  std::smatch part;
  if (std::regex_search(type, part, std::regex("\\{([^}]*)\\}")))
    return std::regex_replace(part[1].str(), std::regex(","), "|");
  const bool whole = type.rfind("INT", 0) == 0, real = type.rfind("FLOAT", 0) == 0;
  const std::string kind = whole || type.rfind("UINT", 0) == 0 ? "N" : real ? "X" : "NAME";
  const std::string name =
      option.get_lnames().empty() ? std::string() : "--" + option.get_lnames().front();
  for (const auto& [known, word] : words)
    if (name == known && kind == "NAME") return word;
  return option.get_delimiter() != '\0' ? kind + ",..." : kind;
}

bool is_positional(const CLI::Option& option) { return option.get_positional(); }

std::string group_of(const std::string& command, const CLI::Option& option) {
  if (option.get_group() != "Options") return option.get_group();
  if (is_positional(option)) return "Input";
  const auto one_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return option.check_name(name); });
  };
  if (one_of({"--help", "--help-all", "--version", "--completion"})) return "Help";
  if (one_of({"--output", "--force", "--plan", "--ranks", "--gpu", "--report", "--json", "--quiet",
              "--progress"}))
    return "Output";
  if (one_of({"--backend", "--oversubscribe", "--no-bind", "--checkpoint", "--checkpoint-every",
              "--restart"}))
    return "Cluster";
  const bool problem = command.rfind("generate", 0) == 0 || command.rfind("bench", 0) == 0;
  if (problem && !is_common_option("--" + option.get_lnames().front())) return "Problem";
  if (one_of({"--rhs", "--x0", "--factor", "--input", "--near-null-space", "--format", "--uplo",
              "--order", "--columns", "--bitorder", "--shape", "--as"}))
    return "Input";
  return "Method";
}

/// "-o, --output FILE"
std::string names_and_value(const CLI::Option& option) {
  if (is_positional(option)) return option.get_single_name();
  std::string names;
  for (const std::string& name : option.get_snames()) names += "-" + name + ", ";
  for (const std::string& name : option.get_lnames()) names += "--" + name + ", ";
  names.erase(names.size() - 2);
  const std::string value = value_of(option);
  return value.empty() ? names : names + " " + value;
}

/// The description, with the default.
std::string about(const CLI::Option& option) {
  std::string text = option.get_description();
  std::string standard = option.get_default_str();
  if (standard.size() > 2 && standard.front() == '[')
    standard = standard.substr(1, standard.size() - 2);
  const bool not_given = standard == "0" || standard == "-1" || option.get_required();
  const bool said = not_given || text.find("efault") != std::string::npos;
  if (!standard.empty() && standard != "[]" && standard != "\"\"" && !said &&
      !is_positional(option) && option.get_expected_max() > 0)
    text += " (default " + standard + ")";
  if (option.get_required() && !is_positional(option)) text += " (required)";
  return text;
}

void put_wrapped(std::string& to, const std::string& left, const std::string& right) {
  constexpr std::size_t column = 28, width = 79;
  to += "  " + left;
  std::size_t at = left.size() + 2;
  if (at + 3 > column) {
    to += "\n";
    at = 0;
  }
  to.append(column - at, ' ');
  at = column;
  std::istringstream words(right);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && at + 1 + word.size() > width) {
      to += "\n" + std::string(column, ' ');
      at = column;
    } else if (!first) {
      to += " ";
      ++at;
    }
    to += word;
    at += word.size();
  }
  to += "\n";
}

std::string usage_of(const CLI::App& app) {
  const std::string command = command_of(app);
  std::string usage = command.empty() ? "terrace" : "terrace " + command;
  if (!app.get_subcommands(nullptr).empty()) return usage + " COMMAND ...";
  for (const CLI::Option* option : app.get_options())
    if (is_positional(*option)) usage += " " + option->get_single_name();
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && !is_positional(*option)) usage += " " + names_and_value(*option);
  for (const CLI::Option* option : app.get_options())
    if (option->get_description() == required_output) usage += " -o " + value_of(*option);
  return usage + " [options]";
}

const char* const groups[] = {"Input", "Problem", "Method", "Output", "Cluster", "Help"};

std::vector<const CLI::Option*> options_in(const CLI::App& app, const std::string& group) {
  const std::string command = command_of(app);
  std::vector<const CLI::Option*> found;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty() && group_of(command, *option) == group)
      found.push_back(option);
  const auto place = [](const CLI::Option* o) {
    return is_positional(*o) ? 0 : o->get_required() ? 1 : 2;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const CLI::Option* a, const CLI::Option* b) { return place(a) < place(b); });
  return found;
}

const char* const exit_codes =
    "0 done, 2 usage, 3 input, 4 outcome, 5 resources, 6 fault, 70 internal, 75 requeue";

void each_command(const CLI::App& app, const std::function<void(const CLI::App&)>& visit) {
  visit(app);
  for (const CLI::App* command : app.get_subcommands(nullptr)) each_command(*command, visit);
}

std::string dashed(const std::string& command) {
  std::string name = command.empty() ? "terrace" : "terrace-" + command;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

}  // namespace

std::string list_of_commands(const CLI::App& group) {
  std::string text =
      command_of(group).empty() ? "Commands\n" : "Commands of terrace " + command_of(group) + "\n";
  for (const CLI::App* command : group.get_subcommands(nullptr)) {
    std::string what = command->get_description();
    if (group.get_parent() == nullptr && !command->get_subcommands(nullptr).empty()) {
      what += " (";
      for (const CLI::App* one : command->get_subcommands(nullptr))
        what += (what.back() == '(' ? "" : ", ") + one->get_name();
      what += ")";
    }
    put_wrapped(text, command->get_name(), what);
  }
  return text;
}

std::string help_of(const CLI::App& app) {
  const std::string command = command_of(app);
  std::string text = app.get_description() + "\n\nUsage: " + usage_of(app) + "\n";
  if (!app.get_subcommands(nullptr).empty()) text += "\n" + list_of_commands(app);
  for (const char* const group : groups) {
    const auto options = options_in(app, group);
    if (options.empty()) continue;
    text += fmt::format("\n{}\n", group);
    for (const CLI::Option* option : options)
      put_wrapped(text, names_and_value(*option), about(*option));
  }
  if (!app.get_footer().empty()) text += fmt::format("\nExample\n  {}\n", app.get_footer());
  if (const auto commands = app.get_subcommands(nullptr); !commands.empty())
    text += fmt::format("\nEach command has its own help: terrace {} --help\n",
                        command.empty() ? "gf2 rref" : command_of(*commands.front()));
  if (app.get_parent() == nullptr) text += fmt::format("Exit codes: {}\n", exit_codes);
  return text;
}

namespace {

/// Text for troff: no word begins a request or loses a character.
std::string in_roff(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (safe.empty() || safe.back() == '\n')) safe += "\\&";
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string man_page(const CLI::App& app) {
  const std::string command = command_of(app), name = dashed(command);
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(
      ".TH \"{}\" 1 \"\" \"terrace {}\" \"Terrace\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n",
      upper, TERRACE_VERSION, in_roff(name), in_roff(app.get_description()),
      in_roff(usage_of(app)));
  if (!app.get_subcommands(nullptr).empty()) {
    text += ".SH COMMANDS\n";
    for (const CLI::App* one : app.get_subcommands(nullptr))
      text += fmt::format(".TP\n.BR {} (1)\n{}\n", in_roff(dashed(command_of(*one))),
                          in_roff(one->get_description()));
  }
  for (const char* const group : groups) {
    const auto options = options_in(app, group);
    if (options.empty()) continue;
    std::string title = group;
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    text += ".SH " + title + "\n";
    for (const CLI::Option* option : options)
      text += fmt::format(".TP\n.B {}\n{}\n", in_roff(names_and_value(*option)),
                          in_roff(about(*option)));
  }
  if (!app.get_footer().empty())
    text += fmt::format(".SH EXAMPLE\n.nf\n{}\n.fi\n", in_roff(app.get_footer()));
  text += fmt::format(".SH EXIT STATUS\n{}\n", exit_codes);
  if (!command.empty()) text += ".SH SEE ALSO\n.BR terrace (1)\n";
  return text;
}

namespace {

/// "--precision" and {"fp64", "mixed"}, of the options that a command has.
std::vector<std::pair<std::string, std::string>> options_and_choices(const CLI::App& app) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const CLI::Option* option : app.get_options()) {
    if (is_positional(*option) || option->get_group().empty()) continue;
    std::string value = value_of(*option);
    const bool list = value.find('|') != std::string::npos;
    value = list ? std::regex_replace(value, std::regex("\\|"), " ") : std::string();
    for (const std::string& name : option->get_lnames()) all.emplace_back("--" + name, value);
  }
  return all;
}

/// case "$command" in ... of both shells: options and commands of each, and choices of values.
std::string cases(const CLI::App& root, bool values) {
  std::string text;
  each_command(root, [&](const CLI::App& app) {
    std::string words;
    for (const CLI::App* one : app.get_subcommands(nullptr)) words += " " + one->get_name();
    for (const auto& [name, choices] : options_and_choices(app)) {
      words += " " + name;
      if (values && !choices.empty())
        text += fmt::format("    '{} {}') words='{}' ;;\n", command_of(app), name, choices);
    }
    if (!values) text += fmt::format("    '{}') words='{}' ;;\n", command_of(app), words.substr(1));
  });
  return text;
}

std::string families(const CLI::App& root) {
  std::string text;
  for (const CLI::App* family : root.get_subcommands(nullptr))
    if (!family->get_subcommands(nullptr).empty())
      text += (text.empty() ? "" : "|") + family->get_name();
  return text;
}

}  // namespace

std::string bash_completion(const CLI::App& root) {
  return fmt::format(
      "# Completion of terrace for bash, made from its tree of commands.\n"
      "_terrace() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= "
      "words=\n"
      "  if (( COMP_CWORD > 1 )); then\n"
      "    command=${{COMP_WORDS[1]}}\n"
      "    case $command in\n"
      "    {}) if (( COMP_CWORD > 2 )); then command+=\" ${{COMP_WORDS[2]}}\"; fi ;;\n"
      "    esac\n"
      "  fi\n"
      "  case \"$command $before\" in\n{}  esac\n"
      "  if [[ -z $words ]]; then\n"
      "    case $command in\n{}    esac\n"
      "    [[ $current != -* && $words != [a-z]* ]] && words=\n"
      "  fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _terrace terrace\n",
      families(root), cases(root, true), cases(root, false));
}

std::string zsh_completion(const CLI::App& root) {
  return fmt::format(
      "#compdef terrace\n"
      "# Completion of terrace for zsh, made from its tree of commands.\n"
      "local command= group words= before=${{words[CURRENT-1]}}\n"
      "local -a line=(${{words[@]}})\n"
      "(( CURRENT > 2 )) && command=${{line[2]}}\n"
      "case $command in\n"
      "  {}) (( CURRENT > 3 )) && command+=\" ${{line[3]}}\" ;;\n"
      "esac\n"
      "case \"$command $before\" in\n{}esac\n"
      "if [[ -z $words ]]; then\n"
      "  case $command in\n{}  esac\n"
      "  [[ ${{line[CURRENT]}} != -* && $words != [a-z]* ]] && words=\n"
      "fi\n"
      "if [[ -n $words ]]; then compadd -- ${{=words}}; else _files; fi\n",
      families(root), cases(root, true), cases(root, false));
}

bool write_pages(const CLI::App& root, const std::string& folder) {
  bool good = true;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream file(folder + "/" + name);
    file << text;
    file.close();
    good = good && bool(file);
  };
  each_command(root,
               [&](const CLI::App& app) { write(dashed(command_of(app)) + ".1", man_page(app)); });
  write("terrace", bash_completion(root));
  write("_terrace", zsh_completion(root));
  return good;
}

}  // namespace terrace
