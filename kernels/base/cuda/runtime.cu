// Streams, events, memory and errors of the CUDA backend.

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "kernels/base/assumed.hpp"
#include "kernels/base/callers.hpp"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/graph.hpp"
#include "kernels/base/kept_memory.hpp"
#include "kernels/base/memory_use.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/reserve.hpp"

namespace terrace {
namespace {

bool device_selected = false;

std::string place(std::source_location where) {
  const std::string file = where.file_name();
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(where.line());
}
[[noreturn]] void fail(const char* library, const std::string& text, std::source_location where) {
  throw Error(Exit::fault, std::string(library) + " failed: " + text + "; at " + place(where) +
                               "; check the device with nvidia-smi");
}

}  // namespace

void check(cudaError_t code, std::source_location where) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // a later launch is not to be blamed
  if (code == cudaErrorMemoryAllocation) {
    throw Error(Exit::resources, "out of device memory; at " + place(where) +
                                     "; use more ranks or a smaller problem");
  }
  fail("CUDA", cudaGetErrorString(code), where);
}
void check(cublasStatus_t code, std::source_location where) {
  if (code != CUBLAS_STATUS_SUCCESS) fail("cuBLAS", cublasGetStatusString(code), where);
}
void check(cusolverStatus_t code, std::source_location where) {
  if (code != CUSOLVER_STATUS_SUCCESS)
    fail("cuSOLVER", "status " + std::to_string(int(code)), where);
}
void check(cusparseStatus_t code, std::source_location where) {
  if (code != CUSPARSE_STATUS_SUCCESS) fail("cuSPARSE", cusparseGetErrorString(code), where);
}

struct Stream<Cuda>::Handles {
  cublasHandle_t blas = nullptr;
  cusolverDnHandle_t solver = nullptr;
  cusparseHandle_t sparse = nullptr;
};
struct Stream<Cuda>::State {
  cudaStream_t stream = nullptr;
  Handles handles;
  ~State() {
    const MayWait mark;
    if (handles.blas) cublasDestroy(handles.blas);
    if (handles.solver) cusolverDnDestroy(handles.solver);
    if (handles.sparse) cusparseDestroy(handles.sparse);
    if (stream) cudaStreamDestroy(stream);
  }
};

Stream<Cuda>::Stream(Priority priority) : state_(std::make_shared<State>()) {
  if (assumed_device()) return;
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  check(cudaStreamCreateWithPriority(&state_->stream, cudaStreamNonBlocking,
                                     priority == Priority::high ? greatest : least));
}
void* Stream<Cuda>::native() const { return state_->stream; }
Stream<Cuda>::Handles& Stream<Cuda>::handles() const { return state_->handles; }

Event<Cuda> Stream<Cuda>::record() const {
  cudaEvent_t native_event = nullptr;
  check(cudaEventCreate(&native_event));
  Event<Cuda> event;
  event.event_ = std::shared_ptr<void>(native_event, [](void* e) {
    const MayWait mark;
    cudaEventDestroy(static_cast<cudaEvent_t>(e));
  });
  check(cudaEventRecord(native_event, state_->stream));
  return event;
}
void Stream<Cuda>::wait(const Event<Cuda>& event) const {
  if (event.event_)
    check(cudaStreamWaitEvent(state_->stream, static_cast<cudaEvent_t>(event.native()), 0));
}
void Event<Cuda>::synchronize() const {
  if (event_) check(cudaEventSynchronize(static_cast<cudaEvent_t>(native())));
}
bool Event<Cuda>::done() const {
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(native()));
  if (state != cudaErrorNotReady) check(state);
  return state == cudaSuccess;
}
void Stream<Cuda>::synchronize() const {
  detail::count_synchronization();
  check(cudaStreamSynchronize(state_->stream));
}

void settle_device() noexcept {
  const MayWait mark;
  if (device_selected) cudaDeviceSynchronize();
}

