// bench gf2 --calibrate: which tables and panels are fastest on this model of device.
#pragma once
#include "src/run.hpp"

namespace terrace {

/// Measures every shape of combine()'s tables and the panel widths at growing sizes (with and
/// without binary tensor cores), prints what it measures and stores it in the profile
/// (src/profile.hpp) that plan_panels() reads. One rank: exit 2 on more. Takes a minute or less.
template <class B>
void calibrate_gf2(Run& run, Context<B>& context);

}  // namespace terrace
