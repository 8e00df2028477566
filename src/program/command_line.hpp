// What is wrong with a command line, and the help of a command: both go by the tree of commands.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

/// A command line that names no command, one that there is not, or an option that its command does
/// not obey: the message of three parts, with what was meant. Nothing where the parser decides.
struct Mistake {
  std::string message;
  const CLI::App* group = nullptr;  ///< its commands are to be listed
};
std::optional<Mistake> find_mistake(const CLI::App& root, const std::vector<std::string>& words);
/// Whole numbers of all options are decimal ones, also with zeros in front, and fit 64 bits: the
/// parser alone takes 010 for 8.
void read_decimal(CLI::App& root);
/// A message of the parser, which has begun to read `root`'s command line, as one of three parts.
std::string in_our_words(const CLI::ParseError& error, const CLI::App& root);
/// The command that the parser has come to.
const CLI::App& chosen_command(const CLI::App& root);
/// The word of `known` that was meant by `word`: few letters differ. Empty: none.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// The commands of a group, or the root, one per line.
std::string list_of_commands(const CLI::App& group);
/// Help of a command or a group: usage, options in groups with their choices and defaults, an
/// example.
std::string help_of(const CLI::App& app);

/// A page for man(1): "terrace", "terrace-gf2", "terrace-gf2-rref", ...
std::string man_page(const CLI::App& app);
/// Scripts that complete commands, options and their choices.
std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);
/// Writes all man pages (man1/), and both scripts, below a folder. False: it cannot.
bool write_pages(const CLI::App& root, const std::string& folder);

/// Version, commit, build type and libraries; starts no MPI.
std::string version_text();

}  // namespace terrace