Graph<Cuda>::Graph(const Stream<Cuda>& stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(terrace::native(stream), cudaStreamCaptureModeRelaxed));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(terrace::native(stream), &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(terrace::native(stream), &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(made);
  graph_ = std::shared_ptr<void>(
      executable, [](void* g) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(g)); });
}
void Graph<Cuda>::launch(const Stream<Cuda>& stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_.get()), terrace::native(stream)));
}
bool is_recording(const Stream<Cuda>& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

double seconds_between(const Event<Cuda>& begin, const Event<Cuda>& end) {
  float milliseconds = 0;
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(end.native())));
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin.native()),
                             static_cast<cudaEvent_t>(end.native())));
  return milliseconds * 1e-3;
}

cublasHandle_t cublas(const Stream<Cuda>& stream) {
  cublasHandle_t& handle = stream.handles().blas;
  if (!handle) {
    check(cublasCreate(&handle));
    check(cublasSetStream(handle, native(stream)));
  }
  return handle;
}
cusolverDnHandle_t cusolver(const Stream<Cuda>& stream) {
  cusolverDnHandle_t& handle = stream.handles().solver;
  if (!handle) {
    check(cusolverDnCreate(&handle));
    check(cusolverDnSetStream(handle, native(stream)));
  }
  return handle;
}
cusparseHandle_t cusparse(const Stream<Cuda>& stream) {
  cusparseHandle_t& handle = stream.handles().sparse;
  if (!handle) {
    check(cusparseCreate(&handle));
    check(cusparseSetStream(handle, native(stream)));
  }
  return handle;
}

static __global__ void compiled_here() {}

bool compiled_for_hopper() {
  static OncePerDevice<bool> once;
  return once([] {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, compiled_here));
    return attributes.ptxVersion >= 90;
  });
}
int current_ordinal() {
  int ordinal = 0;
  if (assumed_device() || cudaGetDevice(&ordinal) == cudaSuccess) return ordinal;
  cudaGetLastError();
  return 0;
}

namespace {
/// Null where nobody has used CUDA in this process yet. dlclose() it.
void* driver_in_use() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }
}  // namespace

