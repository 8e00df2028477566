// What every rank gives alike: where one rank's differs, all ranks are told, and none waits for another.
#include <terrace/hdf5.hpp>

#include "file_name.hpp"
#include "library.hpp"

using namespace library;

namespace {

/// All ranks get the same Error, which names `what`, and no array has changed.
template <class F>
void check_told(const std::string& what, F&& call) {
  INFO(what);
  const Error e = error_of(call);
  CHECK(everywhere(e.code() == Code::usage));
  const std::string wanted = "the ranks differ in " + what + ";";
  INFO(e.what());
  CHECK(everywhere(std::string(e.what()).rfind(wanted, 0) == 0));
}

/// An array that a call reads or writes.
template <class T>
struct Array {
  Local<T> local;
  Array(T* data, const Rows& rows, Index columns, Index ld) : local{data, rows, columns, ld} {}
  operator Local<T>() const { return local; }
  operator Local<const T>() const { return {local.data, local.rows, local.columns, local.ld}; }
};

/// One more on the last rank.
Index odd() { return me == ranks - 1 ? 1 : 0; }

}  // namespace

TEST_CASE("arguments of dense matrices that differ between ranks") {
  if (ranks == 1) return;
  Context context = group();
  const Index n = 40;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  std::vector<double> matrix = random_matrix(n, n, 1);
  for (Index i = 0; i < n; ++i) matrix[std::size_t(i * n + i)] += 50;
  std::vector<double> a = part(matrix, n, list, n + 1, 0.0);
  std::vector<double> b(list.size() * 2, 1.0);
  const std::vector<double> before = a;
  const Array<double> inside{a.data(), rows, n, n + 1}, wider{a.data(), rows, n + odd(), n + 1};
  const Array<double> right{b.data(), rows, 1, 2}, more{b.data(), rows, 1 + odd(), 2};
  namespace dense = terrace::dense;
  check_told("n", [&] { dense::invert(context, n + odd(), inside); });
  check_told("Local::columns of a", [&] { dense::invert(context, n, wider); });
  check_told("Local::columns of a", [&] { dense::solve(context, n, wider, right); });
  check_told("Local::columns of b", [&] { dense::solve(context, n, inside, more); });
  check_told("Local::columns of a", [&] { dense::determinant(context, n, wider); });
  check_told("Local::columns of a", [&] { dense::Factor(context, n, wider); });
  dense::Options block;
  block.block = 32 + odd();
  check_told("dense::Options::block", [&] { dense::invert(context, n, inside, block); });
  const auto assume = odd() ? dense::Assume::spd : dense::Assume::general;
  check_told("what is assumed of the matrix",
             [&] { dense::solve(context, n, inside, right, assume); });
  check_told("what is assumed of the matrix", [&] { dense::Factor(context, n, inside, assume); });
  const dense::Factor factor(context, n, inside);
  check_told("Local::columns of b", [&] { factor.solve(more); });
  context.options().check = !odd();
  check_told("Options::check", [&] { factor.solve(right); });
  check_told("Options::check", [&] { dense::invert(context, n, inside); });
  context.options().check = true;
  CHECK(everywhere(a == before && b == std::vector<double>(list.size() * 2, 1.0)));
  factor.solve(right);  // the ranks are still together
}

TEST_CASE("arguments of bit matrices that differ between ranks") {
  if (ranks == 1) return;
  Context context = group();
  const Index n = 70, words = 2;
  const Rows rows = share(n, 0);
  const std::vector<Index> list = held(n, rows);
  std::vector<Word> a = part(random_bits(n, n, 2), words, list, words, Word(0)), b = a, c = a;
  const std::vector<Word> before = a;
  const Array<Word> inside{a.data(), rows, n, words}, wider{a.data(), rows, n + odd(), words};
  const Array<Word> other{b.data(), rows, n, words}, more{b.data(), rows, n + odd(), words};
  const Array<Word> third{c.data(), rows, n, words};
  namespace gf2 = terrace::gf2;
  check_told("Local::columns of a", [&] { gf2::reduce(context, n, wider); });
  check_told("Local::columns of transform", [&] { gf2::reduce(context, n, inside, more); });
  check_told("the form", [&] {
    gf2::reduce(context, n, inside, odd() ? gf2::Form::echelon : gf2::Form::reduced);
  });
  check_told("rows", [&] { gf2::rank(context, n + odd(), inside); });
  check_told("Local::columns of a", [&] { gf2::kernel(context, n, wider); });
  check_told("n", [&] { gf2::inverse(context, n + odd(), wider); });
  check_told("Local::columns of b", [&] { gf2::solve(context, n, inside, more, third); });
  check_told("Local::columns of x", [&] { gf2::solve(context, n, inside, third, more); });
  check_told("Local::columns of c", [&] { gf2::multiply(context, n, inside, third, more); });
  CHECK(everywhere(a == before && b == before && c == before));
  gf2::rank(context, n, inside);
}

