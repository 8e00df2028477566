#include "io/input.hpp"

#include <cmath>
#include <limits>

#include "io/output.hpp"
#include "io/sample.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/random.hpp"
#include "tests/io/forms.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

double entry(Index i, Index j) { return double((i * 31 + j * 17) % 101) - 50; }
bool bit(Index i, Index j) { return (i * i + 3 * j + i * j) % 7 < 3; }

/// Reads the ranges and compares each element with `truth(i, j)`.
template <class Input, class Truth>
bool rows_agree(const Input& input, const std::vector<Range>& ranges, const Truth& truth) {
  bool good = true;
  Index expected = 0;
  std::vector<Index> rows;
  for (const Range& r : ranges)
    for (Index i = 0; i < r.count; ++i) rows.push_back(r.first + i);
  input.read(world(), ranges, [&](Index position, Index count, const double* data) {
    good = good && position == expected;
    for (Index k = 0; k < count; ++k)
      for (Index j = 0; j < input.columns(); ++j)
        good = good && data[k * input.columns() + j] == truth(rows[std::size_t(position + k)], j);
    expected += count;
  });
  return good && expected == Index(rows.size());
}

bool bits_agree(const io::BitInput& input, const std::vector<Range>& ranges) {
  bool good = true;
  Index expected = 0;
  std::vector<Index> rows;
  for (const Range& r : ranges)
    for (Index i = 0; i < r.count; ++i) rows.push_back(r.first + i);
  input.read(world(), ranges, [&](Index position, Index count, const Word* data) {
    good = good && position == expected;
    for (Index k = 0; k < count; ++k)
      for (Index j = 0; j < input.words() * 64; ++j)
        good = good && ((data[k * input.words() + j / 64] >> (j % 64)) & 1) ==
                           Word(j < input.columns() && bit(rows[std::size_t(position + k)], j));
    expected += count;
  });
  return good && expected == Index(rows.size());
}

std::vector<double> dense_data(Index rows, Index columns, bool turned = false) {
  std::vector<double> data;
  for (Index a = 0; a < (turned ? columns : rows); ++a)
    for (Index b = 0; b < (turned ? rows : columns); ++b)
      data.push_back(turned ? entry(b, a) : entry(a, b));
  return data;
}

std::vector<hsize_t> dims(Index a, Index b) { return {hsize_t(a), hsize_t(b)}; }

}  // namespace

TEST_CASE("dense matrices of every stored type and order come in as they are") {
  const Folder folder;
  const std::string file = folder / "dense.h5";
  const std::vector<std::pair<Index, Index>> sizes = {{0, 3}, {1, 1}, {3, 0}, {7, 5}, {40, 33}};
  if (world().rank() == 0) {
    File f(file);
    for (const auto& [n, m] : sizes) {
      const std::string at = "/s" + std::to_string(n) + "x" + std::to_string(m);
      f.group(at);
      f.dataset(at + "/f64", dims(n, m), dense_data(n, m));
      f.dataset(at + "/f32", dims(n, m), dense_data(n, m), H5T_IEEE_F32BE);
      f.dataset(at + "/i16", dims(n, m), dense_data(n, m), H5T_STD_I16LE);
      f.dataset(at + "/i64", dims(n, m), dense_data(n, m), H5T_STD_I64BE);
      f.dataset(at + "/turned", dims(m, n), dense_data(n, m, true));
      f.text(at + "/turned", "order", "column-major", n % 2 == 0);
      if (n > 0 && m > 0) f.dataset(at + "/packed", dims(n, m), dense_data(n, m), -1, 6);
    }
  }
  world().barrier();
  for (const auto& [n, m] : sizes)
    for (const std::string name : {"f64", "f32", "i16", "i64", "turned", "packed"}) {
      if (name == "packed" && (n == 0 || m == 0)) continue;
      const auto input = io::open_dense(
          world(), {file, "/s" + std::to_string(n) + "x" + std::to_string(m) + "/" + name});
      INFO(name << " " << n << " x " << m);
      CHECK_ALL(input.rows() == n && input.columns() == m && !input.is_vector());
      for (int kind = 0; kind < 6; ++kind)
        CHECK_ALL(rows_agree(input, some_ranges(n, kind), entry));
    }
}

TEST_CASE("a vector is one column") {
  const Folder folder;
  if (world().rank() == 0) File(folder / "v.h5").dataset("/v", {9}, dense_data(9, 1));
  world().barrier();
  const auto input = io::open_dense(world(), {folder / "v.h5", ""});
  CHECK_ALL(input.rows() == 9 && input.columns() == 1 && input.is_vector());
  for (int kind = 0; kind < 6; ++kind) CHECK_ALL(rows_agree(input, some_ranges(9, kind), entry));
}

