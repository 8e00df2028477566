#include "distrib/session.hpp"

#include <fmt/core.h>
#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
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
#include "kernels/base/threads.hpp"
#include "kernels/base/unwinding.hpp"

namespace terrace {

bool launched() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_FD"})
    if (std::getenv(name)) return true;
  return false;
}

int launched_rank() {
  if (!launched()) return 0;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* const text = std::getenv(name)) return std::atoi(text);
  return 0;
}

namespace {

constexpr const char* no_memory = "out of host memory; use more ranks or a smaller problem";

/// Whether this machine has a fabric that Open MPI's ofi, psm and psm2 look for: InfiniBand, RoCE,
/// EFA, Omni-Path, TrueScale or Slingshot.
bool has_fabric() {
  for (const char* const pattern :
       {"/sys/class/infiniband/*", "/dev/hfi1*", "/dev/ipath*", "/dev/cxi*", "/sys/class/cxi/*"}) {
    glob_t found{};
    const bool any = glob(pattern, GLOB_NOSORT, nullptr, &found) == 0;
    globfree(&found);
    if (any) return true;
  }
  return false;
}

/// Whether every rank is known to be on this host.
bool one_host() {
  const char* const all = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return !launched() || (all && here && std::strcmp(all, here) == 0);
}

/// Whether the user has chosen Open MPI's transport, in the environment (as mpirun --mca does) or in
/// a file of his own.
bool transport_is_chosen() {
  for (const char* name :
       {"OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_btl", "OMPI_MCA_mca_base_param_files"})
    if (std::getenv(name)) return true;
  const char* const home = std::getenv("HOME");
  std::ifstream file(std::string(home ? home : "") + "/.openmpi/mca-params.conf");
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find_first_not_of(" \t");
    if (at != std::string::npos)
      for (const char* name : {"pml", "mtl", "btl"})
        if (line.compare(at, 3, name) == 0) return true;
  }
  return false;
}

/// Open MPI's settings for the start of this process, where the user has made none.
///
/// Without a launcher it starts a daemon of its own, for processes that this one might spawn.
/// None is, and the link to that daemon is unloaded in MPI_Finalize while a thread may still run in
/// it: up to 2 % of runs of a tenth of a second ended in a segmentation fault, or never (4.1.4).
/// The folders of such runs lie in one place, where one run removes what another has just made.
///
/// psm and psm2 sleep 0.1 s each while they look for hardware, and ofi loads them; a process alone
/// needs none of them. hwloc's plug-ins for devices start OpenCL and with it a GPU, 0.3 s of every
/// start beside an H200, the CPU backend's too; Open MPI asks them for nothing. Those of PCI, 0.02 s
/// on a virtual machine, tell it which network card is near: nothing to ranks of one host.
class StartSettings {
 public:
  StartSettings() {
    if (!launched()) {
      set("OMPI_MCA_ess_singleton_isolated", "1");
      set("OMPI_MCA_orte_create_session_dirs", "0");
    }
    set("HWLOC_COMPONENTS", one_host() ? "-opencl,-gl,-cuda,-nvml,-rsmi,-levelzero,-pci,-linuxio"
                                       : "-opencl,-gl,-cuda,-nvml,-rsmi,-levelzero");
    if (transport_is_chosen()) return;
    if (!launched()) {
      set("OMPI_MCA_pml", "ob1");
      set("OMPI_MCA_btl", "self");
    } else if (!has_fabric()) {
      set("OMPI_MCA_mtl", "^ofi,psm,psm2");
    }
  }
  StartSettings(const StartSettings&) = delete;
  StartSettings& operator=(const StartSettings&) = delete;
  ~StartSettings() {  // an mpirun that this process may start is to know nothing of it
    for (const char* name : mine_) unsetenv(name);
  }

 private:
  void set(const char* name, const char* value) {
    if (std::getenv(name)) return;
    setenv(name, value, 0);
    mine_.push_back(name);
  }
  std::vector<const char*> mine_;
};

/// Variables that shape what all ranks do together are the first rank's on all: a launcher may give
/// those of its shell to its own host alone (Open MPI without -x).
void share_settings(const Control& control) {
  if (control.size() == 1) return;
  constexpr const char* names[] = {"TERRACE_IO_PIECE_BYTES", "TERRACE_STRIPE_BYTES",
                                   "TERRACE_KEEP_INPUT",     "TERRACE_PEER_MEMORY",
                                   "TERRACE_NCCL_BLOCKING",  "TERRACE_STALL_SECONDS"};
  std::string all;  // for each name nothing, or '=' and the value; then a zero
  for (const char* const name : names) {
    if (const char* const value = std::getenv(name)) all.append("=").append(value);
    all.push_back('\0');
  }
  all = control.broadcast(all, 0);
  const char* given = all.c_str();
  for (const char* const name : names) {
    const char* const mine = std::getenv(name);
    if (*given == '\0')
      unsetenv(name);
    else if (!mine || std::strcmp(mine, given + 1) != 0)
      setenv(name, given + 1, 1);
    given += std::strlen(given) + 1;
  }
}

}  // namespace

Session::Session(int* argc, char*** argv) {
  // Open MPI 4's shared file pointers, which nobody here uses, put a file's name in 256 bytes:
  // longer paths ended the program. The third kind, which must stay, has files of its own beside
  // the one that is written: io::Unfinished knows them.
  setenv("OMPI_MCA_sharedfp", "^lockedfile,sm", 0);
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);  // as io does, before there are threads
  const StartSettings settings;
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    std::exit(int(Exit::fault));
  control_ = std::make_unique<Control>();
  share_settings(*control_);
  thread_count();  // puts OpenBLAS on one thread, before its first call
  const int threads = fair_threads(*control_);
  if (named_threads() == 0) set_thread_count(threads);
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
  // MPI waits for ever for a rank that is lost here: the heartbeat goes last.
  const auto goodbye = [this, once = std::make_shared<std::once_flag>()] {
    std::call_once(*once, [this] { heartbeat_.reset(); });
  };
  {
    // Open MPI 4.1.4 on a busy machine: a thread of its runs an event of a plug-in that is unloaded
    // already, in 1 of 900 runs on two ranks.
    std::optional<CrashIsLate> late;
    if (code_) late.emplace(*code_, goodbye);
    MPI_Finalize();
  }
  goodbye();
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
        in_three_parts(what, place, "start again, with --restart if there is a checkpoint");
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
