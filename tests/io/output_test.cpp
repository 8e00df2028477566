#include "io/output.hpp"

#include <fstream>
#include <numeric>

#include "io/foreign.hpp"
#include "io/input.hpp"
#include "io/unfinished.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/random.hpp"
#include "tests/io/forms.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

// Before the first use: most datasets here take several pieces.
[[maybe_unused]] const int small_pieces = setenv("TERRACE_IO_PIECE_BYTES", "40000", 1);

double entry(Index i, Index j) { return double(i) * 1000 + double(j) + 0.5; }

/// What a fresh reader sees, on every rank: dataset `path` as 8-byte words.
std::vector<Word> seen(const std::string& file, const std::string& path,
                       std::vector<hsize_t>& dims) {
  std::vector<Word> data;
  const hid_t f = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t d = H5Dopen2(f, path.c_str(), H5P_DEFAULT);
  if (d >= 0) {
    const hid_t space = H5Dget_space(d), type = H5Dget_type(d);
    dims.resize(std::size_t(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, dims.data(), nullptr);
    data.resize(std::size_t(H5Sget_simple_extent_npoints(space)));
    H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data());
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(d);
  }
  H5Fclose(f);
  return data;
}

std::vector<Index> items(const std::vector<Range>& ranges) {
  std::vector<Index> all;
  for (const Range& r : ranges)
    for (Index i = 0; i < r.count; ++i) all.push_back(r.first + i);
  return all;
}

template <class Truth>
bool agrees(const std::string& file, const std::string& path, Index rows, Index columns,
            const Truth& truth) {
  std::vector<hsize_t> dims;
  const auto data = seen(file, path, dims);
  const Index width = columns < 0 ? 1 : columns;
  bool good = Index(data.size()) == rows * width && dims.size() == (columns < 0 ? 1u : 2u);
  for (Index i = 0; good && i < rows; ++i)
    for (Index j = 0; j < width; ++j) {
      const double t = truth(i, j);
      good = good && std::memcmp(&t, &data[std::size_t(i * width + j)], 8) == 0;
    }
  return good;
}

void flip(const std::string& file, const std::string& path, Index element) {
  if (world().rank() == 0) {
    const hid_t f = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t d = H5Dopen2(f, path.c_str(), H5P_DEFAULT);
    const haddr_t at = H5Dget_offset(d) + haddr_t(element) * 8;
    H5Dclose(d);
    H5Fclose(f);
    std::fstream s(file, std::ios::in | std::ios::out | std::ios::binary);
    s.seekg(std::streamoff(at));
    const char byte = char(s.get());
    s.seekp(std::streamoff(at));
    s.put(char(byte ^ 1));
  }
  world().barrier();
}

}  // namespace

TEST_CASE("rows, columns and scattered rows land where they belong, and their hash holds") {
  // A disk gets pwrite(), a file in memory stores.
  const std::string memory = "/dev/shm";
  const bool in_memory = GENERATE(false, true) && std::filesystem::is_directory(memory);
  const Folder folder(in_memory ? std::filesystem::path(memory)
                                : std::filesystem::temp_directory_path());
  for (const auto& [n, m] :
       std::vector<std::pair<Index, Index>>{{0, 4}, {1, 1}, {5, 0}, {13, 7}, {64, 600}, {9, -1}})
    for (int kind = 0; kind < 6; ++kind) {
      if (kind == 4) continue;  // ranges of an output do not overlap
      INFO(n << " x " << m << " kind " << kind);
      const std::string file = folder / "out.h5";
      const auto mine = some_ranges(n, kind);
      const auto rows = items(mine);
      const Index width = m < 0 ? 1 : m;
      const io::Source<double> source = [&](Index position, Index count, double* out) {
        for (Index k = 0; k < count; ++k)
          for (Index j = 0; j < width; ++j)
            out[k * width + j] = entry(rows[std::size_t(position + k)], j);
      };
      std::vector<double> held(rows.size() * std::size_t(width));
      source(0, Index(rows.size()), held.data());
      std::vector<Index> backwards;  // row i goes to n - 1 - i
      for (const Index i : rows) backwards.push_back(n - 1 - i);
      {
        io::Output output(world(), file, true);
        output.write<double>("rows", n, m, mine, source,
                             {{"answer", Index(42)}, {"format", std::string("any")}});
        output.write_held("held", n, m, mine, std::as_const(held).data());
        output.write_scattered<double>("scattered", n, m, backwards, source);
        if (m >= 0) {
          output.group("sub");
          output.write_columns("columns", width, n, mine, source,
                               {{"format", std::string("band")}});
          output.attribute("shape", std::vector<Index>{n, m});
          output.group("");
        }
        output.commit(
            {{"version", std::string("1")}, {"ranks", Index(world().size())}, {"residual", 0.25}});
      }
      world().barrier();
      CHECK_ALL(folder.names() == std::vector<std::string>{"out.h5"});
      CHECK_ALL(agrees(file, "/rows", n, m, entry));
      CHECK_ALL(agrees(file, "/held", n, m, entry));
      CHECK_ALL(io::content_hash_holds(world(), {file, "/held"}));
      CHECK_ALL(agrees(file, "/scattered", n, m,
                       [n = n](Index i, Index j) { return entry(n - 1 - i, j); }));
      CHECK_ALL(io::content_hash_holds(world(), {file, "/rows"}));
      CHECK_ALL(io::content_hash_holds(world(), {file, "/scattered"}));
      CHECK_ALL(io::content_hash_holds(world(), {file, "/terrace"}));
      if (m >= 0) {
        CHECK_ALL(
            agrees(file, "/sub/columns", width, n, [](Index d, Index j) { return entry(j, d); }));
        CHECK_ALL(io::content_hash_holds(world(), {file, "/sub/columns"}));
        CHECK_ALL(io::content_hash_holds(world(), {file, "/sub"}));
      }
      const auto record = io::read_run_attributes(world(), {file, ""});
      CHECK_ALL(std::get<std::string>(record.at("version")) == "1" &&
                std::get<double>(record.at("residual")) == 0.25);
      const auto attributes = io::read_attributes(world(), {file, "/rows"});
      CHECK_ALL(std::get<Index>(attributes.at("answer")) == 42);
      if (n * width > 0) {
        flip(file, "/rows", n * width / 2);
        CHECK_ALL(!io::content_hash_holds(world(), {file, "/rows"}));
      }
    }
}