TEST_CASE("band matrices come in column by column from the lower and the upper form") {
  const Folder folder;
  const std::string file = folder / "band.h5";
  const std::vector<std::pair<Index, Index>> sizes = {{1, 0}, {1, 2},  {7, 0},  {7, 3},
                                                      {7, 9}, {40, 5}, {50, 37}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto name = [](Index n, Index m, bool upper) {
    return (upper ? "/u" : "/l") + std::to_string(n) + "_" + std::to_string(m);
  };
  if (world().rank() == 0) {
    File f(file);
    for (const auto& [n, m] : sizes) {
      std::vector<double> lower(std::size_t((m + 1) * n), nan), upper = lower;
      for (Index j = 0; j < n; ++j)
        for (Index i = j; i <= std::min(n - 1, j + m); ++i) {
          lower[std::size_t((i - j) * n + j)] = entry(i, j);
          upper[std::size_t((m - (i - j)) * n + i)] = entry(i, j);
        }
      f.dataset(name(n, m, false), dims(m + 1, n), lower);
      f.dataset(name(n, m, true), dims(m + 1, n), upper);
      f.text(name(n, m, false), "format", "band");
      f.text(name(n, m, true), "format", "band", false);
      f.text(name(n, m, true), "uplo", "upper");
    }
  }
  world().barrier();
  for (const auto& [n, m] : sizes)
    for (const bool upper : {false, true}) {
      INFO(n << " " << m << " " << upper);
      const auto input = io::open_band(world(), {file, name(n, m, upper)});
      CHECK_ALL(input.n() == n && input.half_bandwidth() == m);
      for (int kind = 0; kind < 6; ++kind) {
        bool good = true;
        std::vector<Index> columns;
        for (const Range& r : some_ranges(n, kind))
          for (Index i = 0; i < r.count; ++i) columns.push_back(r.first + i);
        Index seen = 0;
        input.read(
            world(), some_ranges(n, kind), [&](Index position, Index count, const double* data) {
              good = good && position == seen;
              for (Index k = 0; k < count; ++k)
                for (Index d = 0; d <= m; ++d) {
                  const Index j = columns[std::size_t(position + k)];
                  good = good && data[k * (m + 1) + d] == (j + d < n ? entry(j + d, j) : 0.0);
                }
              seen += count;
            });
        CHECK_ALL(good && seen == Index(columns.size()));
      }
    }
}

TEST_CASE("wide bands and tall column-major matrices come in from a disk that is told of windows") {
  const Folder folder;
  const std::string file = folder / "wide.h5";
  const Index n = 60000, height = 3;
  if (world().rank() == 0) {
    File f(file);
    std::vector<double> data(std::size_t(height * n));
    for (Index d = 0; d < height; ++d)
      for (Index j = 0; j < n; ++j) data[std::size_t(d * n + j)] = entry(j + d, j);
    f.dataset("/band", dims(height, n), data);
    f.text("/band", "format", "band");
    f.dataset("/tall", dims(height, n), data);
    f.text("/tall", "order", "column-major");
  }
  world().barrier();
  const auto band = io::open_band(world(), {file, "/band"});
  const auto tall = io::open_dense(world(), {file, "/tall"});
  CHECK_ALL(band.n() == n && tall.rows() == n && tall.columns() == height);
  const int rank = world().rank(), ranks = world().size();
  for (const auto& ranges :
       {contiguous(n, ranks).ranges(rank), BlockCyclic{n, 64, ranks}.ranges(rank),
        BlockCyclic{n, 256, ranks}.ranges(rank), BlockCyclic{n, 4099, ranks}.ranges(rank)})
    for (const int how : {0, 1, 2, 3}) {
      const bool banded = how % 2 == 0;
      if (how >= 2) setenv("TERRACE_TEST_TILES", "1", 1);  // as on several hosts
      std::vector<Index> items;
      for (const Range& r : ranges)
        for (Index i = 0; i < r.count; ++i) items.push_back(r.first + i);
      Index seen = 0, wrong = 0;
      const auto look = [&](Index position, Index count, const double* data) {
        wrong += position != seen;
        for (Index k = 0; k < count; ++k)
          for (Index d = 0; d < height; ++d) {
            const Index j = items[std::size_t(position + k)];
            wrong += data[k * height + d] != (banded && j + d >= n ? 0.0 : entry(j + d, j));
          }
        seen += count;
      };
      io::drop_cache(world(), file);
      if (banded)
        band.read(world(), ranges, look);
      else
        tall.read(world(), ranges, look);
      unsetenv("TERRACE_TEST_TILES");
      CHECK_ALL(wrong == 0 && seen == Index(items.size()));
    }
}

TEST_CASE("bit matrices come in from words, bytes in both bit orders, and plain zeros and ones") {
  const Folder folder;
  const std::string file = folder / "bits.h5";
  const std::vector<std::pair<Index, Index>> sizes = {{0, 5},  {1, 1},    {5, 63}, {6, 64},
                                                      {9, 65}, {30, 200}, {3, 8}};
  const auto at = [](Index n, Index m) {
    return "/s" + std::to_string(n) + "_" + std::to_string(m);
  };
  if (world().rank() == 0) {
    File f(file);
    for (const auto& [n, m] : sizes) {
      const Index w = ceil_div(m, 64), b = ceil_div(m, 8);
      std::vector<Word> words(std::size_t(n * w));
      std::vector<std::uint8_t> little(std::size_t(n * b)), big = little, plain(std::size_t(n * m));
      std::vector<std::int8_t> signed_plain(std::size_t(n * m));
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < m; ++j)
          if (bit(i, j)) {
            words[std::size_t(i * w + j / 64)] |= Word(1) << (j % 64);
            little[std::size_t(i * b + j / 8)] |= std::uint8_t(1 << (j % 8));
            big[std::size_t(i * b + j / 8)] |= std::uint8_t(0x80 >> (j % 8));
            plain[std::size_t(i * m + j)] = 1;
            signed_plain[std::size_t(i * m + j)] = 1;
          }
      f.group(at(n, m));
      f.dataset(at(n, m) + "/words", dims(n, w), words);
      f.whole(at(n, m) + "/words", "columns", {m});
      f.text(at(n, m) + "/words", "format", "bits");
      f.dataset(at(n, m) + "/little", dims(n, b), little);
      f.whole(at(n, m) + "/little", "columns", {m}, 1, H5T_STD_U16LE);
      f.text(at(n, m) + "/little", "bitorder", "little");
      f.dataset(at(n, m) + "/big", dims(n, b), big);
      f.whole(at(n, m) + "/big", "columns", {m}, 0, H5T_STD_I32BE);
      f.text(at(n, m) + "/big", "bitorder", "big", false);
      f.dataset(at(n, m) + "/plain", dims(n, m), plain);
      f.dataset(at(n, m) + "/signed", dims(n, m), signed_plain);
      const hid_t truth = H5Tenum_create(H5T_NATIVE_INT8);
      const std::int8_t no = 0, yes = 1;
      H5Tenum_insert(truth, "FALSE", &no);
      H5Tenum_insert(truth, "TRUE", &yes);
      f.dataset(at(n, m) + "/bool", dims(n, m), std::vector<std::int8_t>{}, truth);
      hid_t whole_file = H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
      hid_t d = H5Dopen2(whole_file, (at(n, m) + "/bool").c_str(), H5P_DEFAULT);
      H5Dwrite(d, truth, H5S_ALL, H5S_ALL, H5P_DEFAULT, signed_plain.data());
      H5Dclose(d);
      H5Fclose(whole_file);
      H5Tclose(truth);
      if (n > 0) f.dataset(at(n, m) + "/chunked", dims(n, m), plain, -1, 4);
    }
  }
  world().barrier();
  for (const auto& [n, m] : sizes)
    for (const std::string name :
         {"words", "little", "big", "plain", "signed", "bool", "chunked"}) {
      if (name == "chunked" && n == 0) continue;
      INFO(name << " " << n << " x " << m);
      const auto input = io::open_bits(world(), {file, at(n, m) + "/" + name});
      CHECK_ALL(input.rows() == n && input.columns() == m);
      for (int kind = 0; kind < 6; ++kind) CHECK_ALL(bits_agree(input, some_ranges(n, kind)));
    }
}