TEST_CASE("arguments of bands and of conjugate gradients that differ between ranks") {
  if (ranks == 1) return;
  Context context = group();
  const Index n = 40, m = 3;
  const Rows rows = share(n, 0);
  const Band whole = random_band(n, m, 3);
  std::vector<double> lower(std::size_t((m + 2) * rows.count),
                            0.0);  // a diagonal more than there are
  for (Index d = 0; d <= m; ++d)
    std::copy_n(whole.lower.begin() + d * n + rows.first, rows.count,
                lower.begin() + d * rows.count);
  std::vector<double> b(std::size_t(rows.count * 2), 1.0), x(b.size(), 0.0);
  namespace band = terrace::band;
  const band::Matrix a{lower.data(), m, rows}, wider{lower.data(), m + odd(), rows};
  band::Matrix upper = a;
  if (odd()) upper.uplo = band::Uplo::upper;
  const Array<double> right{b.data(), rows, 1, 2}, more{b.data(), rows, 1 + odd(), 2};
  const Array<double> left{x.data(), rows, 1, 2};
  check_told("n", [&] { band::solve(context, n + odd(), a, right); });
  check_told("half_bandwidth", [&] { band::solve(context, n, wider, right); });
  check_told("uplo", [&] { band::solve(context, n, upper, right); });
  check_told("Local::columns of b", [&] { band::solve(context, n, a, more); });
  check_told("half_bandwidth", [&] { band::Factor(context, n, wider); });
  const band::Factor factor(context, n, a);
  check_told("Local::columns of b", [&] { factor.solve(more); });

  namespace cg = terrace::cg;
  check_told("half_bandwidth", [&] { cg::band(context, n, wider); });
  cg::Operator system = cg::band(context, n, a);
  check_told("half_bandwidth", [&] { system.update_values(wider); });
  check_told("Local::columns of b", [&] { system.solve(more, left); });
  cg::Options options;
  options.preconditioner = odd() ? "jacobi" : "none";
  check_told("cg::Options::preconditioner", [&] { system.solve(right, left, options); });
  options = {};
  options.rtol = odd() ? 1e-8 : 1e-9;
  check_told("cg::Options::rtol", [&] { system.solve(right, left, options); });
  const std::vector<Index> start(std::size_t(rows.count + 1), 0);
  const Index column = 0;
  const double value = 0;
  std::vector<Index> rising{0}, own;
  for (const Index i : held(n, rows)) {
    own.push_back(i);
    rising.push_back(Index(own.size()));
  }
  const std::vector<double> ones(own.size() + 1, 1.0);
  own.push_back(0);  // so that a rank without rows has a pointer
  cg::Operator identity = cg::csr(context, n, rows, rising.data(), own.data(), ones.data());
  context.options().check = !odd();
  check_told("Options::check", [&] { identity.update_values(ones.data()); });
  context.options().check = true;
  identity.update_values(ones.data());
  check_told("n", [&] { cg::csr(context, n + odd(), rows, start.data(), &column, &value); });
  check_told("n", [&] { cg::user(context, n + odd(), rows, {}); });
  std::vector<double> square(std::size_t(rows.count * (n + 1)), 0.0);
  check_told("Local::columns of a", [&] {
    cg::dense(context, n, {square.data(), rows, n + odd(), n + 1});
  });
  CHECK(everywhere(system.solve(right, left).front().converged));
}

TEST_CASE("files and shapes that differ between ranks") {
  if (ranks == 1) return;
  Context context = group();
  const Index n = 12;
  const FileName name("library_alike");
  const Rows rows = share(n, 0);
  std::vector<double> a(std::size_t(rows.count * (n + 1)), 1.0);
  const Array<double> inside{a.data(), rows, n, n + 1}, wider{a.data(), rows, n + odd(), n + 1};
  namespace hdf5 = terrace::hdf5;
  check_told("the target", [&] { hdf5::Output(context, *name + (odd() ? "x" : "")); });
  if (odd()) setenv("TERRACE_STRIPE_BYTES", "4096", 1);
  check_told("TERRACE_STRIPE_BYTES", [&] { hdf5::Output(context, *name); });
  unsetenv("TERRACE_STRIPE_BYTES");
  hdf5::Output file(context, *name);
  check_told("the name", [&] { file.write(odd() ? "B" : "A", n, inside); });
  check_told("Local::columns of a", [&] { file.write("A", n, wider); });
  file.write("A", n, inside);
  file.commit();
  check_told("the location", [&] { hdf5::look(context, name.at(odd() ? "/B" : "/A")); });
  check_told("Local::columns of a", [&] { hdf5::read(context, name.at("/A"), wider); });
  hdf5::read(context, name.at("/A"), inside);
}
