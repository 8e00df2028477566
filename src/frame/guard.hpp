// --guard: what the check sums of all families share: their verdicts, and flips of bits for tests.
#pragma once
#include <string>

#include "distrib/context.hpp"

namespace terrace {

/// Toggles one bit of byte `at`, and waits. Tests only.
template <class B>
void toggle_bit(const Stream<B>& lane, void* data, Index at, int bit);

/// A bit that flips once, and never again. Tests only.
struct TestFlip {
  Index rank = -1, step = -1;
  Index byte = -1;  ///< -1: any
  int bit = -1;     ///< -1: byte % 8
};
/// The one to come: TERRACE_TEST_FLIP = "RANK:STEP[:BYTE]", or what a test sets.
TestFlip& next_test_flip();
/// Toggles that bit in this rank's memory [data, data + bytes) once `step` steps are done.
template <class B>
void flip_for_tests(const Stream<B>& lane, int rank, Index step, void* data, Index bytes);

/// The rank's verdict: throws Error(fault), which ends the job.
[[noreturn]] void memory_error(int rank, Index from, Index to);

/// What failed does not fail when it is done again with what is read again: throws the agreed
/// Error(fault). Collective.
[[noreturn]] void confirmed_fault(const Control& control, const std::string& what);

}  // namespace terrace