int current_device() {
  void* const driver = driver_in_use();
  if (!driver) return -1;
  int ordinal = -1;
  void* context = nullptr;
  if (auto* const current = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent")))
    if (current(&context) == 0 && context && cudaGetDevice(&ordinal) != cudaSuccess) ordinal = -1;
  dlclose(driver);
  return ordinal;
}
void set_current_device(int ordinal) {
  if (ordinal >= 0) check(cudaSetDevice(ordinal));
}

int device_of(const void* data) {
  void* const driver = driver_in_use();
  if (!driver || !data) {
    if (driver) dlclose(driver);
    return -1;
  }
  dlclose(driver);
  cudaPointerAttributes found{};
  if (cudaPointerGetAttributes(&found, data) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  return found.type == cudaMemoryTypeDevice ? found.device : -1;
}
void wait_for_caller(void* stream) {
  check(stream ? cudaStreamSynchronize(static_cast<cudaStream_t>(stream))
               : cudaDeviceSynchronize());
}

namespace detail {

void* allocate(Cuda, Index bytes) {
  int device = 0;
  check(cudaGetDevice(&device));
  void* data = take_part(device, bytes);
  if (!data) data = take_kept(Kind::device, device, bytes);
  if (!data) {
    cudaError_t code = cudaMalloc(&data, std::size_t(bytes));
    if (code == cudaErrorMemoryAllocation && free_all_kept()) {
      cudaGetLastError();
      code = cudaMalloc(&data, std::size_t(bytes));
    }
    check(code);
    note_taken(Kind::device, device, data, bytes);
  }
  note_allocation(Cuda{}, data, bytes);
  return data;
}
void release(Cuda, void* data) noexcept {
  note_release(Cuda{}, data);
  if (give_part(data) || keep(Kind::device, data)) return;
  const MayWait mark;
  cudaFree(data);
}
NewBlock allocate_reserve(Index bytes) noexcept {
  NewBlock block;
  std::size_t free = 0, total = 0;
  if (cudaGetDevice(&block.device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess ||
      std::size_t(bytes) > free / 2 || cudaMalloc(&block.data, std::size_t(bytes)) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return block;
}
namespace {

constexpr Index kHugePage = Index(2) << 20;
constexpr Index kRegistered = Index(4) << 20;  // from here on memory is registered

enum class Pinned { allocated, registered };
std::mutex pinned_mutex;
std::map<void*, Pinned> pinned;

/// Huge pages that the threads touch first are page-locked much sooner than cudaHostAlloc takes its
/// small ones. Null where that cannot be had.
void* allocate_registered(Index bytes) {
  const Index pages = ceil_div(bytes, kHugePage);
  void* data = std::aligned_alloc(std::size_t(kHugePage), std::size_t(pages * kHugePage));
  if (!data) return nullptr;
  (void)madvise(data, std::size_t(pages * kHugePage), MADV_HUGEPAGE);
  parallel_ranges(pages, 1, [&](Index from, Index to) {
    for (Index at = from * kHugePage; at < to * kHugePage; at += 4096)
      static_cast<volatile char*>(data)[at] = 0;
  });
  if (cudaHostRegister(data, std::size_t(pages * kHugePage), cudaHostRegisterDefault) ==
      cudaSuccess)
    return data;
  cudaGetLastError();
  std::free(data);
  return nullptr;
}

void free_pinned(void* data) noexcept {
  Pinned kind = Pinned::allocated;
  {
    const std::lock_guard lock(pinned_mutex);
    if (const auto found = pinned.find(data); found != pinned.end()) {
      kind = found->second;
      pinned.erase(found);
    }
  }
  if (kind == Pinned::allocated) {
    cudaFreeHost(data);
  } else {
    cudaHostUnregister(data);
    std::free(data);
  }
}

}  // namespace

bool pins() { return device_selected; }
void pin_from_now() { device_selected = true; }
void* allocate_pinned(Index bytes) {
  if (!device_selected) return allocate(Cpu{}, bytes);
  if (void* const data = take_kept(Kind::pinned, 0, bytes)) return data;
  Pinned kind = Pinned::registered;
  void* data = bytes >= kRegistered ? allocate_registered(bytes) : nullptr;
  if (!data) {
    kind = Pinned::allocated;
    const cudaError_t code = cudaHostAlloc(&data, std::size_t(bytes), cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw Error(Exit::resources, "out of page-locked host memory asking for " +
                                       std::to_string(bytes >> 20) +
                                       " MiB; use more ranks or a smaller problem");
    }
    check(code);
  }
  const std::lock_guard lock(pinned_mutex);
  pinned.emplace(data, kind);
  note_taken(Kind::pinned, 0, data, bytes);
  return data;
}
void release_pinned(void* data) noexcept {
  bool ours = false;
  {
    const std::lock_guard lock(pinned_mutex);
    ours = pinned.count(data) > 0;
  }
  if (!ours) return release(Cpu{}, data);
  if (keep(Kind::pinned, data)) return;
  const MayWait mark;
  if (std::uncaught_exceptions() > 0) settle_device();  // cudaFreeHost() does not say that it waits
  free_pinned(data);
}
void free_block(Kind kind, void* data) noexcept {
  if (kind == Kind::host) return std::free(data);
  const MayWait mark;
  if (kind == Kind::pinned)
    free_pinned(data);
  else
    cudaFree(data);
}
void copy_bytes(const Stream<Cuda>& stream, void* to, const void* from, Index bytes) {
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, std::size_t(bytes), cudaMemcpyDefault, native(stream)));
}
void fill_zero(const Stream<Cuda>& stream, void* data, Index bytes) {
  if (bytes > 0) check(cudaMemsetAsync(data, 0, std::size_t(bytes), native(stream)));
}

}  // namespace detail
}  // namespace terrace
