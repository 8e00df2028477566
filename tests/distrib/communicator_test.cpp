#include "distrib/communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/graph.hpp"
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

namespace {

/// Element i of rank r's vector: no two are equal, so neither order nor offset can hide.
template <class T>
T element(Index r, Index i) {
  return T(r * 1000003 + i * 7 + 1);
}
/// `before` and `behind` elements of -1 around n of rank r's: what no verb may touch.
template <class T>
std::vector<T> framed(Index r, Index n, Index before, Index behind) {
  std::vector<T> v(std::size_t(before + n + behind), T(-1));
  for (Index i = 0; i < n; ++i) v[std::size_t(before + i)] = element<T>(r, i);
  return v;
}

/// Which transport this run has tested, for whoever reads the log.
template <class B>
void say_transport(const Context<B>& c) {
  const char* const wanted = std::getenv("TERRACE_TEST_TRANSPORT");  // NCCL, in tests of it
  if (wanted != nullptr && std::is_same_v<B, Cuda>)
    REQUIRE_ALL(c.comm.transport().rfind(wanted, 0) == 0);
  static bool said = false;
  if (!said && c.rank() == 0)
    fmt::print("{}: {} ranks by {}\n", std::is_same_v<B, Cpu> ? "cpu" : "cuda", c.size(),
               c.comm.transport());
  said = true;
}

}  // namespace

TEMPLATE_TEST_CASE("every verb moves what it says, in order and nothing beside", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  say_transport(*c);
  const auto& s = c->ahead;
  const Index p = c->size(), r = c->rank();
  constexpr Index before = 3, behind = 5;
  for (Index n : {0, 1, 5, 1000, 30011}) {
    for (int root = 0; root < p; ++root) {
      auto data = on_backend(s, framed<double>(r, n, before, behind));
      c->comm.broadcast(s, root, data.view().slice(before, n));
      REQUIRE_ALL(on_host(s, data) == framed<double>(root, n, before, behind));
    }
    auto mine = on_backend(s, framed<Index>(r, n, before, behind));
    auto all = on_backend(s, std::vector<Index>(std::size_t(before + n * p + behind), -1));
    c->comm.all_gather(s, mine.view().slice(before, n), all.view().slice(before, n * p));
    std::vector<Index> expected(std::size_t(before), -1);
    for (Index q = 0; q < p; ++q)
      for (Index i = 0; i < n; ++i) expected.push_back(element<Index>(q, i));
    expected.insert(expected.end(), std::size_t(behind), -1);
    REQUIRE_ALL(on_host(s, all) == expected);

    // Rank q has the sign of its parity at odd places: neither first nor last holds an extremum.
    const auto at = [&](Index q, Index i) { return (q + i) % 2 == 0 ? i * 11 + q : -i * 13 - q; };
    const auto reduced = [&](Reduce op, Index i) {
      Index value = at(0, i);
      for (Index q = 1; q < p; ++q)
        value = op == Reduce::sum   ? value + at(q, i)
                : op == Reduce::min ? std::min(value, at(q, i))
                                    : std::max(value, at(q, i));
      return value;
    };
    for (const Reduce op : {Reduce::sum, Reduce::min, Reduce::max}) {
      std::vector<Index> host(std::size_t(before + n * p + behind), -1);
      for (Index i = 0; i < n * p; ++i) host[std::size_t(before + i)] = at(r, i);
      auto whole = on_backend(s, host);
      auto part = on_backend(s, std::vector<Index>(std::size_t(before + n + behind), -1));
      c->comm.reduce_scatter(s, op, whole.view().slice(before, n * p),
                             part.view().slice(before, n));
      std::vector<Index> scattered(std::size_t(before + n + behind), -1);
      for (Index i = 0; i < n; ++i) scattered[std::size_t(before + i)] = reduced(op, r * n + i);
      REQUIRE_ALL(on_host(s, part) == scattered);
      c->comm.all_reduce(s, op, whole.view().slice(before, n * p));
      for (Index i = 0; i < n * p; ++i) host[std::size_t(before + i)] = reduced(op, i);
      REQUIRE_ALL(on_host(s, whole) == host);
      std::vector<double> reals(std::size_t(n), 0.0);
      for (Index i = 0; i < n; ++i) reals[std::size_t(i)] = 0.5 * double(at(r, i));
      auto real = on_backend(s, reals);
      c->comm.all_reduce(s, op, real.view());
      for (Index i = 0; i < n; ++i) reals[std::size_t(i)] = 0.5 * double(reduced(op, i));
      REQUIRE_ALL(on_host(s, real) == reals);
    }
  }
}

