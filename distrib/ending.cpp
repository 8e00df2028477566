#include "distrib/ending.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include "distrib/place.hpp"

namespace terrace {

namespace {

/// Number and start time of a process, and its parent's number.
struct Process {
  long number = 0, parent = 0;
  std::string name, started;
};
Process look_up(long number) {
  Process p;
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(number) + "/stat"), text);
  const auto open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return p;
  p.number = number;
  p.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string word;
  for (int k = 3; rest >> word && k <= 22; ++k) {  // numbered as in proc(5)
    if (k == 4) p.parent = std::strtol(word.c_str(), nullptr, 10);
    if (k == 22) p.started = word;
  }
  return p;
}

/// The launcher that started this process, itself or through a few scripts; number 0: none known.
Process launcher() {
  Process p = look_up(getppid());
  for (int k = 0; k < 6 && p.number > 1; ++k) {
    for (const char* name : {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "prte"})
      if (p.name == name) return p;
    p = look_up(p.parent);
  }
  return {};
}

constexpr int crashes[] = {SIGSEGV, SIGBUS, SIGABRT};
struct sigaction before_crashes[std::size(crashes)];
struct Late {
  int code;
  std::function<void()> last;
  sem_t crashed;
};
Late* late = nullptr;  // stays: its thread waits to the end of the process

void on_crash(int) {
  sem_post(&late->crashed);
  for (;;) pause();
}
void on_alarm(int) { _exit(late->code); }

}  // namespace

CrashIsLate::CrashIsLate(int code, std::function<void()> last) {
  late = new Late{code, std::move(last), {}};
  sem_init(&late->crashed, 0, 0);
  const auto body = [](void*) -> void* {
    while (sem_wait(&late->crashed) != 0) continue;
    signal(SIGALRM, on_alarm);  // the thread that crashed may hold what `last` waits for
    alarm(5);
    late->last();
    _exit(late->code);
  };
  pthread_t thread{};
  struct sigaction action {};
  const bool started = pthread_create(&thread, nullptr, body, nullptr) == 0;
  if (started) pthread_detach(thread);
  action.sa_handler = started ? &on_crash : SIG_DFL;
  action.sa_flags = int(SA_RESETHAND);  // a second one ends the process
  for (std::size_t k = 0; k < std::size(crashes); ++k)
    sigaction(crashes[k], &action, &before_crashes[k]);
}
CrashIsLate::~CrashIsLate() {
  for (std::size_t k = 0; k < std::size(crashes); ++k)
    sigaction(crashes[k], &before_crashes[k], nullptr);
}

void end_launcher_later(double seconds) {
  const Process p = launcher();
  if (p.number == 0) return;
  // The number of a process may be given again: its start time goes with it.
  static const char* const script =
      "sleep $3; read -r all < /proc/$1/stat || exit 0; pid=$1; was=$2\n"
      "set -- ${all##*)}\n"
      "[ \"${20}\" = \"$was\" ] && kill -KILL $pid\n";
  const std::string number = std::to_string(p.number);
  char wait[32];
  std::snprintf(wait, sizeof wait, "%.2f", seconds);
  const char* const arguments[] = {
      "sh", "-c", script, "terrace-ending", number.c_str(), p.started.c_str(), wait, nullptr};
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
  pthread_t thread{};
  const auto body = [](void*) -> void* {
    usleep(useconds_t(plan.seconds * 1e6));
    end_launcher_later(2.5);  // over several hosts mpirun takes three seconds of its own
    sudden_exit(plan.code);
  };
  if (pthread_create(&thread, nullptr, body, nullptr) == 0) pthread_detach(thread);
}

}  // namespace terrace