TEST_CASE("CSR groups come in row by row with 32- and 64-bit indices") {
  const Folder folder;
  const std::string file = folder / "csr.h5";
  const Index n = 23;
  std::vector<Index> indptr{0}, indices;
  std::vector<double> data;
  for (Index i = 0; i < n; ++i) {
    for (Index k = 0; k < (i * 3) % 5; ++k) {
      indices.push_back((i * 5 + 7 * k) % 11);
      data.push_back(entry(i, k));
    }
    indptr.push_back(Index(data.size()));
  }
  if (world().rank() == 0) {
    File f(file);
    for (const std::string g : {"/narrow", "/wide"}) {
      const bool wide = g == "/wide";
      f.group(g);
      f.dataset(g + "/data", {data.size()}, data, wide ? -1 : H5T_IEEE_F32LE);
      f.dataset(g + "/indices", {indices.size()}, indices, wide ? H5T_STD_I64LE : H5T_STD_I32LE);
      f.dataset(g + "/indptr", {indptr.size()}, indptr, wide ? H5T_STD_I64LE : H5T_STD_I32LE,
                wide ? 5 : 0);
      f.whole(g, "shape", {n, 11}, 2);
      f.text(g, "encoding-type", "csr_matrix");
    }
  }
  world().barrier();
  CHECK_ALL(io::kind_of(world(), {file, "/wide"}) == io::Kind::sparse);
  for (const std::string g : {"/narrow", "/wide"}) {
    const auto input = io::open_sparse(world(), {file, g});
    CHECK_ALL(input.rows() == n && input.columns() == 11 && input.nonzeros() == Index(data.size()));
    const Range rows = contiguous(n, world().size()).ranges(world().rank()).empty()
                           ? Range{n, 0}
                           : contiguous(n, world().size()).ranges(world().rank())[0];
    const auto pointers = input.row_pointers(world(), rows);
    bool good = Index(pointers.size()) == rows.count + 1;
    for (Index i = 0; i <= rows.count; ++i)
      good = good && pointers[std::size_t(i)] == indptr[std::size_t(rows.first + i)];
    io::SparseRows own;
    input.read(world(), rows, own);
    const Index first = indptr[std::size_t(rows.first)];
    good = good && Index(own.values.size()) == indptr[std::size_t(rows.end())] - first;
    for (std::size_t k = 0; k < own.values.size(); ++k)
      good = good && own.values[k] == data[std::size_t(first) + k] &&
             own.columns[k] == indices[std::size_t(first) + k];
    CHECK_ALL(good);
  }
}

