#include "src/frame/backend_choice.hpp"

#include <fmt/core.h>

#include "distrib/agree.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {

BackendChoice choose_backend(bool device_everywhere, const BackendHint& hint) {
  if (!device_everywhere) return {"cpu", ""};
  if (hint.size < hint.least_size)
    return {"cpu", fmt::format("small: CPU (size {:.0f}, the GPU from {:.0f} on)", hint.size,
                               hint.least_size)};
  return {"cuda", ""};
}

BackendChoice resolve_backend(const Control& control, const std::string& option,
                              const BackendHint& hint) {
  if (option == "cpu") return {"cpu", ""};
  if (option == "cuda" && !with_cuda)
    fail_together(
        Exit::resources,
        "this terrace was built without CUDA; --backend cuda; rebuild with -DTERRACE_CUDA=ON or "
        "use --backend cpu");
  const bool everywhere = control.reduce(Index(cuda_device_count()), Reduce::min) > 0;
  if (option == "auto") return choose_backend(with_cuda && everywhere, hint);
  if (option != "cuda")
    fail_together(Exit::usage,
                  "unknown backend '" + option + "'; --backend; use auto, cpu or cuda");
  if (!everywhere)
    fail_together(Exit::resources,
                  "no CUDA device is seen by some rank; --backend cuda; check nvidia-smi and "
                  "CUDA_VISIBLE_DEVICES, or use --backend cpu");
  return {"cuda", ""};
}

}  // namespace terrace
