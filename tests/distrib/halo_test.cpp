#include "distrib/halo.hpp"

#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using terrace::test::context;

TEMPLATE_TEST_CASE("every needed entry arrives at its place, and nothing else moves", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const auto& lane = c->ahead;
  const int ranks = c->size(), me = c->rank();
  for (Index n : {0, 1, 4, 17, 1000}) {
    // Slices of any size, the first rank of more than two without entries.
    std::vector<Index> first;
    for (int r = 0; r <= ranks; ++r) first.push_back(r == ranks ? n : n * r * r / (ranks * ranks));
    if (ranks > 2) first[1] = 0;
    const Index begin = first[std::size_t(me)], end = first[std::size_t(me) + 1];
    for (int density : {0, 1, 2, 5}) {  // of 5; 5 asks for everything: runs that need no packing
      std::vector<Index> needed;
      for (Index i = 0; i < n; ++i)
        if ((i < begin || i >= end) && int(random_word(3, i, me) % 5) < density)
          needed.push_back(i);
      const Halo<TestType> halo(c->control, lane, first, needed);
      CHECK_ALL(halo.left() + halo.right() == Index(needed.size()));
      std::vector<double> memory(std::size_t(halo.left() + end - begin + halo.right()), -1.0);
      for (Index i = begin; i < end; ++i) memory[std::size_t(halo.left() + i - begin)] = double(i);
      Buffer<double, TestType> buffer(Index(memory.size()));
      upload(lane, buffer.view(), memory.data());
      lane.synchronize();
      halo.exchange(c->comm, lane, buffer.data() + halo.left());
      download(lane, memory.data(), buffer.view());
      lane.synchronize();
      std::vector<double> expected;
      std::size_t k = 0;
      for (; k < needed.size() && needed[k] < begin; ++k) expected.push_back(double(needed[k]));
      for (Index i = begin; i < end; ++i) expected.push_back(double(i));
      for (; k < needed.size(); ++k) expected.push_back(double(needed[k]));
      CHECK_ALL(memory == expected);
    }
  }
}
