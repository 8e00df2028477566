// bench gf2 --study: what the seed of 2013 measured, on this device.
#pragma once
#include <string>

#include "src/program/run.hpp"

namespace terrace::gf2 {

/// Prints and reports (runs with `who` "study") at every n, `what` being one of
///   search  whole eliminations column by column, dense and sparse, by threads of the pivot search
///   rows    the same with rows swapped in memory or behind an index array, by threads of a block
///   paths   the same with the pivot row read plainly, through shared, constant, texture memory
///   codes   tables of combine() built in every order of codes
///   all     all of them
/// Every elimination has its certificate checked, every order its bits compared with the default's:
/// exit 4 otherwise. One rank; a GPU, but for rows (exit 2).
template <class B>
void study_gf2(Run& run, Context<B>& context, const std::vector<Index>& sizes,
               const std::string& what);

}  // namespace terrace::gf2
