// Seconds of calls of the library, for jobs/measure_library.py: api_overhead FAMILY N [M] [REPEAT],
// `factor` for the solves of a band's factor.
// Arrays lie on the device where there is one and TERRACE_API_BACKEND=cuda, in and out; nothing is
// checked, as in a benchmark, unless TERRACE_API_CHECK is set. Prints { "call": [..], "prepare": [..], "solve": [..], "give": [..] }.
#include <terrace/terrace.hpp>
#if TERRACE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

using Index = std::int64_t;
using terrace::Local;
using terrace::Rows;

namespace {

bool on_device = false;

/// The memory that a call gets; put() makes it what `host` holds.
template <class T>
class Array {
 public:
  explicit Array(std::vector<T> values) : host(std::move(values)) {
#if TERRACE_WITH_CUDA
    void* there = nullptr;
    if (on_device && cudaMalloc(&there, host.size() * sizeof(T)) != cudaSuccess) std::exit(5);
    if (on_device) data = static_cast<T*>(there);
#endif
    if (!on_device) own.resize(host.size()), data = own.data();
    put();
  }
  void put() {
#if TERRACE_WITH_CUDA
    if (on_device) {
      cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
      cudaDeviceSynchronize();
      return;
    }
#endif
    std::memcpy(data, host.data(), host.size() * sizeof(T));
  }
  Local<T> rows(Index count, Index columns) const {
    return {data, Rows::all(count), columns, 0, where()};
  }
  static terrace::Where where() {
    return on_device ? terrace::Where::device : terrace::Where::host;
  }
  std::vector<T> host;
  T* data = nullptr;

