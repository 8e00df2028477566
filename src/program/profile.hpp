// Measurements of a model of device that calibration stores and plans read again.
//
//   {"NVIDIA H200": {"gf2": {...}}, "AMD EPYC 9575F, 16 threads": {"gf2": {...}}}
//
// in the file that TERRACE_PROFILE names, or $XDG_CACHE_HOME/terrace/profile.json, or
// ~/.cache/terrace/profile.json.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "distrib/control.hpp"

namespace terrace {

std::string profile_path();
/// What rank 0's profile holds for a device and a family, on all ranks; an empty object where there
/// is no readable profile. Collective.
nlohmann::json load_profile(const Control& control, const std::string& device,
                            const std::string& family);
/// Merges into rank 0's profile, under a temporary name first. Error(resources) where it cannot be
/// written. Collective.
void save_profile(const Control& control, const std::string& device, const std::string& family,
                  const nlohmann::json& values);

}  // namespace terrace
