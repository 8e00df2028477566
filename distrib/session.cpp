#include "distrib/session.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/binding.hpp"
#include "distrib/ending.hpp"
#include "distrib/mpi.hpp"
#include "distrib/place.hpp"
#include "distrib/quote.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/unwinding.hpp"

namespace terrace {

bool launched() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_FD"})
    if (std::getenv(name)) return true;
  return false;
}

namespace {

constexpr const char* no_memory = "out of host memory; use more ranks or a smaller problem";

/// Without a launcher Open MPI starts a daemon of its own, for processes that this one might spawn.
/// None is, and the link to that daemon is unloaded in MPI_Finalize while a thread may still run in
/// it: up to 2 % of runs of a tenth of a second ended in a segmentation fault, or never (4.1.4).
/// The folders of such runs lie in one place, where one run removes what another has just made.
class Alone {
 public:
  Alone() {
    if (launched()) return;
    for (const auto& [name, value] : {std::pair("OMPI_MCA_ess_singleton_isolated", "1"),
                                      std::pair("OMPI_MCA_orte_create_session_dirs", "0")})
      if (!std::getenv(name)) {
        setenv(name, value, 0);
        mine_.emplace_back(name);
      }
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {  // an mpirun that this process may start is to know nothing of it
    for (const char* name : mine_) unsetenv(name);
  }

 private:
  std::vector<const char*> mine_;
};

}  // namespace

Session::Session(int* argc, char*** argv) {
  // Open MPI 4's shared file pointers, which nobody here uses, put a file's name in 256 bytes:
  // longer paths ended the program. The third kind, which must stay, has files of its own beside
  // the one that is written: io::Unfinished knows them.
  setenv("OMPI_MCA_sharedfp", "^lockedfile,sm", 0);
  const Alone alone;
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    std::exit(int(Exit::fault));
  control_ = std::make_unique<Control>();
  thread_count();  // puts OpenBLAS on one thread, before its first call
  const int threads = fair_threads(*control_);
  if (!std::getenv("TERRACE_THREADS")) set_thread_count(threads);
  heartbeat_ = std::make_unique<Heartbeat>(*control_);
  unwinding_.emplace(
      [] {
        constexpr double patience = 2.5;  // seconds; the heartbeat looks once in one
        return unwinding_seconds() > patience
                   ? last_error() + " (its memory cannot be given back: the device still waits)"
                   : std::string();
      },
      [] {});
}

Session::~Session() {
  control_.reset();
  MPI_Finalize();
  heartbeat_.reset();  // MPI waits for ever for a rank that is lost here
}

void end_job(int exit_code, const std::string& message) {
  std::fputs((message + "\n").c_str(), stderr);
  std::fflush(stderr);
  tell_fault(exit_code, message);
  sudden_exit_later(exit_code, 2);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  sudden_exit(exit_code);
}

int guarded(const Control& control, const std::function<int()>& body,
            const std::function<void(int, const std::string&)>& on_agreed_error) {
  const auto lonely = [&](int code, const std::string& what) {
    const std::string place = to_string(current_place());
    const std::string text =
        in_three_parts(what, place, "start again, with --restart where there is a checkpoint");
    end_job(code, printable(fmt::format("terrace: rank {} on {} failed in {}: {}", control.rank(),
                                        host_name(), place, text)));
  };
  try {
    return body();
  } catch (const Error& e) {
    if (!e.agreed() && control.size() > 1) lonely(int(e.code()), e.what());
    if (control.rank() == 0)
      std::fputs(("terrace: " +
                  printable(in_three_parts(e.what(), "in " + to_string(current_place()),
                                           "see terrace --help")) +
                  "\n")
                     .c_str(),
                 stderr);
    if (on_agreed_error) on_agreed_error(int(e.code()), e.what());
    return int(e.code());
  } catch (const std::bad_alloc&) {
    lonely(int(Exit::resources), no_memory);
  } catch (const std::length_error&) {  // more than a container can hold
    lonely(int(Exit::resources), no_memory);
  } catch (const std::exception& e) {
    lonely(int(Exit::internal), e.what());
  }
  return int(Exit::internal);
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, std::size_t(length));
  int major = 0, minor = 0;
  MPI_Get_version(&major, &minor);
#ifdef OMPI_MAJOR_VERSION
  const std::string header = fmt::format("header Open MPI v{}.{}.{}", OMPI_MAJOR_VERSION,
                                         OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#else
  const std::string header = fmt::format("header MPI {}.{}", MPI_VERSION, MPI_SUBVERSION);
#endif
  return fmt::format("{} (MPI {}.{}; {})", all.substr(0, all.find_first_of(",\n")), major, minor,
                     header);
}

}  // namespace terrace