TEMPLATE_TEST_CASE("grouped broadcasts have roots, sizes and places of their own", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& s = c->ahead;
  const Index p = c->size(), r = c->rank();
  // Piece k, of root (2 k) mod p, holds 500 k + 1 numbers (none for k = 2) with one untouched
  // number between two pieces; roots come several times.
  const Index pieces = 2 * p + 1;
  const auto length = [](Index k) { return k == 2 ? 0 : 500 * k + 1; };
  std::vector<double> mine, expected;
  std::vector<Index> places;
  for (Index k = 0; k < pieces; ++k) {
    const Index root = 2 * k % p;
    places.push_back(Index(mine.size()));
    for (Index i = 0; i < length(k); ++i) {
      mine.push_back(r == root ? element<double>(k, i) : -3.0);
      expected.push_back(element<double>(k, i));
    }
    mine.push_back(-2 - double(r));
    expected.push_back(-2 - double(r));
  }
  auto data = on_backend(s, mine);
  std::vector<Piece> group;
  for (Index k = 0; k < pieces; ++k)
    group.push_back(
        {int(2 * k % p), data.data() + places[std::size_t(k)], length(k) * Index(sizeof(double))});
  c->comm.broadcast_group(s, group);
  REQUIRE_ALL(on_host(s, data) == expected);
}

TEMPLATE_TEST_CASE("exchange pairs sends with receives, oneself included", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& s = c->ahead;
  const int p = c->size(), r = c->rank();
  const Index n = 777;
  // To every rank q: n + q numbers and a second message of 5, out of one array and into one.
  const auto value = [](int from, int to, Index i) { return 1e6 * from + 1e4 * to + double(i); };
  std::vector<double> out, in;
  std::vector<Index> out_at, in_at;
  for (int q = 0; q < p; ++q) {
    out_at.push_back(Index(out.size()));
    in_at.push_back(Index(in.size()));
    for (Index i = 0; i < n + q + 5; ++i) out.push_back(value(r, q, i));
    for (Index i = 0; i < n + r + 5; ++i) in.push_back(value(q, r, i));
    out.push_back(-1);
    in.push_back(-1);
  }
  const auto from = on_backend(s, out);
  auto to = on_backend(s, std::vector<double>(in.size(), -1));
  std::vector<Piece> sends, receives;
  for (int q = 0; q < p; ++q) {
    double* const send = from.data() + out_at[std::size_t(q)];
    double* const receive = to.data() + in_at[std::size_t(q)];
    sends.push_back({q, send, (n + q) * 8});
    sends.push_back({q, send + n + q, 5 * 8});
    receives.push_back({q, receive, (n + r) * 8});
    receives.push_back({q, receive + n + r, 5 * 8});
  }
  c->comm.exchange(s, sends, receives);
  REQUIRE_ALL(on_host(s, to) == in);
}

