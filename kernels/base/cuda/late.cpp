#include "kernels/base/late.hpp"

#include <dlfcn.h>

#include <string>

#include "kernels/base/error.hpp"

namespace terrace {

void* late_function(const char* library, const char* function) {
  void* handle = nullptr;
  std::string why;
  for (const char* folder : {"", TERRACE_LIBRARY_FOLDERS}) {
    handle = dlopen((std::string(folder) + library).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle) break;
    if (why.empty()) why = dlerror();
  }
  void* const found = handle ? dlsym(handle, function) : nullptr;
  if (!found)
    throw Error(Exit::resources,
                "a library of CUDA cannot be used: " + (handle ? std::string(dlerror()) : why) +
                    "; " + library + "; add its folder to LD_LIBRARY_PATH");
  return found;
}

}  // namespace terrace