TEST_CASE("what is wrong with an input is said with its position, on all ranks alike") {
  const Folder folder;
  const std::string file = folder / "bad.h5";
  const auto place = [&](const std::string& path) { return io::Location{file, path}; };
  if (world().rank() == 0) {
    File f(file);
    auto numbers = dense_data(8, 6);
    numbers[3 * 6 + 4] = std::numeric_limits<double>::quiet_NaN();
    numbers[7 * 6 + 1] = std::numeric_limits<double>::infinity();
    f.dataset("/nan", dims(8, 6), numbers);
    f.dataset("/nan_turned", dims(8, 6), numbers);
    f.text("/nan_turned", "order", "column-major");
    f.dataset("/band", dims(8, 6), numbers);
    f.text("/band", "format", "band");
    numbers[3 * 6 + 4] = 1;
    f.dataset("/inf", dims(8, 6), numbers);
    f.dataset("/cube", {2, 2, 2}, dense_data(2, 4));
    std::vector<std::uint8_t> plain(100, 1);
    plain[57] = 2;
    plain[93] = 7;
    f.dataset("/plain", {10, 10}, plain);
    f.dataset("/words", {3, 1}, std::vector<Word>{1, 2, Word(1) << 40});
    f.whole("/words", "columns", {40});
    f.text("/words", "format", "bits");
    f.dataset("/bare_words", {3, 1}, std::vector<Word>{1, 2, 3});
    f.dataset("/short", {3, 1}, std::vector<Word>{1, 2, 3});
    f.whole("/short", "columns", {65});
    f.group("/group");
    f.group("/terrace");
    f.dataset("/terrace/ignored", dims(2, 2), dense_data(2, 2));
    f.dataset("/text", {4}, std::vector<double>{1, 2, 3, 4});
  }
  if (world().rank() == 0) {
    File one(folder / "one.h5");
    one.dataset("/only", dims(2, 2), dense_data(2, 2));
    one.group("/terrace");
    one.dataset("/terrace/A", dims(2, 2), dense_data(2, 2));
    one.dataset("/vector", {2}, dense_data(2, 1));
    std::ofstream(folder / "text.h5") << "no HDF5 here";
  }
  world().barrier();
  const auto dense = [&](const io::Location& l) {
    return agreed_error(Exit::input, [&] {
      const auto input = io::open_dense(world(), l);
      input.read(world(), some_ranges(input.rows(), 1), [](Index, Index, const double*) {});
    });
  };
  const auto bits = [&](const std::string& path) {
    return agreed_error(Exit::input, [&] {
      const auto input = io::open_bits(world(), place(path));
      input.read(world(), some_ranges(input.rows(), 1), [](Index, Index, const Word*) {});
    });
  };
  CHECK_ALL(contains(dense(place("/nan")), "NaN in the input; " + file + ":/nan row 3, column 4;"));
  CHECK_ALL(contains(dense(place("/inf")), "Inf in the input; " + file + ":/inf row 7, column 1;"));
  CHECK_ALL(contains(dense(place("/nan_turned")), "row 1, column 7;"));
  CHECK_ALL(contains(dense(place("/cube")), "wrong shape"));
  CHECK_ALL(contains(dense(place("/group")), "a group"));
  CHECK_ALL(contains(dense(place("/words")), "wrong kind"));
  CHECK_ALL(contains(dense(place("/nothing")), "no such dataset"));
  CHECK_ALL(contains(dense({folder / "nothing.h5", ""}), "cannot open the file"));
  CHECK_ALL(contains(dense({folder / "text.h5", ""}), "not an HDF5 file"));
  const std::string several = dense({file, ""});
  CHECK_ALL(contains(several, "candidates"));
  CHECK_ALL(contains(several, "/inf") && contains(several, "/nan") &&
            !contains(several, "ignored"));
  CHECK_ALL(io::open_dense(world(), {folder / "one.h5", ""}).location().path == "/only");
  CHECK_ALL(contains(
      agreed_error(Exit::input,
                   [&] {
                     io::open_dense(world(), {folder / "one.h5", ""}, io::Role::right_hand_side);
                   }),
      "/only, /vector"));
  CHECK_ALL(
      contains(bits("/plain"), "other than 0 and 1: 2; " + file + ":/plain row 5, column 7;"));
  CHECK_ALL(contains(bits("/words"), "row 2;"));
  CHECK_ALL(contains(bits("/bare_words"), "other than 0 and 1"));
  CHECK_ALL(contains(bits("/short"), "wrong shape"));
  CHECK_ALL(contains(bits("/nan"), "other than 0 and 1"));
  // Column 1 of the band: row 7 of it is A[8, 1], outside; row 3 of column 4 too (n = 6).
  CHECK_ALL(agreed_error(Exit::input, [&] {
              const auto band = io::open_band(world(), place("/band"));
              band.read(world(), some_ranges(6, 1), [](Index, Index, const double*) {});
            }) == "no error");
  CHECK_ALL(contains(agreed_error(Exit::input, [&] { io::open_band(world(), place("/nan")); }),
                     "format is missing"));
  CHECK_ALL(contains(agreed_error(Exit::input, [&] { io::open_sparse(world(), place("/group")); }),
                     "no CSR matrix"));
}