// Sizes around what one lane, one call and one piece of a large message take through peers' memory,
// again and again, so that rings go round; out of and into places that are aligned to one byte only.
TEMPLATE_TEST_CASE("messages of every size go round the rings", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c || c->size() == 1) return;
  const auto& s = c->ahead;
  const int p = c->size(), r = c->rank();
  const Index most = 5'000'011, room = most + 64;
  std::vector<unsigned char> mine(static_cast<std::size_t>(room));
  const auto byte = [](int rank, Index i) {
    return static_cast<unsigned char>((i * 2654435761 + rank * 97 + (i >> 9)) >> 3);
  };
  for (Index i = 0; i < room; ++i) mine[std::size_t(i)] = byte(r, i);
  const auto from = on_backend(s, mine);
  const int next = (r + 1) % p, before = (r + p - 1) % p;
  Index turn = 0;
  for (const Index bytes :
       {Index(1), Index(3), Index(4), Index(15), Index(16), Index(17), Index(2047), Index(2048),
        Index(2049), Index(8192), Index(65535), Index(65536), Index(65537), Index(262144),
        Index(262145), Index(2097153), most}) {
    for (int again = 0; again < 6; ++again, ++turn) {
      const Index shift = turn % 17, place = turn % 5;
      auto to = on_backend(s, std::vector<unsigned char>(std::size_t(room), 0xa5));
      const Piece send{next, from.data() + shift, bytes};
      const Piece receive{before, to.data() + place, bytes};
      c->comm.exchange(s, {&send, 1}, {&receive, 1});
      const auto got = on_host(s, to);
      bool right = true;
      for (Index i = 0; i < room; ++i) {
        const bool inside = i >= place && i < place + bytes;
        right &= got[std::size_t(i)] == (inside ? byte(before, i - place + shift) : 0xa5);
      }
      REQUIRE_ALL(right);
    }
  }
  // More messages to one peer than one call takes, and long and short ones in turns.
  std::vector<Piece> sends, receives;
  auto to = on_backend(s, std::vector<unsigned char>(std::size_t(room), 0));
  for (Index k = 0, at = 0; k < 150; ++k) {
    const Index bytes = k % 7 == 0 ? 300'000 / 11 * (k % 3) : 10 + k;
    sends.push_back({next, from.data() + at, bytes});
    receives.push_back({before, to.data() + at, bytes});
    at += bytes;
  }
  c->comm.exchange(s, sends, receives);
  const auto got = on_host(s, to);
  Index end = 0;
  for (const Piece& piece : sends) end += piece.bytes;
  bool right = true;
  for (Index i = 0; i < end; ++i) right &= got[std::size_t(i)] == byte(before, i);
  REQUIRE_ALL(right);
}