TEST_CASE("words and indices are written as they are") {
  const Folder folder;
  const std::string file = folder / "w.h5";
  const auto mine = some_ranges(11, 2);
  const auto rows = items(mine);
  io::Output output(world(), file, false);
  output.write<Word>("bits", 11, 3, mine, [&](Index p, Index count, Word* out) {
    for (Index k = 0; k < count * 3; ++k)
      out[k] = random_word(5, rows[std::size_t(p + k / 3)], k % 3);
  });
  output.write<Index>("pivots", 11, -1, mine, [&](Index p, Index count, Index* out) {
    for (Index k = 0; k < count; ++k) out[k] = -rows[std::size_t(p + k)];
  });
  output.commit({});
  std::vector<hsize_t> dims;
  const auto bits = seen(file, "/bits", dims), pivots = seen(file, "/pivots", dims);
  bool good = bits.size() == 33 && pivots.size() == 11;
  for (Index i = 0; good && i < 11; ++i) {
    good = good && Index(pivots[std::size_t(i)]) == -i;
    for (Index j = 0; j < 3; ++j)
      good = good && bits[std::size_t(i * 3 + j)] == random_word(5, i, j);
  }
  CHECK_ALL(good);
}

TEST_CASE("an output is complete or absent") {
  const Folder folder;
  const std::string file = folder / "a.h5";
  const auto mine = some_ranges(4, 0);
  const io::Source<double> ones = [](Index, Index count, double* out) {
    std::fill(out, out + count, 1.0);
  };
  {
    io::Output output(world(), file, false);
    output.write<double>("x", 4, -1, mine, ones);
  }
  CHECK_ALL(folder.names().empty());
  {
    io::Output output(world(), file, false);
    output.write<double>("x", 4, -1, mine, ones);
    output.commit({});
  }
  CHECK_ALL(
      contains(agreed_error(Exit::usage, [&] { io::Output(world(), file, false); }), "exists"));
  CHECK_ALL(agreed_error(Exit::usage, [&] { io::Output(world(), file, true); }) == "no error");
  CHECK_ALL(
      contains(agreed_error(Exit::usage, [&] { io::Output(world(), folder / "no/b.h5", false); }),
               "folder"));
  CHECK_ALL(contains(agreed_error(Exit::usage, [&] { io::Output(world(), folder / "", true); }),
                     "folder"));
  // A dataset larger than any disk is refused, and nothing stays.
  CHECK_ALL(contains(agreed_error(Exit::resources,
                                  [&] {
                                    io::Output output(world(), folder / "huge.h5", false);
                                    output.write<double>("x", Index(1) << 50, -1, {}, ones);
                                  }),
                     "no room on the disk"));
  CHECK_ALL(folder.names() == std::vector<std::string>{"a.h5"});
}

TEST_CASE("a group is added to a file that exists, and replaced only by force") {
  const Folder folder;
  const std::string file = folder / "a.h5";
  const auto mine = some_ranges(4, 0);
  const auto write = [&](const std::string& target, double value, bool force) {
    io::Output output(world(), target, force);
    output.write<double>("x", 4, -1, mine, [&](Index, Index count, double* out) {
      std::fill(out, out + count, value);
    });
    output.commit({{"command", target}});
  };
  write(file + ":/first/deep", 1, false);
  CHECK_ALL(io::members(world(), {file, ""}) == (std::vector<std::string>{"first", "terrace"}));
  write(file + ":/second", 2, false);
  CHECK_ALL(agrees(file, "/first/deep/x", 4, -1, [](Index, Index) { return 1.0; }));
  CHECK_ALL(agrees(file, "/second/x", 4, -1, [](Index, Index) { return 2.0; }));
  CHECK_ALL(
      contains(agreed_error(Exit::usage, [&] { write(file + ":/second", 3, false); }), "exists"));
  write(file + ":/second", 3, true);
  CHECK_ALL(agrees(file, "/second/x", 4, -1, [](Index, Index) { return 3.0; }));
  CHECK_ALL(agrees(file, "/first/deep/x", 4, -1, [](Index, Index) { return 1.0; }));
  const auto record = io::read_run_attributes(world(), {file, "/second"});
  CHECK_ALL(std::get<std::string>(record.at("group")) == "/second");
  CHECK_ALL(io::content_hash_holds(world(), {file, "/second/terrace"}));
  CHECK_ALL(folder.names() == std::vector<std::string>{"a.h5"});
}

