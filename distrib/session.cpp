#include "distrib/session.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "distrib/agree.hpp"
#include "distrib/ending.hpp"
#include "distrib/mpi.hpp"
#include "distrib/place.hpp"
#include "kernels/parallel.hpp"
#include "kernels/stream.hpp"

namespace terrace {

Session::Session(int* argc, char*** argv) {
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    std::exit(int(Exit::fault));
  control_ = std::make_unique<Control>();
  const int cores = thread_count();  // puts OpenBLAS on one thread, before its first call
  if (!std::getenv("TERRACE_THREADS")) {
    // Ranks that see the same cores share them; ranks bound to cores of their own keep those.
    const int host_cores = int(sysconf(_SC_NPROCESSORS_ONLN));
    if (cores >= host_cores) set_thread_count(std::max(1, cores / control_->local_size()));
  }
  heartbeat_ = std::make_unique<Heartbeat>(*control_);
}

Session::~Session() {
  control_.reset();
  MPI_Finalize();
  heartbeat_.reset();  // MPI waits for ever for a rank that is lost here
}

void end_job(int exit_code, const std::string& message) {
  fmt::print(stderr, "{}\n", message);
  std::fflush(stderr);
  tell_fault(exit_code, message);
  sudden_exit_later(exit_code, 2);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  sudden_exit(exit_code);
}

int guarded(const Control& control, const std::function<int()>& body,
            const std::function<void(int, const std::string&)>& on_agreed_error) {
  const auto lonely = [&](int code, const std::string& what) {
    end_job(code, fmt::format("terrace: rank {} on {} failed in {}: {}", control.rank(),
                              host_name(), to_string(current_place()), what));
  };
  try {
    return body();
  } catch (const Error& e) {
    if (!e.agreed() && control.size() > 1) lonely(int(e.code()), e.what());
    if (control.rank() == 0) fmt::print(stderr, "terrace: {}\n", e.what());
    if (on_agreed_error) on_agreed_error(int(e.code()), e.what());
    return int(e.code());
  } catch (const std::bad_alloc&) {
    lonely(int(Exit::resources), "out of host memory; use more ranks or a smaller problem");
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
  return all.substr(0, all.find_first_of(",\n"));
}

DeviceBinding bind_device(const Control& control) {
  const int devices = cuda_device_count();
  if (control.reduce(Index(devices), Reduce::min) == 0)
    fail_together(
        Exit::resources,
        "no CUDA device is seen by some rank; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
        "--backend cpu");
  DeviceBinding binding;
  binding.ordinal = control.local_rank() % devices;
  const DeviceInfo info =
      collectively(control, [&] { return select_cuda_device(binding.ordinal); });
  binding.name = info.name;
  binding.uuid = info.uuid;
  const auto all = control.gather_all(info.uuid);
  const std::set<std::string> distinct(all.begin(), all.end());
  binding.shared = distinct.size() < all.size();
  binding.free_bytes = info.free_bytes / std::count(all.begin(), all.end(), info.uuid);
  return binding;
}

}  // namespace terrace
