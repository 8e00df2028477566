#include "distrib/binding.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "distrib/topology.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

using Units = std::vector<int>;

DeviceSeeker seeker(std::vector<std::string> uuids, std::vector<int> nodes = {}, int node = -1) {
  if (nodes.empty()) nodes.assign(uuids.size(), -1);
  return {std::move(uuids), std::move(nodes), node};
}

}  // namespace

TEST_CASE("Ranks that see all GPUs take them by their local number") {
  const auto rank = seeker({"a", "b", "c", "d"});
  CHECK(choose_devices({rank, rank, rank, rank}) == Units{0, 1, 2, 3});
  CHECK(choose_devices({rank, rank}) == Units{0, 1});
}

TEST_CASE("Ranks that see one GPU each take it, ordinal 0") {
  CHECK(choose_devices({seeker({"a"}), seeker({"b"}), seeker({"c"})}) == Units{0, 0, 0});
}

TEST_CASE("A bound rank takes a GPU near its cores") {
  const std::vector<std::string> all{"a", "b", "c", "d"};
  const std::vector<int> nodes{0, 0, 1, 1};
  CHECK(choose_devices({seeker(all, nodes, 1), seeker(all, nodes, 0), seeker(all, nodes, 1),
                        seeker(all, nodes, 0)}) == Units{2, 0, 3, 1});
}

TEST_CASE("As many different GPUs as can be: a rank gives way when another sees only its GPU") {
  CHECK(choose_devices({seeker({"a", "b"}), seeker({"a"})}) == Units{1, 0});
  CHECK(choose_devices({seeker({"a", "b"}), seeker({"a", "c"}), seeker({"a"})}) == Units{1, 1, 0});
}

TEST_CASE("A wish goes before the place, and where it must be, before all") {
  const auto wishing = [](int ordinal, bool must) {
    DeviceSeeker rank = seeker({"a", "b", "c"}, {0, 0, 1}, 0);
    rank.wish = {ordinal, must};
    return rank;
  };
  CHECK(choose_devices({wishing(2, false), wishing(1, false), wishing(0, false)}) ==
        Units{2, 1, 0});
  CHECK(choose_devices({wishing(0, false), wishing(0, true)}) == Units{1, 0});  // near comes second
  CHECK(choose_devices({wishing(-1, false), wishing(-1, false), wishing(0, true)}) ==
        Units{1, 2, 0});
  CHECK(choose_devices({wishing(1, true), wishing(1, true)}) == Units{1, 1});  // shared, if it must
  CHECK(choose_devices({wishing(0, false), wishing(0, false)}) == Units{0, 1});
}

TEST_CASE("More ranks than GPUs are spread evenly") {
  const auto rank = seeker({"a", "b"});
  Units chosen = choose_devices({rank, rank, rank, rank, rank});
  const auto on_a = std::count(chosen.begin(), chosen.end(), 0);
  CHECK((on_a == 2 || on_a == 3));
}

TEST_CASE("Cores: near the GPU, shared among the ranks of a node") {
  const std::vector<Units> nodes{{0, 1, 2, 3}, {4, 5, 6, 7}};
  Units all(8);
  std::iota(all.begin(), all.end(), 0);
  SECTION("four GPU ranks") {
    CHECK(choose_units(nodes, all, {0, 0, 1, 1}) ==
          std::vector<Units>{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  }
  SECTION("GPUs numbered against the nodes") {
    CHECK(choose_units(nodes, all, {1, 0}) == std::vector<Units>{{4, 5, 6, 7}, {0, 1, 2, 3}});
  }
  SECTION("ranks without GPUs: fair contiguous shares") {
    CHECK(choose_units(nodes, all, {-1, -1, -1, -1}) ==
          std::vector<Units>{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
    const auto shares = choose_units(nodes, all, {-1, -1, -1});
    Units together;
    for (const Units& share : shares) {
      CHECK((share.size() == 2 || share.size() == 3));
      together.insert(together.end(), share.begin(), share.end());
    }
    CHECK(together == all);
  }
  SECTION("a GPU of unknown place leaves its rank as it is") {
    const auto shares = choose_units(nodes, all, {0, -1});
    CHECK(shares[0] == Units{0, 1, 2, 3});
    CHECK(shares[1].empty());
  }
  SECTION("cores that may not be used are not") {
    CHECK(choose_units(nodes, {2, 3, 4, 5}, {0, 1}) == std::vector<Units>{{2, 3}, {4, 5}});
  }
  SECTION("more ranks than cores share them all") {
    for (const Units& share : choose_units(nodes, {0, 4}, {0, 0, 0})) CHECK(share == Units{0});
  }
  SECTION("one node: nothing is bound") {
    for (const Units& share : choose_units({all}, all, {0, 0})) CHECK(share.empty());
    for (const Units& share : choose_units(nodes, {4, 5, 6, 7}, {-1, -1})) CHECK(share.empty());
  }
}

TEST_CASE("Lists of cores are written as Linux writes them") {
  CHECK(to_list({}) == "");
  CHECK(to_list({5}) == "5");
  CHECK(to_list({8, 0, 1, 2, 3}) == "0-3,8");
  CHECK(from_list("0-3,8\n") == Units{0, 1, 2, 3, 8});
  CHECK(from_list("") == Units{});
  CHECK(from_list(to_list({1, 3, 4, 9})) == Units{1, 3, 4, 9});
}

TEST_CASE("The topology holds the cores of this process, or hwloc's synthetic ones") {
  const Topology topology = read_topology();
  if (topology_source().rfind("hwloc", 0) == 0 && std::getenv("HWLOC_SYNTHETIC")) {
    REQUIRE(topology.nodes.size() == 2);  // numa:2 core:3 pu:2
    for (const Units& node : topology.nodes) CHECK(node.size() == 6);
    const std::vector<Units> shares =
        choose_units(topology.nodes, from_list("0-11"), {-1, -1, -1, -1});
    std::set<int> all;
    for (const Units& share : shares) {
      CHECK(share.size() == 3);
      CHECK(node_of(topology, share) >= 0);
      all.insert(share.begin(), share.end());
    }
    CHECK(all.size() == 12);
    CHECK(node_of(topology, {topology.nodes[0][0], topology.nodes[1][0]}) == -1);
  } else {
    std::set<int> known;
    for (const Units& node : topology.nodes) known.insert(node.begin(), node.end());
    for (const int unit : allowed_units()) CHECK(known.contains(unit));
  }
}

TEST_CASE("Ranks that may use the same cores share them") {
  const auto lists = world().gather_all(to_list(allowed_units()));
  if (!everywhere(lists.front() == lists.back())) return;
  const int cores = int(allowed_units().size());
  CHECK(fair_threads(world()) == std::max(1, cores / world().local_size()));
}

TEST_CASE("A process bound to one core runs there alone") {
  const Units before = allowed_units();
  bind_process({before.front()});
  CHECK(allowed_units() == Units{before.front()});
  bind_process(before);
  CHECK(allowed_units() == before);
}
