// setenv(), putenv() and unsetenv() that may be called while other threads read the environment: what
// getenv() has begun to read stays as it is, and is never freed. CUDA starts beside MPI_Init so, 0.02
// to 0.04 s of every run; CUDA reads variables then, and Open MPI sets some. glibc's own move the list
// (before 2.41).
//
// Linked in, these take the place of libc's for all libraries of the program, as in waiting.cpp.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

namespace {

constinit std::mutex changing;

bool is_of(const char* entry, std::string_view name) {
  return std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
}

/// The entry of `name` is `entry` from now on; null: there is none. In front of each list stands the
/// one before, so that none is lost.
int change(std::string_view name, char* entry, bool overwrite) {
  const std::lock_guard lock(changing);
  char** const now = environ;
  std::size_t count = 0, found = 0;
  for (; now && now[count]; ++count) found += is_of(now[count], name) ? 1 : 0;
  if (found > 0 ? entry && !overwrite : !entry) return 0;
  auto** const block = static_cast<char**>(std::malloc((count + 3) * sizeof(char*)));
  if (!block) return errno = ENOMEM, -1;
  char** const list = block + 1;
  std::size_t next = 0;
  for (std::size_t k = 0; k < count; ++k)
    if (!is_of(now[k], name)) list[next++] = now[k];
  if (entry) list[next++] = entry;
  list[next] = nullptr;
  block[0] = reinterpret_cast<char*>(now);
  __atomic_store_n(&environ, list, __ATOMIC_RELEASE);
  return 0;
}

bool is_name(const char* name) { return *name && !std::strchr(name, '='); }

}  // namespace

extern "C" int setenv(const char* name, const char* value, int overwrite) noexcept {
  if (!is_name(name)) return errno = EINVAL, -1;
  const std::string_view key(name), text(value);
  auto* const entry = static_cast<char*>(std::malloc(key.size() + text.size() + 2));
  if (!entry) return errno = ENOMEM, -1;
  std::memcpy(entry, name, key.size());
  entry[key.size()] = '=';
  std::memcpy(entry + key.size() + 1, value, text.size() + 1);
  return change(key, entry, overwrite != 0);
}

extern "C" int unsetenv(const char* name) noexcept {
  if (!is_name(name)) return errno = EINVAL, -1;
  return change(name, nullptr, true);
}

extern "C" int putenv(char* entry) noexcept {
  const char* const equals = std::strchr(entry, '=');
  if (!equals) return unsetenv(entry);
  return change({entry, std::size_t(equals - entry)}, entry, true);
}