 private:
  std::vector<T> own;
};

struct Times {
  std::vector<double> call, prepare, solve, give;
  Index iterations = 0;
};

template <class Call>
void take(Times& times, const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  const terrace::Seconds parts = call();
  times.call.push_back(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  times.prepare.push_back(parts.prepare);
  times.solve.push_back(parts.solve);
  times.give.push_back(parts.give);
}

std::vector<double> reals(Index count) {
  std::mt19937_64 draw(1);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& v : values) v = double(draw() >> 11) * 0x1p-53 - 0.5;
  return values;
}

void dense(terrace::Context& ranks, Index n, int repeat, Times& times) {
  Array<double> a(reals(n * n));
  for (int k = 0; k <= repeat; ++k) {
    a.put();
    take(times, [&] { return terrace::dense::invert(ranks, n, a.rows(n, n)).seconds; });
  }
}

void solve(terrace::Context& ranks, Index n, int repeat, Times& times) {
  const Array<double> a(reals(n * n));
  Array<double> b(reals(n));
  const Local<const double> given{a.data, Rows::all(n), n, 0, Array<double>::where()};
  for (int k = 0; k <= repeat; ++k) {
    b.put();
    take(times, [&] { return terrace::dense::solve(ranks, n, given, b.rows(n, 1)).seconds; });
  }
}

void gf2(terrace::Context& ranks, Index n, int repeat, Times& times) {
  // No Mersenne Twister: it is linear over GF(2), and such a matrix has rank 19,937 at most.
  terrace::gf2::Word state = 0;
  std::vector<terrace::gf2::Word> words(std::size_t(n * ((n + 63) / 64)));
  for (auto& w : words) {  // SplitMix64
    w = state += 0x9e3779b97f4a7c15;
    w = (w ^ (w >> 30)) * 0xbf58476d1ce4e5b9;
    w = (w ^ (w >> 27)) * 0x94d049bb133111eb;
    w ^= w >> 31;
  }
  Array<terrace::gf2::Word> a(std::move(words));
  for (int k = 0; k <= repeat; ++k) {
    a.put();
    take(times, [&] { return terrace::gf2::reduce(ranks, n, a.rows(n, n)).seconds; });
  }
}

/// `factored`: the solves of a factor.
void band(terrace::Context& ranks, Index n, Index m, bool factored, int repeat, Times& times) {
  std::vector<double> ab = reals((m + 1) * n);
  for (Index j = 0; j < n; ++j) ab[std::size_t(j * (m + 1))] = double(m) + 2;
  const Array<double> a(std::move(ab));
  Array<double> b(reals(n));
  const terrace::band::Matrix given{a.data,
                                    m,
                                    Rows::all(n),
                                    terrace::band::Matrix::by_columns,
                                    terrace::band::Uplo::lower,
                                    0,
                                    Array<double>::where()};
  std::optional<terrace::band::Factor> factor;
  if (factored) factor.emplace(ranks, n, given);
  for (int k = 0; k <= repeat; ++k) {
    b.put();
    take(times, [&] {
      return (factor ? factor->solve(b.rows(n, 1))
                     : terrace::band::solve(ranks, n, given, b.rows(n, 1)))
          .seconds;
    });
  }
}

/// The 7-point Laplacian of points^3, with so many right-hand sides.
void cg(terrace::Context& ranks, Index points, Index columns, int repeat, Times& times) {
  const Index n = points * points * points;
  std::vector<Index> start{0}, column;
  std::vector<double> value;
  for (Index i = 0; i < n; ++i) {
    const Index x = i % points, y = i / points % points, z = i / points / points;
    const auto entry = [&](bool inside, Index j, double v) {
      if (inside) column.push_back(j), value.push_back(v);
    };
    entry(z > 0, i - points * points, -1);
    entry(y > 0, i - points, -1);
    entry(x > 0, i - 1, -1);
    entry(true, i, 6);
    entry(x + 1 < points, i + 1, -1);
    entry(y + 1 < points, i + points, -1);
    entry(z + 1 < points, i + points * points, -1);
    start.push_back(Index(column.size()));
  }
  auto a = terrace::cg::csr(ranks, n, Rows::all(n), start.data(), column.data(), value.data());
  Array<double> b(reals(n * columns)), x(std::vector<double>(b.host.size(), 0.0));
  terrace::cg::Options options;
  options.rtol = 1e-8;
  for (int k = 0; k <= repeat; ++k)
    take(times, [&] {
      const Local<const double> right{b.data, Rows::all(n), columns, 0, Array<double>::where()};
      times.iterations = a.solve(right, x.rows(n, columns), options)[0].iterations;
      return terrace::Seconds();
    });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string family = argv[1], backend = std::getenv("TERRACE_API_BACKEND")
                                                    ? std::getenv("TERRACE_API_BACKEND")
                                                    : "cpu";
  const Index n = std::atoll(argv[2]), m = argc > 3 ? std::atoll(argv[3]) : 0;
  const int repeat = argc > 4 ? std::atoi(argv[4]) : 5;
  terrace::Options options;
  options.check = std::getenv("TERRACE_API_CHECK") != nullptr;
  on_device = TERRACE_WITH_CUDA && backend == "cuda";
  options.backend = on_device ? terrace::Backend::cuda : terrace::Backend::cpu;
  terrace::Context ranks(options);
  Times times;
  if (family == "dense") dense(ranks, n, repeat, times);
  if (family == "solve") solve(ranks, n, repeat, times);
  if (family == "gf2") gf2(ranks, n, repeat, times);
  if (family == "band" || family == "factor") band(ranks, n, m, family == "factor", repeat, times);
  if (family == "cg") cg(ranks, n, std::max<Index>(1, m), repeat, times);
  const auto list = [](const char* name, const std::vector<double>& values) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 1; i < values.size(); ++i)  // the first one warms up
      std::printf("%s%.9g", i > 1 ? ", " : "", values[i]);
    std::printf("], ");
  };
  std::printf("{");
  list("call", times.call), list("prepare", times.prepare);
  list("solve", times.solve), list("give", times.give);
  std::printf("\"iterations\": %lld}\n", static_cast<long long>(times.iterations));
}