TEMPLATE_TEST_CASE("long reductions are combined in windows, in the order of the ranks", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& s = c->ahead;
  const Index p = c->size(), r = c->rank();
  for (const Index n : {Index(32767), Index(32769), Index(131073), Index(2'200'003)}) {
    std::vector<Index> mine(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i) mine[std::size_t(i)] = element<Index>(r, i);
    auto all = on_backend(s, mine);
    c->comm.all_reduce(s, Reduce::sum, all.view());
    for (Index i = 0; i < n; ++i) {
      mine[std::size_t(i)] = 0;
      for (Index q = 0; q < p; ++q) mine[std::size_t(i)] += element<Index>(q, i);
    }
    REQUIRE_ALL(on_host(s, all) == mine);
  }
  // No two ranks may differ in a bit.
  std::vector<double> reals(70'001);
  for (std::size_t i = 0; i < reals.size(); ++i) reals[i] = 1 / (double(i) + 3 + double(r) / 7);
  auto real = on_backend(s, reals);
  c->comm.all_reduce(s, Reduce::sum, real.view());
  const auto sums = on_host(s, real);
  std::vector<Index> bits(sums.size());
  std::memcpy(bits.data(), sums.data(), 8 * sums.size());
  std::vector<Index> most = bits, least = bits;
  world().reduce(most, Reduce::max);
  world().reduce(least, Reduce::min);
  REQUIRE_ALL(most == least);
}

TEMPLATE_TEST_CASE("a recorded exchange can be launched again", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& s = c->ahead;
  const Index p = c->size(), r = c->rank(), n = 5000;
  auto part = on_backend(s, std::vector<Index>(std::size_t(n), r + 1));
  auto all = on_backend(s, std::vector<Index>(std::size_t(n * p), 0));
  auto sum = on_backend(s, std::vector<Index>{r + 1});
  const auto step = [&] {
    c->comm.all_gather(s, part.view(), all.view());
    c->comm.all_reduce(s, Reduce::sum, sum.view());
  };
  step();  // connections are made at the first call
  const Graph<TestType> graph(s, step);
  Index expected = p * (p + 1) / 2;
  for (int k = 0; k < 9; ++k) {
    graph.launch(s);
    expected *= p;
  }
  std::vector<Index> ranks;
  for (Index q = 0; q < p; ++q) ranks.insert(ranks.end(), std::size_t(n), q + 1);
  REQUIRE_ALL(on_host(s, all) == ranks);
  REQUIRE_ALL(on_host(s, sum) == std::vector<Index>{expected});
}

/// Prints them, on one rank.
template <class B>
void time_verbs(const Context<B>& c) {
  const auto& s = c.ahead;
  const Index most = Index(1) << 27, p = c.size();
  const Buffer<Word, B> from(most / 8), to(most / 8 * p);
  fill_zero(s, from.view());
  const auto seconds = [&](const std::function<void()>& work) {
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      s.synchronize();
      world().barrier();
      const auto start = Clock::now();
      work();
      s.synchronize();
      if (round > 0)
        best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return best;
  };
  if (c.rank() == 0) fmt::print("{}\n", c.comm.transport());
  const double made = seconds([] { (void)Communicator<B>(world()); });
  if (c.rank() == 0) fmt::print("made in {:.4f} s\n", made);
  const auto timed = [&](const char* name, Index bytes, const std::function<void()>& verb) {
    const int times = bytes < 1 << 20 ? 200 : 10;
    const auto all = [&] {
      for (int k = 0; k < times; ++k) verb();
    };
    all();
    const Graph<B> graph(s, all);
    const double called = seconds(all) / times;
    const double recorded = seconds([&] { graph.launch(s); }) / times;
    if (c.rank() == 0)
      fmt::print("{:10} {:9} bytes {:9.2f} us called, {:9.2f} us recorded, {:6.1f} GB/s\n", name,
                 bytes, called * 1e6, recorded * 1e6,
                 double(bytes) / std::min(called, recorded) * 1e-9);
  };
  const Buffer<double, B> scalars(3);
  fill_zero(s, scalars.view());
  timed("sum", 24, [&] { c.comm.all_reduce(s, Reduce::sum, scalars.view()); });
  for (Index bytes = 1 << 10; bytes <= most; bytes *= bytes < 1 << 16 ? 8 : 4) {
    timed("gather", bytes, [&] {
      c.comm.all_gather(s, from.view().slice(0, bytes / 8), to.view().slice(0, bytes / 8 * p));
    });
    timed("broadcast", bytes, [&] { c.comm.broadcast(s, 0, to.view().slice(0, bytes / 8)); });
    if (bytes <= Index(1) << 24)
      timed("reduce", bytes,
            [&] { c.comm.all_reduce(s, Reduce::sum, to.view().slice(0, bytes / 8)); });
  }
}

TEST_CASE("seconds of the verbs", "[.times]") {
  terrace::test::on<Cuda>([](const auto& c) { time_verbs(c); });
}

TEST_CASE("one rank's error is thrown on all, with its text and code") {
  const int last = world().size() - 1;
  bool right = false;
  try {
    collectively(world(), [&] {
      if (world().rank() == last) throw Error(Exit::input, "no; rank; ask again");
    });
  } catch (const Error& e) {
    right = e.agreed() && e.code() == Exit::input && std::string(e.what()) == "no; rank; ask again";
  }
  REQUIRE_ALL(right);
}

TEST_CASE("what a rank throws while it is alone is thrown on all") {
  const int last = world().size() - 1;
  const Control alone = Control::alone();
  bool right = false;
  try {
    collectively_alone(world(), [&] {
      collectively(alone, [&] {
        if (world().rank() == last) throw Error(Exit::outcome, "no; here; ask again");
      });
    });
  } catch (const Error& e) {
    right =
        e.agreed() && e.code() == Exit::outcome && std::string(e.what()) == "no; here; ask again";
  }
  REQUIRE_ALL(right);
  CHECK_ALL(collectively_alone(world(), [] { return 7; }) == 7);
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
