#include "src/program/command_line.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <regex>
#include <sstream>

#include "distrib/quote.hpp"
#include "src/program/register.hpp"

namespace terrace {

namespace {

std::string joined(const std::vector<std::string>& words, const std::string& last) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? last : ", ") + words[i];
  return text;
}

/// Letters to insert, delete, replace, or exchange with their neighbour.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before, last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::vector<std::string> names_of_commands(const CLI::App& group) {
  std::vector<std::string> names;
  for (const CLI::App* command : group.get_subcommands(nullptr))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string program_and(const CLI::App& app) {
  const std::string command = command_of(app);
  return command.empty() ? "terrace" : "terrace " + command;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (std::isalpha(word[1]) != 0 || word[1] == '-');
}

/// "gf2 rank" for "rank", "gf2 solve, band solve or dense solve" for "solve".
std::string with_its_family(const CLI::App& root, const std::string& word) {
  std::vector<std::string> found;
  for (const CLI::App* family : root.get_subcommands(nullptr))
    for (const CLI::App* command : family->get_subcommands(nullptr))
      if (command->get_name() == word) found.push_back(family->get_name() + " " + word);
  return found.empty() ? "" : joined(found, " or ");
}

Mistake unknown_command(const CLI::App& group, const std::string& word) {
  const std::vector<std::string> known = names_of_commands(group);
  const bool top = group.get_parent() == nullptr;
  std::string meant = word == "help" ? "--help" : top ? with_its_family(group, word) : "";
  if (meant.empty()) meant = nearest(word, known);
  if (meant.empty() && top) meant = nearest("--" + word, names_of_options(group));
  return {"unknown command " + in_quotes(word) + "; " + program_and(group) + "; " +
          (meant.empty() ? "use " + joined(known, " or ")
                         : "did you mean " + meant + "? See " + program_and(group) + " --help")};
}

Mistake unknown_option(const CLI::App& command, std::string name) {
  if (name == "-o") name = "--output";
  const std::string where = program_and(command);
  if (command.get_subcommands(nullptr).empty() && is_common_option(name))
    return {command_of(command) + " would not obey " + name +
            "; on the command line; leave it out, see " + where + " --help"};
  const std::string meant = nearest(name, names_of_options(command));
  if (!meant.empty())
    return {"unknown option " + in_quotes(name) + "; " + where + "; did you mean " + meant + "?"};
  return {"unknown option " + in_quotes(name) + "; " + where + "; see " + where + " --help"};
}

/// As an unset variable of a shell leaves it.
Mistake empty_value(const CLI::App& command, const std::string& before) {
  const CLI::Option* const option =
      is_option(before) ? command.get_option_no_throw(before) : nullptr;
  const bool takes_it = option != nullptr && option->get_items_expected_max() > 0;
  return {(takes_it ? before + " has an empty value" : std::string("an empty word")) + "; " +
          program_and(command) + "; is a variable of the shell unset?" +
          (takes_it ? " Give a value, or leave " + before + " out" : "")};
}

}  // namespace

std::string nearest(const std::string& given, const std::vector<std::string>& known) {
  std::string word = given, found;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : known)
    if (const std::size_t d = distance(word, name);
        d < best && d + 1 < std::max<std::size_t>(2, word.size())) {
      best = d;
      found = name;
    }
  if (!found.empty()) return found;
  for (const std::string& name : known)  // a word that is not complete
    if (word.size() >= 3 + word.find_first_not_of('-') && name.rfind(word, 0) == 0) return name;
  return {};
}

std::optional<Mistake> find_mistake(const CLI::App& root, const std::vector<std::string>& words) {
  const auto help = [](const std::string& word) {
    return word == "-h" || word == "--help" || word == "--help-all";
  };
  const CLI::App* app = &root;
  std::vector<std::string> early;  // options before the command's name
  std::size_t at = 0;
  for (; at < words.size() && !app->get_subcommands(nullptr).empty(); ++at) {
    const std::string& word = words[at];
    if (help(word)) return {};
    if (is_option(word)) {
      const std::string name = word.substr(0, word.find('='));
      if (app->get_option_no_throw(name) != nullptr) return {};  // --version
      early.push_back(name);
      continue;
    }
    const auto found =
        app->get_subcommands([&](const CLI::App* c) { return c->get_name() == word; });
    const CLI::App* const next = found.empty() ? nullptr : found.front();
    if (next == nullptr && !early.empty()) continue;  // the value of an option
    if (next == nullptr) return unknown_command(*app, word);
    app = next;
  }
  if (!app->get_subcommands(nullptr).empty()) {
    if (!early.empty()) return unknown_option(*app, early.front());
    return Mistake{"no command is named; " + program_and(*app) + "; use " +
                       joined(names_of_commands(*app), " or "),
                   app};
  }
  for (; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (help(word)) return {};
    if (word == "--") break;
    if (word.empty()) return empty_value(*app, words[at - 1]);
    if (!is_option(word)) continue;
    if (word.rfind("-o=", 0) == 0)
      return Mistake{"'=' would begin the output's name; " + word + "; write -o " + word.substr(3) +
                     " or --output" + word.substr(2)};
    const std::string name =
        word[1] == '-' ? word.substr(0, word.find_first_of("={")) : word.substr(0, 2);
    if (app->get_option_no_throw(name) == nullptr) return unknown_option(*app, name);
    if (word == name + "=") return empty_value(*app, name);
  }
  if (early.empty()) return {};
  if (app->get_option_no_throw(early.front()) == nullptr)
    return unknown_option(*app, early.front());
  return Mistake{"options of " + command_of(*app) + " go after its name; " + early.front() +
                 "; as in " + program_and(*app) + " ... " + early.front()};
}

