#include "io/location.hpp"

#include "kernels/base/error.hpp"
#include "tests/support/test.hpp"

using terrace::io::parse_location;

TEST_CASE("a location is a file and a path in it") {
  CHECK(parse_location("a.h5").file == "a.h5");
  CHECK(parse_location("a.h5").path.empty());
  CHECK(parse_location("/x/a.h5:/g/A").file == "/x/a.h5");
  CHECK(parse_location("/x/a.h5:/g/A").path == "/g/A");
  CHECK(parse_location("a:b.h5:/A/").file == "a:b.h5");
  CHECK(parse_location("a:b.h5:/A/").path == "/A");
  CHECK(parse_location("a.h5:").path.empty());
  CHECK(parse_location("a.h5:/").path.empty());
  CHECK(parse_location("a.h5://A").path == "//A");  // as HDF5 takes it
  CHECK_THROWS_AS(parse_location("https://host/a.h5"), terrace::Error);
  CHECK(parse_location(":/b", "a.h5").file == "a.h5");
  CHECK(parse_location(":/b", "a.h5").path == "/b");
  CHECK_THROWS_AS(parse_location(":/b"), terrace::Error);
  CHECK_THROWS_AS(parse_location(""), terrace::Error);
  CHECK(terrace::io::to_string({"a.h5", "/A"}) == "a.h5:/A");
}
