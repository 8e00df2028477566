#include "distrib/ending.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "distrib/place.hpp"

namespace terrace {

void end_launcher_later(double seconds) {
  // The number of a process may be given again: its start time goes with it.
  static const char* const script =
      "started() { read -r all < /proc/$1/stat && set -- ${all##*)} && echo ${20}; }\n"
      "was=$(started $1) || exit 0\n"
      "read -r name < /proc/$1/comm\n"
      "case $name in mpirun|orterun|orted|prterun|prted|prte|mpiexec) ;; *) exit 0 ;; esac\n"
      "sleep $2\n"
      "[ \"$(started $1 2> /dev/null)\" = \"$was\" ] && kill -KILL $1\n";
  char parent[32], wait[32];
  std::snprintf(parent, sizeof parent, "%ld", long(getppid()));
  std::snprintf(wait, sizeof wait, "%.2f", seconds);
  const char* const arguments[] = {"sh", "-c", script, "terrace-ending", parent, wait, nullptr};
  const char* const environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", nullptr};
  posix_spawnattr_t how;
  posix_spawn_file_actions_t files;
  if (posix_spawnattr_init(&how) != 0 || posix_spawn_file_actions_init(&files) != 0) return;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  for (const int file : {0, 1, 2})
    posix_spawn_file_actions_addopen(&files, file, "/dev/null", O_RDWR, 0);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
#endif
#endif
  pid_t child = 0;
  posix_spawn(&child, "/bin/sh", &files, &how, const_cast<char* const*>(arguments),
              const_cast<char* const*>(environment));
}

void sudden_exit_later(int code, double seconds) {
  struct Plan {
    int code;
    double seconds;
  };
  static Plan plan;
  plan = {code, seconds};
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 1 << 18);
  pthread_t thread{};
  const auto body = [](void*) -> void* {
    usleep(useconds_t(plan.seconds * 1e6));
    end_launcher_later(0.5);
    sudden_exit(plan.code);
  };
  if (pthread_create(&thread, &small, body, nullptr) == 0) pthread_detach(thread);
}

}  // namespace terrace
