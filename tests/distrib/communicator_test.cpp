#include "distrib/communicator.hpp"

#include <vector>

#include "distrib/agree.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using terrace::test::context;
using terrace::test::world;

namespace {

template <class B, class T>
Buffer<T, B> on_backend(const Stream<B>& stream, const std::vector<T>& host) {
  Buffer<T, B> buffer(Index(host.size()));
  upload(stream, buffer.view(), host.data());
  stream.synchronize();
  return buffer;
}
template <class B, class T>
std::vector<T> on_host(const Stream<B>& stream, const Buffer<T, B>& buffer) {
  std::vector<T> host(std::size_t(buffer.size()));
  download(stream, host.data(), buffer.view());
  stream.synchronize();
  return host;
}

}  // namespace

TEMPLATE_TEST_CASE("every verb moves what it says", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& s = c->ahead;
  const Index p = c->size(), r = c->rank();
  for (Index n : {0, 1, 5, 1000, 300000}) {
    for (int root = 0; root < p; ++root) {
      auto data = on_backend(s, std::vector<double>(std::size_t(n), double(r)));
      c->comm.broadcast(s, root, data.view());
      REQUIRE_ALL(on_host(s, data) == std::vector<double>(std::size_t(n), double(root)));
    }
    auto mine = on_backend(s, std::vector<Index>(std::size_t(n), r + 1));
    Buffer<Index, TestType> all(n * p);
    c->comm.all_gather(s, mine.view(), all.view());
    std::vector<Index> expected;
    for (Index q = 0; q < p; ++q) expected.insert(expected.end(), std::size_t(n), q + 1);
    REQUIRE_ALL(on_host(s, all) == expected);
    c->comm.all_reduce(s, Reduce::sum, mine.view());
    REQUIRE_ALL(on_host(s, mine) == std::vector<Index>(std::size_t(n), p * (p + 1) / 2));
    Buffer<Index, TestType> part(n);
    c->comm.reduce_scatter(s, Reduce::max, all.view(), part.view());
    REQUIRE_ALL(on_host(s, part) == std::vector<Index>(std::size_t(n), r + 1));
  }
}

TEMPLATE_TEST_CASE("exchange pairs sends with receives, oneself included", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& s = c->ahead;
  const int p = c->size(), r = c->rank();
  const Index n = 777;
  // To every rank q: n + q values of 100 r + q.
  std::vector<Buffer<double, TestType>> out, in;
  std::vector<Piece> sends, receives;
  for (int q = 0; q < p; ++q) {
    out.push_back(on_backend(s, std::vector<double>(std::size_t(n + q), 100.0 * r + q)));
    in.emplace_back(n + r);
    sends.push_back({q, out.back().data(), (n + q) * 8});
    receives.push_back({q, in.back().data(), (n + r) * 8});
  }
  c->comm.exchange(s, sends, receives);
  for (int q = 0; q < p; ++q)
    REQUIRE_ALL(on_host(s, in[std::size_t(q)]) ==
                std::vector<double>(std::size_t(n + r), 100.0 * q + r));
}

TEST_CASE("one rank's error is thrown on all, with its text and code") {
  const int last = world().size() - 1;
  bool right = false;
  try {
    collectively(world(), [&] {
      if (world().rank() == last) throw Error(Exit::input, "rank says no");
    });
  } catch (const Error& e) {
    right = e.agreed() && e.code() == Exit::input && std::string(e.what()) == "rank says no";
  }
  REQUIRE_ALL(right);
}

TEST_CASE("host reductions and gathers") {
  const Index p = world().size(), r = world().rank();
  CHECK_ALL(world().reduce(r + 1, Reduce::sum) == p * (p + 1) / 2);
  CHECK_ALL(world().reduce(double(r), Reduce::max) == double(p - 1));
  std::vector<Word> bits{Word(1) << r};
  world().reduce(bits, Reduce::bit_xor);
  CHECK_ALL(bits[0] == (Word(1) << p) - 1);
  const auto names = world().gather_all(std::string(std::size_t(r), 'x'));
  CHECK_ALL(Index(names.back().size()) == p - 1);
  CHECK_ALL(Control::self().size() == 1);
}

TEST_CASE("more memory than there is is refused on all ranks alike") {
  bool right = false;
  try {
    require_memory(world(), Index(1) << 50, 0);
  } catch (const Error& e) {
    right = e.agreed() && e.code() == Exit::resources;
  }
  REQUIRE_ALL(right);
}