TEST_CASE("a damaged file is an error, never a crash") {
  const Folder folder;
  const std::string good = folder / "good.h5", bad = folder / "bad.h5";
  if (world().rank() == 0) {
    File f(good);
    f.dataset("/A", dims(6, 6), dense_data(6, 6));
    f.text("/A", "note", "a text that lies on the heap");
    f.group("/g");
    f.dataset("/g/B", dims(3, 3), dense_data(3, 3), -1, 2);
  }
  world().barrier();
  const auto size = std::filesystem::file_size(good);
  Index outcomes[2] = {0, 0};
  for (Index trial = 0; trial < 60; ++trial) {
    if (world().rank() == 0) {
      std::filesystem::copy_file(good, bad, std::filesystem::copy_options::overwrite_existing);
      if (trial < 8) {
        std::filesystem::resize_file(bad, size * Word(trial) / 8);
      } else {
        std::fstream f(bad, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(std::streamoff(mix(Word(trial)) % size));
        f.put(char(mix(Word(trial) * 77)));
      }
    }
    world().barrier();
    for (const std::string path : {"", "/A", "/g/B"}) {
      const std::string message = agreed_error(Exit::input, [&] {
        const auto input = io::open_dense(world(), {bad, path});
        input.read(world(), some_ranges(std::min<Index>(input.rows(), 6), 0),
                   [](Index, Index, const double*) {});
      });
      CHECK_ALL(!contains(message, "other"));
      if (trial < 8) CHECK_ALL(message != "no error");
      ++outcomes[message == "no error"];
    }
    world().barrier();
  }
  CHECK_ALL(outcomes[0] > 0);
}
