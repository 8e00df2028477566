// Terrace in your program: who works together, what memory is handed over, what is thrown.
//
//   terrace::Context ranks(MPI_COMM_WORLD);                  // or terrace::Context() for one process
//   auto report = terrace::dense::solve(ranks, n, {a, terrace::Rows::range(first, count), n},
//                                       {b, terrace::Rows::range(first, count), 1});
//
// Every call that takes a Context is collective over its ranks. Nothing here starts or ends MPI,
// ends the process, or changes the environment or the threads of your BLAS. C++17.
#pragma once
#ifndef OMPI_SKIP_MPICXX  // the C++ bindings that MPI took back
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#define TERRACE_API __attribute__((visibility("default")))
#ifdef TERRACE_INSIDE  // the library itself has other things of these names
#define TERRACE_API_BEGIN namespace terrace::api {
#define TERRACE_API_END }
#else
#define TERRACE_API_BEGIN \
  namespace terrace {     \
  inline namespace api {
#define TERRACE_API_END \
  }                     \
  }
#endif

TERRACE_API_BEGIN

/// "0.2.0".
TERRACE_API std::string version();

/// What an Error is about; the exit codes of the program.
enum class Code : int {
  usage = 2,      ///< arguments that do not fit together
  input = 3,      ///< a number that is NaN or infinite, a matrix that is not symmetric
  outcome = 4,    ///< there is no such result: singular, not positive definite, inconsistent
  resources = 5,  ///< memory, devices
  fault = 6,      ///< a device, the network or memory failed
  internal = 70,  ///< a bug of ours
  stopped = 75    ///< Options::progress said so
};

/// The one type that is thrown: by all ranks of the Context at the same call, with the same message
/// "what is wrong; where; what to do". A fault (a CUDA error, say) may be thrown by one rank alone
/// while the others wait for it: end the job then.
class TERRACE_API Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, std::int64_t position = -1)
      : std::runtime_error(message), code_(code), position_(position) {}
  ~Error() override;
  [[nodiscard]] Code code() const { return code_; }
  /// Zero-based: the column without a pivot, the order of the leading minor that is not positive
  /// definite less one; -1 otherwise.
  [[nodiscard]] std::int64_t position() const { return position_; }

 private:
  Code code_;
  std::int64_t position_;
};

enum class Backend { automatic, cpu, cuda };

struct Options {
  /// automatic: CUDA where each rank sees a device and the work is large enough to gain; always where
  /// the arrays lie on a device.
  Backend backend = Backend::automatic;
  /// Of this process, for the CPU backend: fixed by its first call that computes. 0: as
  /// TERRACE_THREADS says, or a fair share of the cores.
  int threads = 0;
  bool check = true;   ///< results are held against the input again: Code::outcome where one fails
  bool guard = false;  ///< look for flipped bits of memory on the way: Code::fault
  /// A cudaStream_t of yours: arrays on a device are taken over once what is enqueued on it is done, and
  /// results are there when a call returns. Null: once all is done that is enqueued on the device.
  void* stream = nullptr;
  /// Called now and then on each rank with the part done, 0 to 1, of one stage of the work. The run
  /// stops once it returns false on some rank: Code::stopped on all of them.
  std::function<bool(double done)> progress;
};

/// A group of ranks and their devices: each rank works on the CUDA device that the first arrays of a
/// device it gives lie on; where those lie on the host, on your current device if no other rank has
/// it. Arrays of another device are Code::usage. Copies share it. While one exists, memory is kept from call to
/// call: at most 1 GiB of a process's device, or an eighth of its memory if that is more, and 256 MiB
/// each of its host and page-locked memory. Make it before, and let it go after, all that is made with
/// it, and before MPI_Finalize.
class TERRACE_API Context {
 public:
  /// This process alone, without MPI.
  explicit Context(Options options = {});
  /// The ranks of `comm`, which is duplicated: MPI_Init has been called. Collective.
  explicit Context(MPI_Comm comm, Options options = {});
  ~Context();
  Context(const Context&);
  Context(Context&&) noexcept;
  Context& operator=(const Context&);
  Context& operator=(Context&&) noexcept;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// Of the calls to come, on every rank alike.
  Options& options();
  /// Gives back the memory that this process keeps for calls to come, of all its Contexts. Not
  /// collective. Factors and operators keep what is theirs.
  void release_memory();
  /// For CUDA: "peer memory" or "NCCL 2.28.3"; for one that has not been asked for yet, "none".
  [[nodiscard]] std::string transport() const;

  struct Inside;
  [[nodiscard]] Inside& inside() const { return *inside_; }

 private:
  std::shared_ptr<Inside> inside_;
};

enum class Where { host, device };
/// By CUDA's word, where CUDA is in use in this process.
TERRACE_API Where where_is(const void* data);

/// Which rows (or columns, or numbers) of the whole this rank holds, in this order, one after the
/// other. Together the ranks hold each exactly once.
struct Rows {
  std::int64_t first = 0, count = 0;
  std::int64_t block = 0;  ///< > 0: block k, of so many rows, is with rank k % size

  /// Rows first .. first + count - 1; on one rank all of them.
  static Rows range(std::int64_t first, std::int64_t count) { return {first, count, 0}; }
  static Rows all(std::int64_t count) { return {0, count, 0}; }
  /// As ScaLAPACK deals rows to a column of processes.
  static Rows cyclic(std::int64_t block) { return {0, 0, block}; }
};

/// Your memory: the rows of this rank of a matrix, row-major, element (i, j) of the i-th row held at
/// data[i * ld + j].
template <class T>
struct Local {
  T* data = nullptr;
  Rows rows;
  std::int64_t columns = 0;
  std::int64_t ld = 0;  ///< 0: columns
  Where where = Where::host;
};

/// Seconds of the call's parts: `prepare` is memory, devices and taking your arrays over, `give` the
/// results into your arrays.
struct Seconds {
  double prepare = 0, solve = 0, check = 0, give = 0;
};

TERRACE_API_END
