#include "io/unfinished.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "distrib/place.hpp"
#include "kernels/base/error.hpp"

namespace terrace::io {

namespace {

// What ends a program that does not handle it and may well come from outside.
constexpr int signals[] = {SIGTERM, SIGINT,  SIGHUP,  SIGPIPE, SIGQUIT,
                           SIGALRM, SIGXCPU, SIGUSR1, SIGUSR2};
constexpr int count = sizeof signals / sizeof signals[0];
char doomed[3][4096];  // what the signal handler removes
struct sigaction before[count];

void remove_doomed() {
  for (const char* path : doomed)
    if (path[0] != '\0') unlink(path);
}
/// A signal that is ignored, or that somebody handles, is not the end: it gets no handler of ours.
void remove_and_go(int number) {
  remove_doomed();
  signal(number, SIG_DFL);
  raise(number);
}
void take_signals() {
  struct sigaction ours {};
  ours.sa_handler = &remove_and_go;
  for (int k = 0; k < count; ++k) {
    sigaction(signals[k], nullptr, &before[k]);
    if (before[k].sa_handler == SIG_DFL) sigaction(signals[k], &ours, nullptr);
  }
}
void give_signals_back() {
  struct sigaction now {};
  for (int k = 0; k < count; ++k) {
    sigaction(signals[k], nullptr, &now);
    if (now.sa_handler == &remove_and_go) sigaction(signals[k], &before[k], nullptr);
  }
}

}  // namespace

void Unfinished::begin(const std::string& path, int rank) {
  path_ = path;
  const std::string beside = rank < 0 ? std::string() : path + ".metadata." + std::to_string(rank);
  if (std::max(path.size(), beside.size()) >= sizeof doomed[0]) return;
  std::strcpy(doomed[0], path.c_str());
  if (rank >= 0) {
    std::strcpy(doomed[1], (path + ".data." + std::to_string(rank)).c_str());
    std::strcpy(doomed[2], beside.c_str());
  }
  take_signals();
  before_sudden_exit(&remove_doomed);
}

void Unfinished::opened() {
  for (const int k : {1, 2}) {
    if (doomed[k][0] != '\0') unlink(doomed[k]);
    doomed[k][0] = '\0';
  }
}

void Unfinished::finish() {
  if (path_.empty()) return;
  if (doomed[0][0] != '\0') {
    before_sudden_exit(nullptr);
    give_signals_back();
  }
  opened();
  doomed[0][0] = '\0';
  path_.clear();
}

void Unfinished::remove() {
  if (!path_.empty()) unlink(path_.c_str());
  finish();
}

long long free_bytes(const std::string& path) {
  struct statvfs status {};
  if (statvfs(path.c_str(), &status) != 0) return std::numeric_limits<long long>::max();
  return static_cast<long long>(status.f_bavail) * static_cast<long long>(status.f_frsize);
}

bool lies_in_memory(const std::string& path) {
  constexpr unsigned long tmpfs = 0x01021994;
  struct statfs system {};
  return statfs(path.c_str(), &system) == 0 && static_cast<unsigned long>(system.f_type) == tmpfs;
}

std::string why_too_large(long long bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(bytes) > limit.rlim_cur)
    return "over the limit on the size of a file (ulimit -f)";
  return {};
}

std::string reserve_space(const std::string& path, long long from, long long bytes,
                          bool& promised) {
  promised = false;
  if (std::string reason = why_too_large(from + bytes); !reason.empty()) return reason;
  const int file = open(path.c_str(), O_WRONLY);
  if (file < 0) return {};  // whoever writes to it says why
  promised = fallocate(file, FALLOC_FL_KEEP_SIZE, from, bytes) == 0;
  const bool refused = !promised && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);
  std::string reason = refused ? std::strerror(errno) : "";
  close(file);
  return reason;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string unfinished_name(const std::string& path, int pid) {
  constexpr std::size_t most = 200;  // of the 255 bytes that a name may have
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string stem =
      folder_of(path) + "/." + name.substr(0, most) + ".terrace-" + std::to_string(pid);
  std::string result = stem + ".tmp";
  struct stat status {};
  for (int k = 1; lstat(result.c_str(), &status) == 0; ++k)  // somebody's file, or link
    result = stem + "-" + std::to_string(k) + ".tmp";
  return result;
}

int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file >= 0) return file;
  std::string path = folder + "/.terrace-XXXXXX";  // not every file system knows the other way
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

std::string why_not_writable(const std::string& folder) {
  const int file = open_nameless(folder);
  if (file < 0) return std::strerror(errno);
  close(file);
  return {};
}

bool name_is_taken(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

void give_name(const std::string& temporary, const std::string& path, bool taken,
               const std::string& beside) {
  std::string name = path;
  for (int k = 1; taken && name_is_taken(name); ++k) name = path + "." + std::to_string(k);
  if (std::rename(temporary.c_str(), name.c_str()) != 0)
    throw Error(Exit::resources, std::string("cannot rename the output: ") + std::strerror(errno) +
                                     "; " + name + "; choose another name");
  if (taken)
    throw Error(Exit::resources, "another program has written to the file meanwhile; " + path +
                                     "; the result is in " + name + beside);
}

std::string sync_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR);
  if (file < 0) return std::strerror(errno);
  const bool good = fsync(file) == 0 || errno == EINVAL || errno == EROFS;
  std::string reason = good ? "" : std::strerror(errno);
  close(file);
  return reason;
}

}  // namespace terrace::io
