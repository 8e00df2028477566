// What the verbs of the front door share: the ranks behind a Context, the border that no inner
// exception and no setting of ours crosses, the choice of a backend, the caller's memory.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/context.hpp"
#include "distrib/votes.hpp"
#include "kernels/base/callers.hpp"
#include "kernels/base/kept_memory.hpp"
#include "src/api/terrace/context.hpp"
#include "src/frame/backend_choice.hpp"
#include "src/frame/progress.hpp"

namespace terrace::api {

/// Where the arrays of a call lie, of this rank.
class There {
 public:
  template <class... Array>
  explicit There(const Array&... arrays) {
    (note(arrays), ...);
  }
  template <class Array>
  void note(const Array& array) {
    if (array.where == Where::host) return;
    on_device_ = true;
    if (const int device = device_of(array.data); device >= 0) devices_.push_back(device);
  }
  [[nodiscard]] bool on_device() const { return on_device_; }
  [[nodiscard]] const std::vector<int>& devices() const { return devices_; }
  /// The device of the arrays; without any the caller's current one, if no other rank has it.
  [[nodiscard]] DeviceWish wish() const;

 private:
  bool on_device_ = false;
  std::vector<int> devices_;
};

struct Context::Inside {
  Inside(Control ranks, Options wanted);
  const KeepsMemory kept;  ///< between calls; goes last
  Control control;
  Options options;

  /// The backend's streams and communicators, made when first asked for, on the device of these
  /// arrays; that device is current then. Collective.
  template <class B>
  terrace::Context<B>& on(const There& there = There()) {
    if constexpr (std::is_same_v<B, Cpu>) {
      if (!cpu_) cpu_.emplace(make_context<Cpu>(control));
      return *cpu_;
    } else {
      if (!cuda_)
        cuda_.emplace(make_context<Cuda>(control, there.wish()));
      else
        set_current_device(cuda_->device.ordinal);
      return *cuda_;
    }
  }
  /// As terrace::require_alike(), these and the options. Goes before what refuses them. Collective.
  void require_alike(std::vector<Alike> given) const;
  /// require_memory(). Collective.
  void require(Index host, Index device);
  [[nodiscard]] std::string transport() const;
  /// What the caller has enqueued for these arrays is done. After on(). Throws an agreed
  /// Error(usage) for an array of another device. Collective.
  void wait_for_caller(const There& there) const;

 private:
  std::optional<terrace::Context<Cpu>> cpu_;
  std::optional<terrace::Context<Cuda>> cuda_;
  Index little_ = 0;  ///< bytes of the host that were there: not asked for again
};

/// The caller's threads of OpenBLAS, which are put back; the caller's CUDA device likewise.
class CallersSettings {
 public:
  CallersSettings();
  ~CallersSettings();
  CallersSettings(const CallersSettings&) = delete;
  CallersSettings& operator=(const CallersSettings&) = delete;

 private:
  int blas_threads_, device_;
};

/// At its end nothing works on memory that is kept, or on the caller's.
struct SettlesKept {
  SettlesKept() = default;
  ~SettlesKept() { detail::settle_kept(); }
  SettlesKept(const SettlesKept&) = delete;
  SettlesKept& operator=(const SettlesKept&) = delete;
};

/// The inner exception that is being handled, as one of ours.
[[noreturn]] void throw_public(std::int64_t position = -1);

/// Every call from outside goes through here. The devices are done when it returns.
template <class F>
auto at_border(F&& body) {
  const CallersSettings settings;
  try {
    const SettlesLanes settles;  // the caller's memory is no longer ours then
    const SettlesKept after;
    return body();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw_public();
  }
}

/// There is no such result, on all ranks alike.
[[noreturn]] void no_result(const std::string& message, std::int64_t position);
/// The check does not hold.
[[noreturn]] void check_failed(const std::string& message);

/// body.operator()<B>(context): on CUDA where the options say so, some array lies on a device, or
/// the work is worth it. Collective.
template <class F>
auto with_backend(Context::Inside& ranks, const There& there, const BackendHint& hint, F&& body) {
  const bool forced = ranks.control.reduce(Index(there.on_device()), Reduce::max) > 0;
  const Backend wanted = ranks.options.backend;
  if (forced && wanted == Backend::cpu)
    fail_together(Exit::usage,
                  "the arrays lie on a device; Options::backend is cpu; leave it automatic");
  const std::string name = wanted == Backend::cpu              ? "cpu"
                           : wanted == Backend::cuda || forced ? "cuda"
                                                               : "auto";
  const BackendChoice choice = resolve_backend(ranks.control, name, hint);
  if constexpr (with_cuda) {
    if (choice.name == "cuda") {
      terrace::Context<Cuda>& context = ranks.on<Cuda>(there);
      ranks.wait_for_caller(there);
      return body.template operator()<Cuda>(context);
    }
  }
  return body.template operator()<Cpu>(ranks.on<Cpu>());
}

/// Quiet progress that asks the caller. One for each call: a vote that comes too late for this run
/// does not stop the next.
class AskingProgress : public Progress {
 public:
  explicit AskingProgress(Context::Inside& ranks);

 private:
  std::optional<Votes> votes_;  ///< whether a rank's progress() said no
};

/// Seconds of one part of a call.
template <class F>
auto timed(double& seconds, F&& body) {
  const auto start = Clock::now();
  struct Stop {
    Clock::time_point start;
    double& seconds;
    ~Stop() { seconds += std::chrono::duration<double>(Clock::now() - start).count(); }
  } const stop{start, seconds};
  return body();
}

}  // namespace terrace::api
