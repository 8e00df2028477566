// Functions of libraries that are loaded at the first call. cuBLAS, cuSOLVER, cuSPARSE and NCCL are
// 0.1 s of every start, and most runs call none of them.
#pragma once
#include <atomic>

namespace terrace {

/// Address of `function` in the library of that soname, which stays loaded. It is looked for as
/// linked ones are, then where the program was built. Throws Error(resources).
void* late_function(const char* library, const char* function);

template <class F>
class Late;
/// Called as the function itself; stands in namespace terrace and hides it there.
template <class R, class... A>
class Late<R (*)(A...)> {
 public:
  constexpr Late(const char* library, const char* function)
      : library_(library), function_(function) {}
  R operator()(A... arguments) const {
    void* at = at_.load(std::memory_order_acquire);
    if (!at) at_.store(at = late_function(library_, function_), std::memory_order_release);
    return reinterpret_cast<R (*)(A...)>(at)(arguments...);
  }

 private:
  const char *library_, *function_;
  mutable std::atomic<void*> at_{nullptr};
};

}  // namespace terrace

/// In namespace terrace: the function of a C header, under its name as a symbol.
#define TERRACE_LATE(library, function) \
  inline constinit const Late<decltype(&::function)> function { library, #function }
#define TERRACE_SONAME(name, version) TERRACE_SONAME_OF(name, version)
#define TERRACE_SONAME_OF(name, version) "lib" name ".so." #version