const CLI::App& chosen_command(const CLI::App& root) {
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

void read_decimal(CLI::App& root) {
  const CLI::Validator decimal(
      [](std::string& word) -> std::string {
        const std::size_t sign = word.find_first_of("+-") == 0;
        if (word.size() == sign || word.find_first_not_of("0123456789", sign) != word.npos)
          return word.find_first_of("xX", sign) == sign + 1 ? word + " is not a decimal number"
                                                            : "";
        const std::string digits =
            word.substr(std::min(word.find_first_not_of('0', sign), word.size() - 1));
        const std::string most = "9223372036854775807";
        if (digits.size() > most.size() || (digits.size() == most.size() && digits > most))
          return word + " is too large";
        word = (word[0] == '-' ? "-" : "") + digits;
        return "";
      },
      "");
  for (CLI::Option* const option : root.get_options(nullptr))
    if (option->get_type_name().rfind("INT", 0) == 0) option->transform(decimal);
  for (CLI::App* const command : root.get_subcommands(nullptr)) read_decimal(*command);
}

std::string in_our_words(const CLI::ParseError& error, const CLI::App& root) {
  const std::string text = error.what(), where = program_and(chosen_command(root));
  std::smatch part;
  // "--backend: gpu not in {auto,cpu,cuda}"
  if (std::regex_search(text, part, std::regex("^(--[\\w-]+): (.*) not in \\{(.*)\\}$"))) {
    std::istringstream list(part[3]);
    std::vector<std::string> choices;
    for (std::string word; std::getline(list, word, ',');) choices.push_back(word);
    const std::string meant = nearest(part[2], choices);
    return in_quotes(part[2].str()) + " is not a value of " + part[1].str() + "; " + where + "; " +
           (meant.empty() ? "" : "did you mean " + meant + "? ") + "use " + joined(choices, " or ");
  }
  // "--rhs is required"
  if (std::regex_search(text, part, std::regex("^(\\S+) is required$")))
    return part[1].str() + " is missing; " + where + "; see " + where + " --help";
  if (std::regex_search(text, part, std::regex("^(--[\\w-]+): \\d+ required .* missing$")))
    return part[1].str() + " needs a value; " + where + "; see " + where + " --help";
  // "--output: At Most 1 required but received 2"
  if (std::regex_search(text, part,
                        std::regex("^(--[\\w-]+): At Most 1 required but received (\\d+)$")))
    return part[1].str() + " is given " + part[2].str() + " times; " + where + "; give it once";
  // "Could not convert: --block = x"
  if (std::regex_search(text, part, std::regex("^Could not convert: (--[\\w-]+) = (.*)$"))) {
    const CLI::Option* const option = chosen_command(root).get_option_no_throw(part[1].str());
    const bool real = option != nullptr && option->get_type_name().rfind("FLOAT", 0) == 0;
    return in_quotes(part[2].str()) + " is not a value of " + part[1].str() + "; " + where +
           "; give a " + (real ? "number" : "whole number");
  }
  // "--ranks: Value 0 not in range 1 to 65536", or [1 - 65536]
  if (std::regex_search(
          text, part,
          std::regex("^(--[\\w-]+): Value (\\S+) not in range \\[?(\\S+) (?:to|-) ([^\\]]+)\\]?$")))
    return in_quotes(part[2].str()) + " is not a value of " + part[1].str() + "; " + where +
           "; use " + part[3].str() + " to " + part[4].str();
  // "The following argument was not expected: more", the last of several first
  if (std::regex_search(text, part, std::regex("not expected: (?:.* )?(\\S+)$")))
    return in_quotes(part[1].str()) + " is one word too many; " + where + "; see " + where +
           " --help";
  return text + "; on the command line; see " + where + " --help";
}

}  // namespace terrace
