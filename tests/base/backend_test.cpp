#include "src/gf2/backend.hpp"
#include "distrib/agree.hpp"
#include "distrib/imagined.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

TEST_CASE("ranks that are imagined say what this one says", "[backend]") {
  const Control here = Control::self();
  const Control many = imagined(here, 12, 8);
  CHECK((is_imagined(many) && !is_imagined(here)));
  CHECK((many.size() == 12 && many.rank() == 0 && many.local_size() == 8));
  CHECK(imagined(here, 3, 8).local_size() == 3);
  CHECK((many.reduce(Index(5), Reduce::sum) == 60 && many.reduce(Index(5), Reduce::max) == 5));
  CHECK((many.gather_all(Index(7)) == std::vector<Index>(12, 7)));
  CHECK((many.gather_all(std::string("x")) == std::vector<std::string>(12, "x")));
  CHECK(many.broadcast("text", 11) == "text");
  many.barrier();
  CHECK_THROWS_AS(imagined(many, 2, 1), Error);
  CHECK_THROWS_AS(collectively(many, [] { throw Error(Exit::usage, "a; b; c"); }), Error);
}

TEST_CASE("auto takes the GPU where every rank sees one, and the CPU for small work") {
  CHECK(choose_backend(true, {}).name == "cuda");
  CHECK(choose_backend(true, {}).reason.empty());
  CHECK(choose_backend(false, {}).name == "cpu");
  CHECK(choose_backend(true, {2048, 2048}).name == "cuda");
  const BackendChoice small = choose_backend(true, {2047, 2048});
  CHECK(small.name == "cpu");
  CHECK(small.reason.find("small: CPU") != std::string::npos);
  CHECK(small.reason.find("2047") != std::string::npos);
  // Nothing was left aside.
  CHECK(choose_backend(false, {2047, 2048}).reason.empty());
}

TEST_CASE("the size of an elimination is the cube root of its work") {
  CHECK(elimination_hint(1000, 1000).size == Approx(1000));
  CHECK(elimination_hint(100, 10000).size == Approx(464.16).epsilon(1e-4));
  CHECK(elimination_hint(10000, 100).size == Approx(464.16).epsilon(1e-4));
  CHECK(elimination_hint(0, 5).size == 0);
  CHECK(product_hint(8, 27, 1000).size == Approx(60));
  CHECK(elimination_hint(1 << 24, 1 << 24).size == Approx(1 << 24));  // no overflow
  CHECK(choose_backend(true, elimination_hint(64, 64)).name == "cpu");
  CHECK(choose_backend(true, elimination_hint(16384, 16384)).name == "cuda");
}

TEST_CASE("a named backend is what runs, however small the work is") {
  const BackendHint small = elimination_hint(1, 1);
  CHECK_ALL(resolve_backend(world(), "cpu", small).name == "cpu");
  CHECK_ALL(resolve_backend(world(), "cpu", small).reason.empty());
  const bool seen = world().reduce(Index(cuda_device_count()), Reduce::min) > 0;
  if (seen) {
    CHECK_ALL(resolve_backend(world(), "cuda", small).name == "cuda");
    CHECK_ALL(resolve_backend(world(), "auto", small).name == "cpu");
    CHECK_ALL(!resolve_backend(world(), "auto", small).reason.empty());
  }
  CHECK_ALL(resolve_backend(world(), "auto").name == (seen ? "cuda" : "cpu"));
}
