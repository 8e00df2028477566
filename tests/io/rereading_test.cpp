#include "io/rereading.hpp"

#include <limits>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "kernels/base/hash.hpp"
#include "tests/io/forms.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

double entry(Index i, Index j) { return double((i * 31 + j * 17) % 101) - 50; }
std::vector<hsize_t> dims(Index a, Index b) { return {hsize_t(a), hsize_t(b)}; }

std::vector<Index> items_of(const std::vector<Range>& ranges) {
  std::vector<Index> items;
  for (const Range& r : ranges)
    for (Index i = 0; i < r.count; ++i) items.push_back(r.first + i);
  return items;
}

/// The hash of what the first reading hands on, by the definition.
template <class Input, class T>
Word hash_of_read(const Input& input, const std::vector<Range>& ranges, Index width, T) {
  const std::vector<Index> items = items_of(ranges);
  Word sum = 0;
  input.read(world(), ranges, [&](Index position, Index count, const T* data) {
    for (Index i = 0; i < count; ++i)
      for (Index k = 0; k < width; ++k) {
        Word bits = 0;
        std::memcpy(&bits, data + i * width + k, 8);
        sum += hash_element(bits, items[std::size_t(position + i)] * width + k);
      }
  });
  return sum;
}
template <class Input, class T>
bool agrees(const Input& input, const std::vector<Range>& ranges, Index width, T type) {
  const Word wanted = hash_of_read(input, ranges, width, type);
  const auto again = input.reread(ranges);
  if (!again) return false;
  again->begin();
  return again->finish() == wanted;
}

}  // namespace

TEST_CASE("the second reading has the hash of the first, of every form without gaps") {
  const Folder folder;
  const std::string file = folder / "again.h5";
  const Index n = 700, m = 5, columns = 1030;
  if (world().rank() == 0) {
    File f(file);
    std::vector<double> rows, turned, band, band_rows;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; ++j) rows.push_back(entry(i, j));
    for (Index j = 0; j < m; ++j)
      for (Index i = 0; i < n; ++i) turned.push_back(entry(i, j));
    for (Index d = 0; d <= m; ++d)
      for (Index j = 0; j < n; ++j)
        band.push_back(j + d < n ? entry(j + d, j) : std::numeric_limits<double>::quiet_NaN());
    for (Index j = 0; j < n; ++j)
      for (Index d = 0; d <= m; ++d) band_rows.push_back(j + d < n ? entry(j + d, j) : 1e9);
    f.dataset("/f64", dims(n, m), rows);
    f.dataset("/f32", dims(n, m), rows, H5T_IEEE_F32BE);
    f.dataset("/i16", dims(n, m), rows, H5T_STD_I16LE);
    f.dataset("/vector", {hsize_t(n * m)}, rows);
    f.dataset("/turned", dims(m, n), turned);
    f.text("/turned", "order", "column-major");
    f.dataset("/band", dims(m + 1, n), band);
    f.text("/band", "format", "band");
    f.dataset("/band_rows", dims(n, m + 1), band_rows);
    f.text("/band_rows", "format", "band");
    f.text("/band_rows", "order", "column-major");
    const Index w = ceil_div(columns, 64);
    std::vector<Word> words(std::size_t(n * w), 0);
    for (std::size_t i = 0; i < words.size(); ++i)
      if (Index(i) % w + 1 < w) words[i] = mix(i);
    f.dataset("/words", dims(n, w), words);
    f.whole("/words", "columns", {columns});
  }
  world().barrier();
  for (int kind = 0; kind < 6; ++kind) {
    const auto ranges = some_ranges(n, kind);
    for (const std::string name : {"/f64", "/f32", "/i16"}) {
      INFO(name << " " << kind);
      CHECK_ALL(agrees(io::open_dense(world(), {file, name}), ranges, m, 0.0));
    }
    CHECK_ALL(agrees(io::open_dense(world(), {file, "/vector"}), some_ranges(n * m, kind), 1, 0.0));
    CHECK_ALL(
        agrees(io::open_bits(world(), {file, "/words"}), ranges, ceil_div(columns, 64), Word(0)));
    CHECK_ALL(agrees(io::open_band(world(), {file, "/band_rows"}), ranges, m + 1, 0.0));
  }
  const Range all{0, n};
  CHECK_ALL(agrees(io::open_dense(world(), {file, "/turned"}), {all}, m, 0.0));
  CHECK_ALL(agrees(io::open_band(world(), {file, "/band"}), {all}, m + 1, 0.0));
  // Runs of 100 numbers of a column are no reads.
  CHECK_ALL(io::open_band(world(), {file, "/band"}).reread(std::vector<Range>{{0, 100}}) ==
            nullptr);
}

