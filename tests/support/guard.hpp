// Tests of --guard: how many cases, and memory errors as verdicts.
#pragma once
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/base/error.hpp"
#include "src/frame/guard.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

/// TERRACE_GUARD_CASES, or `usual`, fewer where cases take longer.
inline Index guard_cases(Index usual) {
  const char* const text = std::getenv("TERRACE_GUARD_CASES");
  if (text) return std::strtoll(text, nullptr, 10);
  return usual / (fewer_cases ? 20 : world().size() > 1 ? 4 : 1);
}

/// Drawn cases begin at TERRACE_GUARD_FIRST, or 0: many can be dealt to several processes.
inline Index guard_first() {
  const char* const text = std::getenv("TERRACE_GUARD_FIRST");
  return text ? std::strtoll(text, nullptr, 10) : 0;
}

/// Whether `body` ends with a memory error. One that other ranks do not hear of ends the test.
template <class Body>
bool alarmed(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() != Exit::fault) throw;
    if (world().size() == 1 || error.agreed()) return true;
    fmt::print(stderr, "rank {}: {}\n", world().rank(), error.what());
    std::fflush(nullptr);
    std::_Exit(1);
  }
  return false;
}

/// The bit that is still to flip did not.
inline bool flip_waits() { return next_test_flip().rank >= 0; }

}  // namespace terrace::test
