#include "io/guard.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "distrib/agree.hpp"

namespace terrace::io {

namespace {

void write_all(int to, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(to, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += std::size_t(n);
  }
}

std::string read_all(int from) {
  std::string text;
  char data[65536];
  for (;;) {
    const ssize_t n = ::read(from, data, sizeof data);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(data, std::size_t(n));
  }
}

[[noreturn]] void child(int to, const std::function<std::string()>& look) {
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL}) signal(s, SIG_DFL);
  // What comes to all processes of a job is for the parent to judge: an end here would say that the
  // file is damaged.
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2})
    signal(s, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) dup2(nowhere, 2);
  const rlimit no_core{0, 0}, some_seconds{5, 5};
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_CPU, &some_seconds);  // of looking in circles
  std::string answer;                    // 'o' and the text, or the exit code and the message
  if (const auto failed = failure_of([&] { answer.assign(1, 'o').append(look()); }))
    answer.assign(1, char(int(failed->code()))).append(failed->what());
  write_all(to, answer);
  _exit(0);
}

}  // namespace

std::string look_safely(const std::string& file, const std::function<std::string()>& look) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  return look();  // libFuzzer sees nothing of a child
#endif
  int ends[2];
  if (pipe(ends) != 0) return look();
  const pid_t pid = fork();
  if (pid < 0) {
    close(ends[0]);
    close(ends[1]);
    return look();
  }
  if (pid == 0) {
    close(ends[0]);
    child(ends[1], look);
  }
  close(ends[1]);
  const std::string answer = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (answer.empty())
    throw Error(Exit::input,
                "the file is damaged: its structure cannot be read; " + file + "; write it again");
  if (answer[0] != 'o') throw Error(Exit(int(answer[0])), answer.substr(1));
  return answer.substr(1);
}

}  // namespace terrace::io
