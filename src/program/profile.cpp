#include "src/program/profile.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "distrib/agree.hpp"

namespace terrace {

namespace {

/// An unreadable profile counts as none: it is a cache.
nlohmann::json read(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return nlohmann::json::object();
  std::ifstream file(path);
  auto profile = nlohmann::json::parse(file, nullptr, false);
  return profile.is_object() ? profile : nlohmann::json::object();
}

}  // namespace

std::string profile_path() {
  if (const char* named = std::getenv("TERRACE_PROFILE")) return named;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base = cache && *cache ? std::filesystem::path(cache)
                                     : home && *home ? std::filesystem::path(home) / ".cache"
                                                     : std::filesystem::path(".");
  return (base / "terrace" / "profile.json").string();
}

nlohmann::json load_profile(const Control& control, const std::string& device,
                            const std::string& family) {
  std::string text;
  if (control.rank() == 0) {
    const nlohmann::json profile = read(profile_path());
    if (profile.contains(device) && profile[device].is_object() &&
        profile[device].contains(family) && profile[device][family].is_object())
      text = profile[device][family].dump();
  }
  text = control.broadcast(text, 0);
  return text.empty() ? nlohmann::json::object() : nlohmann::json::parse(text);
}

void save_profile(const Control& control, const std::string& device, const std::string& family,
                  const nlohmann::json& values) {
  collectively(control, [&] {
    if (control.rank() != 0) return;
    const std::filesystem::path path = profile_path();
    const std::string temporary = path.string() + ".part";
    std::error_code failed;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
    nlohmann::json profile = read(path.string());
    if (!profile[device].is_object()) profile[device] = nlohmann::json::object();
    profile[device][family] = values;
    std::ofstream file(temporary);
    file << profile.dump(2) << '\n';
    file.close();
    if (file) std::filesystem::rename(temporary, path, failed);
    if (!file || failed) {
      std::filesystem::remove(temporary, failed);
      throw Error(Exit::resources, "the profile cannot be written; " + path.string() +
                                       "; name another file with TERRACE_PROFILE");
    }
  });
}

}  // namespace terrace
