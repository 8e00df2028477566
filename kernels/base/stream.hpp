// Streams and events: order of work on one device.
//
// Stream<Cpu> runs work at once, or, with TERRACE_CPU_LANES=threads, in a thread of its own and
// after random delays (TERRACE_CPU_DELAY_US=n), so that a missing wait is found without a GPU.
// Stream<Cuda> is a CUDA stream with its library handles.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace {

enum class Priority { normal, high };

/// Waits until the CPU lanes have done what this thread gave them. What failed there is forgotten:
/// another error is on its way. On a lane itself it does nothing.
void settle_cpu_lanes() noexcept;

template <class B>
class Event;
template <class B>
class Stream;

template <>
class Event<Cpu> {
 public:
  Event() = default;
  /// The host waits for it.
  void synchronize() const;

 private:
  friend class Stream<Cpu>;
  struct State;
  std::shared_ptr<State> state_;
};

/// Value type: copies share one lane.
template <>
class Stream<Cpu> {
 public:
  explicit Stream(Priority priority = Priority::normal);
  /// Enqueue `work`. An exception in it is kept and thrown by synchronize().
  void run(std::function<void()> work) const;
  [[nodiscard]] Event<Cpu> record() const;
  void wait(const Event<Cpu>& event) const;
  void synchronize() const;
  /// True when work is done by the time run() returns.
  [[nodiscard]] bool immediate() const { return lane_ == nullptr; }

 private:
  friend void settle_cpu_lanes() noexcept;
  struct Lane;
  struct Lanes;
  std::shared_ptr<Lane> lane_;  // null: run at once
};

/// Timestamped: seconds_between() works on recorded events.
template <>
class Event<Cuda> {
 public:
  Event() = default;
  [[nodiscard]] void* native() const { return event_.get(); }  ///< cudaEvent_t
  [[nodiscard]] bool done() const;
  /// The host waits for it.
  void synchronize() const;

 private:
  friend class Stream<Cuda>;
  std::shared_ptr<void> event_;
};

/// Value type: copies share one CUDA stream.
template <>
class Stream<Cuda> {
 public:
  explicit Stream(Priority priority = Priority::normal);
  [[nodiscard]] Event<Cuda> record() const;
  void wait(const Event<Cuda>& event) const;
  void synchronize() const;
  [[nodiscard]] void* native() const;  ///< cudaStream_t
  struct Handles;  ///< cuBLAS, cuSOLVER, cuSPARSE; kernels/base/cuda/runtime.cuh
  [[nodiscard]] Handles& handles() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Waits until the device has done all work; nothing where none is used.
void settle_device() noexcept;

/// An error that leaves the scope of this object waits for lanes and device first: whoever catches
/// it may free the memory that they work on, or use it again. Buffers that the error frees wait
/// as well, so that it need not stand below them.
class SettlesLanes {
 public:
  SettlesLanes() noexcept;
  ~SettlesLanes();
  SettlesLanes(const SettlesLanes&) = delete;
  SettlesLanes& operator=(const SettlesLanes&) = delete;

 private:
  int errors_;  ///< on their way when it was made
};

/// Seconds from `begin` to `end`, both completed.
double seconds_between(const Event<Cuda>& begin, const Event<Cuda>& end);

/// How often synchronize() was called on streams of this process: the times that the host waited.
Index host_synchronizations();
namespace detail {
void count_synchronization();
}

/// What is known about the device that this process uses.
struct DeviceInfo {
  std::string name, uuid;
  std::string pci;  ///< "0000:1b:00.0"
  Index memory_bytes = 0, free_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0
  int multiprocessors = 0;
  Index l2_bytes = 0;
};
/// Number of CUDA devices seen; 0 without a driver or without CUDA in the build.
int cuda_device_count();
/// Description of a device, without its free memory; makes no context on it.
DeviceInfo describe_cuda_device(int ordinal);
/// Bind this process to device `ordinal` (throws Error resources) and describe it.
DeviceInfo select_cuda_device(int ordinal);
/// Description of the bound device with the free memory of this moment.
DeviceInfo current_cuda_device();
/// The version of CUDA that this program was compiled with: asks no driver.
std::string cuda_build_version();
/// Compile-time and run-time versions of CUDA, empty without CUDA.
std::string cuda_versions();
/// The same of cuBLAS, cuSOLVER and cuSPARSE.
std::string cuda_libraries();

}  // namespace terrace
