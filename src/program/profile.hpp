// Measurements that bench stores and later commands read again.
//
//   {"NVIDIA H200": {"gf2": {...}},                        bench gf2 --calibrate
//    "NVIDIA H200, 2 ranks": {"rates": {"form": 2, "date": "2026-11-23", "version": "0.2.0",
//      "per_second": {"product": {"value": 6.1e13, "unit": "flop/s"}, ...}}}}    bench --profile
//
// in the file that TERRACE_PROFILE names, or $XDG_CACHE_HOME/terrace/profile.json, or
// ~/.cache/terrace/profile.json.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "distrib/context.hpp"
#include "src/gf2/plan.hpp"
#include "src/program/predict.hpp"

namespace terrace {

std::string profile_path();
/// What rank 0's profile holds for a device and a family, on all ranks; an empty object where there
/// is no readable profile. Collective.
nlohmann::json load_profile(const Control& control, const std::string& device,
                            const std::string& family);
/// Merges into rank 0's profile, under a temporary name first; null removes the family.
/// Error(resources) where it cannot be written. Collective.
void save_profile(const Control& control, const std::string& device, const std::string& family,
                  const nlohmann::json& values);

/// The name that calibrations are stored under: the GPU's, or the processor's and the threads.
template <class B>
std::string device_model(const Context<B>& context);
/// The name that rates are stored under: "NVIDIA H200, 2 ranks", "..., 8 ranks on 2 hosts".
template <class B>
std::string machine_name(const Context<B>& context, int ranks);

/// What `bench gf2 --calibrate` stored for this model of device. Collective.
template <class B>
gf2::PanelMeasurements measured_panels(const Context<B>& context);

/// Rates for plans, and where they are from.
struct KnownRates {
  Rates rates;
  std::string source, note;
};
/// From the profile of this machine with as many ranks; else with fewer; else built in. A profile
/// of another form than this program's is not read, and named. Collective.
template <class B>
KnownRates known_rates(const Context<B>& context);
/// Stores {"product": {"value": ..., "unit": ...}, ...} for this machine and the ranks. Collective.
template <class B>
void save_rates(const Context<B>& context, const nlohmann::json& per_second);

}  // namespace terrace
