// Catch2 under MPI: one session, verdicts agreed over the ranks before they are asserted.
#pragma once
#include <cstdlib>
#include <optional>

#include "distrib/context.hpp"
#include "tests/support/catch.hpp"

namespace terrace::test {

/// A part of the cases: under the sanitizers, which make oracles up to ten times slower. With
/// TERRACE_TEST_ALL all of them: the nightly run under AddressSanitizer.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline const bool fewer_cases = std::getenv("TERRACE_TEST_ALL") == nullptr;
#else
inline constexpr bool fewer_cases = false;
#endif
/// The world of this test run.
const Control& world();
/// True when `mine` holds on every rank.
bool everywhere(bool mine);
/// A context on backend B; for Cuda nullptr (and a line saying so) where no device is seen.
template <class B>
Context<B>* context();
template <>
Context<Cpu>* context<Cpu>();
template <>
Context<Cuda>* context<Cuda>();
/// body(context) on backend B where it is built and a device is seen.
template <class B, class Body>
void on(Body&& body) {
  if constexpr (std::is_same_v<B, Cpu> || with_cuda) {
    if (Context<B>* found = context<B>()) body(*found);
  }
}

}  // namespace terrace::test

/// Asserts on all ranks alike; never leaves a rank alone before a collective call.
#define REQUIRE_ALL(condition) REQUIRE(terrace::test::everywhere(static_cast<bool>(condition)))
#define CHECK_ALL(condition) CHECK(terrace::test::everywhere(static_cast<bool>(condition)))
