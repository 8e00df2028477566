#include "src/api/terrace/context.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "distrib/binding.hpp"
#include "distrib/mpi.hpp"
#include "kernels/base/callers.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/threads.hpp"
#include "src/api/inside.hpp"

namespace terrace::api {

std::string version() { return TERRACE_VERSION; }

Error::~Error() = default;

Where where_is(const void* data) { return device_of(data) >= 0 ? Where::device : Where::host; }

CallersSettings::CallersSettings() : blas_threads_(blas_threads()), device_(current_device()) {
  set_blas_threads(1);  // our threads call it side by side
}
CallersSettings::~CallersSettings() {
  set_blas_threads(blas_threads_);
  set_current_device(device_);
}

void throw_public(std::int64_t position) {
  try {
    throw;
  } catch (const terrace::Error& e) {
    const Code code = e.code() == Exit::requeue ? Code::stopped : Code(int(e.code()));
    throw Error(code, e.what(), position);
  } catch (const std::bad_alloc&) {
    throw Error(Code::resources,
                "out of host memory; in a call of the library; use more ranks or a "
                "smaller problem");
  } catch (const std::exception& e) {
    throw Error(Code::internal, e.what());
  }
}

void no_result(const std::string& message, std::int64_t position) {
  throw Error(Code::outcome, message, position);
}
void check_failed(const std::string& message) {
  throw Error(Code::outcome, message +
                                 "; in the check against the input; the matrix may be too ill "
                                 "conditioned");
}

Context::Inside::Inside(Control ranks, Options wanted)
    : control(std::move(ranks)), options(std::move(wanted)) {
  const int fair = fair_threads(control);  // whatever this rank was told
  if (options.threads > 0)
    set_thread_count(options.threads);
  else if (named_threads() == 0)
    set_thread_count(fair);
}

void Context::Inside::require(Index host, Index device) {
  constexpr Index little = Index(16) << 20;
  const bool asked = control.size() > 1 || host > std::min(little, little_);
  require_memory(control, asked ? host : 0, device);
  little_ = std::max(little_, std::min(little, host));
}

void Context::Inside::require_alike(std::vector<Alike> given) const {
  given.emplace_back("Options::backend", options.backend);
  given.emplace_back("Options::check", options.check);
  given.emplace_back("Options::guard", options.guard);
  terrace::require_alike(control, given);
}

DeviceWish There::wish() const {
  if (!devices_.empty()) return {devices_.front(), true};
  return {current_device(), false};
}

void Context::Inside::wait_for_caller(const There& there) const {
  collectively(control, [&] {
    const int ours = cuda_ ? cuda_->device.ordinal : -1;
    for (const int device : there.devices())
      if (ours >= 0 && device != ours)
        throw terrace::Error(Exit::usage,
                             fmt::format("an array lies on device {}, and rank {} of this Context "
                                         "works on device {}; in the arrays given; give arrays of "
                                         "that device, or make a Context for the other",
                                         device, control.rank(), ours));
    if (there.on_device()) terrace::wait_for_caller(options.stream);
  });
}

namespace {

template <bool present, class C>
std::string transport_of(const C& cuda) {
  if constexpr (present) return cuda ? cuda->comm.transport() : "none";
  return "none";
}

Control ranks_of(MPI_Comm comm) {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (!started || ended)
    throw Error(Code::usage,
                "MPI is not running; in terrace::Context(comm); call MPI_Init before, "
                "and MPI_Finalize after");
  if (comm == MPI_COMM_NULL)
    throw Error(Code::usage,
                "MPI_COMM_NULL; in terrace::Context(comm); ranks that take no part make "
                "no Context");
  return control_of(comm);
}

}  // namespace

std::string Context::Inside::transport() const { return transport_of<with_cuda>(cuda_); }

Context::Context(Options options)
    : inside_(at_border(
          [&] { return std::make_shared<Inside>(Control::alone(), std::move(options)); })) {}
Context::Context(MPI_Comm comm, Options options)
    : inside_(
          at_border([&] { return std::make_shared<Inside>(ranks_of(comm), std::move(options)); })) {
}
Context::~Context() = default;
Context::Context(const Context&) = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(const Context&) = default;
Context& Context::operator=(Context&&) noexcept = default;

int Context::rank() const { return inside_->control.rank(); }
int Context::size() const { return inside_->control.size(); }
Options& Context::options() { return inside_->options; }
std::string Context::transport() const { return inside_->transport(); }
void Context::release_memory() { release_kept_memory(); }

AskingProgress::AskingProgress(Context::Inside& ranks) : Progress(false, false) {
  // Whether anybody asks is agreed: the votes are collective.
  if (ranks.control.reduce(Index(bool(ranks.options.progress)), Reduce::max) == 0) return;
  votes_.emplace(ranks.control);
  asked = [this, &ranks](double part) {
    const auto& call = ranks.options.progress;
    const bool no = call && !call(part);
    if (votes_->poll(Word(no)) != 0)
      fail_together(Exit::requeue,
                    "the caller stopped the run; in Options::progress; call again to start anew");
  };
}

}  // namespace terrace::api
