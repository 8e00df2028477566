// bench gf2 --calibrate: which tables and panels are fastest on this model of device.
#pragma once
#include <string>

#include "src/program/run.hpp"

namespace terrace::gf2 {

/// Measures what `what` names, prints it and stores it in the profile (src/program/profile.hpp)
/// that plan_panels() reads; report["gains"]: what the choice is worth on matrices of several
/// forms.
///   tables   every shape of combine()'s tables
///   panels   the panel widths at growing sizes, with and without binary tensor cores
///   columns  threads, forms and numbers of blocks of --method columns (a GPU's)
///   all      all of them, a minute or less
/// One rank: exit 2 on more.
template <class B>
void calibrate_gf2(Run& run, Context<B>& context, const std::string& what);

}  // namespace terrace::gf2
