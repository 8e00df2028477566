// What the fuzz targets share: MPI, an input as a file, and the contract of errors.
//
// A target is run by libFuzzer (clang, -DTERRACE_FUZZ=ON): TARGET CORPUS_FOLDER; an input that
// fails is kept as crash-..., and TARGET crash-... runs it again.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "distrib/session.hpp"
#include "kernels/base/error.hpp"

namespace terrace::fuzz {

inline const Control& world() {
  static int argc = 1;
  static char name[] = "fuzz";
  static char* list[] = {name, nullptr};
  static char** argv = list;
  static const Session* const session = new Session(&argc, &argv);  // never ended: libFuzzer exits
  return session->control();
}

/// The path of a file in memory with these bytes; the one of the last call is gone.
inline std::string file_of(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = memfd_create("input", 0);
  if (ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  return "/proc/self/fd/" + std::to_string(descriptor);
}

/// Runs `look`; only Errors of usage, input and resources may come out of it, with three parts.
template <class Look>
void contract(const Look& look) {
  try {
    look();
  } catch (const Error& e) {
    const std::string what = e.what();
    const auto first = what.find("; ");
    const bool three =
        first != std::string::npos && what.find("; ", first + 2) != std::string::npos;
    if (three &&
        (e.code() == Exit::usage || e.code() == Exit::input || e.code() == Exit::resources))
      return;
    std::fprintf(stderr, "an error outside the contract, code %d: %s\n", int(e.code()),
                 what.c_str());
    std::abort();
  }
}

}  // namespace terrace::fuzz