TEST_CASE("what another program writes meanwhile stays, and the result too") {
  const Folder folder;
  const std::string text = folder / "a.csv", file = folder / "b.h5";
  const auto mine = some_ranges(4, 0);
  const auto write = [&](const std::string& target, bool force, bool meanwhile) {
    io::Output output(world(), target, force);
    output.write<double>("x", 4, -1, mine, [&](Index, Index count, double* out) {
      std::fill(out, out + count, 1.0);
    });
    world().barrier();
    if (meanwhile && world().rank() == 0) std::ofstream(file, std::ios::app) << "theirs";
    output.commit({});
  };
  const auto left = [&](const std::string& what, const std::string& where) {
    return agreed_error(Exit::resources, [&] {
             if (what == text) {
               io::PlainOutput output(world(), text, false, 0);
               if (world().rank() == 0) output.put("ours");
               if (world().rank() == 0) std::ofstream(text) << "theirs";
               return output.commit();
             }
             write(what, false, true);
           }).find("the result is in " + where) != std::string::npos;
  };
  CHECK_ALL(left(text, text + ".1"));
  CHECK_ALL(left(file, file + ".1"));
  write(file, true, false);
  CHECK_ALL(left(file + ":/more", file + ".2"));
  write(file + ".1:/more", false, true);  // another file was written to
  CHECK_ALL(folder.names() ==
            (std::vector<std::string>{"a.csv", "a.csv.1", "b.h5", "b.h5.1", "b.h5.2"}));
}

TEST_CASE("large datasets of a result begin at stripes") {
  const Folder folder;
  const Index rows = 100, columns = 200, stripe = 65536;
  const auto mine = some_ranges(rows, 0);
  for (const Index wanted : {stripe, Index(0)}) {
    if (wanted > 0) setenv("TERRACE_STRIPE_BYTES", std::to_string(wanted).c_str(), 1);
    const std::string file = folder / ("a" + std::to_string(wanted) + ".h5");
    io::Output output(world(), file, false);
    for (const char* name : {"x", "y"})
      output.write<double>(name, rows, columns, mine, [](Index, Index count, double* out) {
        std::fill(out, out + count * columns, 2.0);
      });
    output.commit({});
    unsetenv("TERRACE_STRIPE_BYTES");
    bool aligned = true;
    const hid_t f = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    for (const char* name : {"x", "y"}) {
      const hid_t d = H5Dopen2(f, name, H5P_DEFAULT);
      aligned = aligned && H5Dget_offset(d) % haddr_t(stripe) == 0;
      H5Dclose(d);
    }
    H5Fclose(f);
    CHECK_ALL(aligned == (wanted > 0));
    CHECK_ALL(agrees(file, "/y", rows, columns, [](Index, Index) { return 2.0; }));
    CHECK_ALL(io::content_hash_holds(world(), {file, "/x"}));
  }
}

TEST_CASE("room in memory is kept before there is a result, and given back without one") {
  constexpr Index large = Index(80) << 20;
  if (!io::lies_in_memory("/dev/shm") || io::free_bytes("/dev/shm") < 4 * large) {
    WARN("skipped: /dev/shm is no memory, or has no room");
    return;
  }
  const auto mine = some_ranges(4, 0);
  const auto write = [&](io::Output& output) {
    output.write<double>("x", 4, -1, mine,
                         [](Index, Index count, double* out) { std::fill(out, out + count, 1.0); });
    output.commit({});
  };
  const Folder folder("/dev/shm");
  const std::string file = folder / "a.h5";
  {
    io::Output output(world(), file, false);
    output.expect(1 << 20, true);
    CHECK_ALL(folder.names().empty());  // small
    output.expect(large, true);
    CHECK_ALL(folder.names().size() == 1);
    output.expect(large);
    CHECK_ALL(folder.names().size() == 1);
  }
  CHECK_ALL(folder.names().empty());
  {
    io::Output output(world(), file, false);
    output.expect(large, true);
    write(output);
  }
  CHECK_ALL(folder.names() == std::vector<std::string>{"a.h5"});
  CHECK_ALL(agrees(file, "/x", 4, -1, [](Index, Index) { return 1.0; }));
  {
    io::Output output(world(), file + ":/more", false);  // the file would be copied now
    output.expect(large, true);
    CHECK_ALL(folder.names() == std::vector<std::string>{"a.h5"});
  }
  if (const Folder disk; !io::lies_in_memory(disk / "")) {
    io::Output output(world(), disk / "a.h5", false);
    output.expect(large, true);
    CHECK_ALL(disk.names().empty());
  }
}