TEST_CASE("what is stored in chunks, packed or as plain bits is not read so") {
  const Folder folder;
  const std::string file = folder / "others.h5";
  if (world().rank() == 0) {
    File f(file);
    f.dataset("/packed", dims(40, 30), std::vector<double>(1200, 1.5), -1, 6);
    f.dataset("/plain", dims(9, 70), std::vector<std::uint8_t>(630, 1));
    f.dataset("/upper", dims(3, 50), std::vector<double>(150, 2));
    f.text("/upper", "format", "band");
    f.text("/upper", "uplo", "upper");
  }
  world().barrier();
  const std::vector<Range> some{{0, 9}};
  CHECK_ALL(io::open_dense(world(), {file, "/packed"}).reread(some) == nullptr);
  CHECK_ALL(io::open_bits(world(), {file, "/plain"}).reread(some) == nullptr);
  CHECK_ALL(io::open_band(world(), {file, "/upper"}).reread(some) == nullptr);
}

TEST_CASE("the second reading sees what changed, and a file that ends") {
  const Folder folder;
  const std::string file = folder / "changes.h5";
  const Index n = 300;
  std::vector<double> data(std::size_t(n * n), 0.25);
  if (world().rank() == 0) File(file).dataset("/A", dims(n, n), data);
  world().barrier();
  const auto input = io::open_dense(world(), {file, "/A"});
  const std::vector<Range> own = contiguous(n, world().size()).ranges(world().rank());
  const Word before = hash_of_read(input, own, n, 0.0);
  const auto again = input.reread(own);
  REQUIRE_ALL(again != nullptr);
  world().barrier();
  if (world().rank() == 0) {  // one bit of the last number
    std::FILE* const f = std::fopen(file.c_str(), "r+b");
    std::fseek(f, 0, SEEK_END);
    std::vector<char> bytes(std::size_t(std::ftell(f)));
    std::rewind(f);
    REQUIRE(std::fread(bytes.data(), 1, bytes.size(), f) == bytes.size());
    std::string last(reinterpret_cast<const char*>(data.data()), 8);
    const auto at = std::string(bytes.data(), bytes.size()).rfind(last);
    REQUIRE(at != std::string::npos);
    bytes[at] ^= 1;
    std::fseek(f, long(at), SEEK_SET);
    std::fwrite(&bytes[at], 1, 1, f);
    std::fclose(f);
  }
  world().barrier();
  again->begin();
  const bool same = again->finish() == before;
  CHECK_ALL(same == (world().rank() + 1 != world().size()));
  const auto third = input.reread(own);
  world().barrier();
  if (world().rank() == 0) REQUIRE(truncate(file.c_str(), 8 * n * n / 2) == 0);
  world().barrier();
  third->begin();
  CHECK_THROWS_AS(third->finish(), Error);
}

TEST_CASE("a band comes in by diagonals, as it lies, from any column on") {
  const Folder folder;
  const std::string file = folder / "diagonals.h5";
  const std::vector<std::pair<Index, Index>> sizes = {{1, 0}, {1, 2}, {7, 3}, {7, 9}, {50, 37}};
  const auto name = [](Index n, Index m) {
    return "/" + std::to_string(n) + "_" + std::to_string(m);
  };
  if (world().rank() == 0) {
    File f(file);
    for (const auto& [n, m] : sizes) {
      std::vector<double> lower;
      for (Index d = 0; d <= m; ++d)
        for (Index j = 0; j < n; ++j)
          lower.push_back(j + d < n ? entry(j + d, j) : std::numeric_limits<double>::quiet_NaN());
      for (const bool chunks : {false, true}) {
        const std::string at = name(n, m) + (chunks ? "_chunks" : "");
        f.dataset(at, dims(m + 1, n), lower, -1, chunks ? 2 : 0);
        f.text(at, "format", "band");
      }
    }
  }
  world().barrier();
  for (const auto& [n, m] : sizes)
    for (const std::string form : {"", "_chunks"}) {
      const auto input = io::open_band(world(), {file, name(n, m) + form});
      const Index first = world().rank() * n / world().size();
      bool good = input.by_diagonals();
      Index seen = 0;
      input.read_diagonals(world(), {first, n - first},
                           [&, n = n, m = m](Index position, Index count, const double* data) {
                             good = good && position == seen;
                             for (Index d = 0; d <= m; ++d)
                               for (Index k = 0; k < count; ++k) {
                                 const Index j = first + position + k;
                                 good = good &&
                                        data[d * count + k] == (j + d < n ? entry(j + d, j) : 0.0);
                               }
                             seen += count;
                           });
      INFO(n << " " << m << form);
      CHECK_ALL(good && seen == n - first);
    }
}
