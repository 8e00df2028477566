// The library as a user's program sees it: MPI is started and ended by that program, the arrays are
// its own. Oracles are a few plain loops. Compiled as C++17 against the public headers alone.
#define CATCH_CONFIG_RUNNER
#include <unistd.h>

#include "library.hpp"

extern "C" int openblas_get_num_threads();
extern "C" void openblas_set_num_threads(int);

using namespace library;

TEST_CASE("the caller can stop a run on any rank, and go on") {
  Context context = group();
  const Index n = 600;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  const std::vector<double> a = random_matrix(n, n, 11);
  std::vector<double> own = part(a, n, list, n, 0.0);
  const std::vector<double> before = own;
  int calls = 0;
  context.options().progress = [&](double) { return !(me == ranks - 1 && ++calls == 2); };
  const Error e = error_of([&] { terrace::dense::invert(context, n, {own.data(), rows, n}); });
  CHECK(e.code() == Code::stopped);
  CHECK(everywhere(own == before));
  double most = 0;
  context.options().progress = [&](double part) {
    most = std::max(most, part);
    return true;
  };
  terrace::dense::invert(context, n, {own.data(), rows, n});
  CHECK(most > 0.9);
  // A word that comes too late for its run does not stop the next one.
  context.options().progress = [&](double part) { return part < 1 || me < ranks - 1; };
  try {
    terrace::dense::invert(context, n, {own.data(), rows, n});
  } catch (const Error& late) {
    CHECK(late.code() == Code::stopped);
  }
  context.options().progress = [](double) { return true; };
  terrace::dense::invert(context, n, {own.data(), rows, n});
}

TEST_CASE("a part of the ranks works, and settings of the process stay") {
  openblas_set_num_threads(2);
  std::vector<std::string> environment;
  for (char** e = environ; *e; ++e) environment.emplace_back(*e);
  const int three = std::min(ranks, 3);
  MPI_Comm some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me < three ? 0 : MPI_UNDEFINED, 0, &some);
  bool right = true;
  if (me < three) {
    {
      Context context(some, wanted());
      right &= context.size() == three && context.rank() == me;
      const Index n = 30, each = (n + three - 1) / three;
      const Rows rows =
          Rows::range(std::min(n, each * me), std::min(each, n - std::min(n, each * me)));
      std::vector<double> a(std::size_t(rows.count * n), 1.0);
      Code code = Code::internal;
      try {
        terrace::dense::invert(context, n, {a.data(), rows, n});
      } catch (const Error& e) {
        code = e.code();
      }
      right &= code == Code::outcome;
      for (Index i = 0; i < rows.count; ++i) a[std::size_t(i * n + rows.first + i)] += 2;
      const auto report = terrace::dense::invert(context, n, {a.data(), rows, n});
      right &= std::fabs(report.log_abs_determinant - (29 * std::log(2.0) + std::log(32.0))) < 1e-9;
      if (me == 0) {  // one process, beside the others
        Context alone;
        double x = 4;
        right &=
            std::fabs(terrace::dense::invert(alone, 1, {&x, Rows::all(1), 1}).log_abs_determinant -
                      std::log(4.0)) < 1e-15 &&
            x == 0.25;
      }
    }
    MPI_Comm_free(&some);
  }
  CHECK(everywhere(right));
  CHECK(everywhere(openblas_get_num_threads() == 2));
  std::vector<std::string> after;
  for (char** e = environ; *e; ++e) after.emplace_back(*e);
  CHECK(everywhere(environment == after));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int failed = Catch::Session().run(argc, argv);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed ? 1 : argc > 1 && device_missing ? 77 : 0;
}
