#define CATCH_CONFIG_RUNNER
#include "tests/support/test.hpp"

#include <fmt/core.h>

#include <cstring>

#include "kernels/base/parallel.hpp"
#include "src/program/waiting.hpp"

namespace {
const terrace::Control* the_world = nullptr;
bool device_missing = false;  // for a case that asked for one
}  // namespace

namespace terrace::test {

const Control& world() { return *the_world; }
bool everywhere(bool mine) { return world().reduce(Index(mine), Reduce::min) != 0; }

namespace {
template <bool present>
Context<Cuda>* device_context() {
  if constexpr (present) {
    static Context<Cuda>* instance = nullptr;  // lives as long as the process
    if (world().reduce(Index(cuda_device_count()), Reduce::min) > 0) {
      if (!instance) instance = new Context<Cuda>(make_context<Cuda>(world()));
      return instance;
    }
  }
  device_missing = true;
  if (world().rank() == 0) fmt::print("skipped: no CUDA device seen\n");
  return nullptr;
}
}  // namespace

template <>
Context<Cpu>* context<Cpu>() {
  static std::optional<Context<Cpu>> instance;
  if (!instance) instance.emplace(make_context<Cpu>(world()));
  return &*instance;
}
template <>
Context<Cuda>* context<Cuda>() {
  return device_context<with_cuda>();
}

}  // namespace terrace::test

int main(int argc, char* argv[]) {
  terrace::wait_asleep_where_crowded();
  terrace::Session session(&argc, &argv);
  the_world = &session.control();
  return terrace::guarded(session.control(), [&] {
    const int failed = Catch::Session().run(argc, argv);
    if (session.control().reduce(terrace::Index(failed != 0), terrace::Reduce::max)) return 1;
    // The cases of devices alone (tests/CMakeLists.txt): ctest shows them as skipped, not passed.
    const bool devices_only = argc > 1 && std::strstr(argv[1], "*cuda*,[gpu]") != nullptr;
    return devices_only && device_missing ? 77 : 0;
  });
}
