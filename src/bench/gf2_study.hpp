// bench gf2 --study: what the seed of 2013 measured, on this device.
#pragma once
#include "src/run.hpp"

namespace terrace {

/// Prints and reports (runs with `who` "study: ..."): microseconds of a pivot search by 32 to 1,024
/// threads on dense and sparse columns; seconds of the elimination column by column with rows
/// swapped or behind an index array, by threads of the subtraction's blocks; both at every n.
/// Needs a GPU and one rank (exit 2).
template <class B>
void study_gf2(Run& run, Context<B>& context, const std::vector<Index>& sizes);

}  // namespace terrace
