// Every storage form that h5py writes, through every reader, against the bytes that h5py reads.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "io/input.hpp"
#include "io/output.hpp"
#include "io/rows.hpp"
#include "kernels/base/error.hpp"
#include "tests/io/forms.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

// Several portions of each read; told before the first.
const int small_pieces = setenv("TERRACE_IO_PIECE_BYTES", "2048", 1);

struct Form {
  std::string kind, file, path, refused;
  Index rows = 0, columns = 0, offset = 0, length = 0;
};

std::vector<Form> forms_in(const std::string& list) {
  std::vector<Form> forms;
  std::ifstream file(list);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Form f;
    words >> f.kind >> f.file >> f.path >> f.rows >> f.columns >> f.offset >> f.length >> f.refused;
    forms.push_back(f);
  }
  return forms;
}

/// Whether the items of `ranges` come as they stand in `truth`, `width` numbers each.
template <class T, class Input>
bool same_bytes(const Input& input, const std::vector<Range>& ranges, const char* truth,
                Index width) {
  std::vector<Index> items;
  for (const Range& r : ranges)
    for (Index i = 0; i < r.count; ++i) items.push_back(r.first + i);
  bool good = true;
  Index next = 0;
  input.read(world(), ranges, [&](Index position, Index count, const T* data) {
    good = good && position == next;
    for (Index k = 0; k < count; ++k)
      good = good &&
             std::memcmp(data + k * width, truth + items[std::size_t(position + k)] * width * 8,
                         std::size_t(width) * 8) == 0;
    next += count;
  });
  return good && next == Index(items.size());
}

/// Unordered ranges, slices, cards of 3, all everywhere, and slices again: readings after the first
/// meet what HDF5 kept of it.
constexpr int kinds_of_ranges[] = {5, 0, 2, 4, 0};

bool comes_as_it_is(const Form& form, const io::Location& at, const char* truth) {
  bool good = true;
  if (form.kind == "csr") {
    const auto a = io::open_sparse(world(), at);
    const auto* pointers = reinterpret_cast<const Index*>(truth);
    const auto* indices = pointers + form.rows + 1;
    const auto* values = reinterpret_cast<const double*>(indices + a.nonzeros());
    for (int pass = 0; pass < 2; ++pass) {
      const auto mine = some_ranges(form.rows, pass == 0 ? 0 : 4);
      const Range rows = mine.empty() ? Range{form.rows, 0} : mine[0];
      io::SparseRows own;
      const auto got = a.row_pointers(world(), rows);
      a.read(world(), rows, own);
      good = good && std::equal(got.begin(), got.end(), pointers + rows.first) &&
             std::equal(own.columns.begin(), own.columns.end(), indices + got.front()) &&
             std::equal(own.values.begin(), own.values.end(), values + got.front());
    }
    return good;
  }
  const auto all = [&]<class T>(const auto& input, Index extent, Index width, const T*) {
    for (const int kind : kinds_of_ranges)
      good = good && everywhere(same_bytes<T>(input, some_ranges(extent, kind), truth, width));
  };
  constexpr const double* reals = nullptr;
  constexpr const Word* words = nullptr;
  if (form.kind == "dense") {
    const auto a = io::open_dense(world(), at);
    good = a.rows() == form.rows && a.columns() == form.columns;
    if (good) all(a, form.rows, form.columns, reals);
  } else if (form.kind == "band") {
    const auto a = io::open_band(world(), at);
    good = a.n() == form.rows && a.half_bandwidth() == form.columns;
    if (good) all(a, form.rows, form.columns + 1, reals);
  } else {
    const auto a = io::open_bits(world(), at);
    good = a.rows() == form.rows && a.columns() == form.columns;
    if (good) all(a, form.rows, a.words(), words);
  }
  return good;
}

}  // namespace

TEST_CASE("a fingerprint notices a change at the beginning, in the middle and at the end") {
  const Folder folder;
  const std::string file = folder / "f.h5";
  constexpr Index n = Index(1) << 19;  // of which three samples are taken
  for (const Index width : {1, 3}) {
    const auto seen = [&](Index changed, bool whole) {
      const std::vector<Range> own = contiguous(n, world().size()).ranges(world().rank());
      {
        io::Output output(world(), file, true);
        output.write<Index>("A", n, width == 1 ? -1 : width, own,
                            [&](Index position, Index count, Index* out) {
                              for (Index k = 0; k < count * width; ++k) {
                                const Index i = own[0].first + position + k / width;
                                out[k] = i * width + k % width + (i == changed ? 1 : 0);
                              }
                            });
        output.commit({});
      }
      world().barrier();
      return io::fingerprint(world(), {file, "/A"}, whole);
    };
    const Word plain = seen(-1, false), all = seen(-1, true);
    CHECK_ALL(plain == seen(-1, false));
    for (const Index at : {Index(0), n / 2, n - 1}) CHECK_ALL(plain != seen(at, false));
    for (const Index at : {Index(0), n / 3, n - 1}) CHECK_ALL(all != seen(at, true));
  }
}

TEST_CASE("every storage form comes in as h5py reads it, by all readers and in every reading") {
  const Folder folder;
  REQUIRE(small_pieces == 0);
  Index wrote = 0;
  if (world().rank() == 0) {
    const std::string command = std::string(TERRACE_FORMS) + " '" + (folder / "") + "'";
    wrote = std::system(command.c_str());
  }
  REQUIRE_ALL(wrote == 0);
  const auto forms = forms_in(folder / "list");
  std::ifstream file(folder / "expected", std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  CHECK_ALL(forms.size() > 500);
  Index number = 0;
  for (const Form& form : forms) {
    if (number++ % (world().size() > 1 ? 2 : 1) != 0) continue;  // half is enough where ranks wait
    INFO(form.file << ":" << form.path << ", a " << form.kind << " input");
    bool good = false;
    const std::string error = agreed_error(Exit::input, [&] {
      // A copy: numbers stand at multiples of 8.
      const std::vector<Word> truth = [&] {
        std::vector<Word> words(std::size_t(form.length / 8));
        std::memcpy(words.data(), expected.data() + form.offset, std::size_t(form.length));
        return words;
      }();
      good = comes_as_it_is(form, {folder / form.file, form.path},
                            reinterpret_cast<const char*>(truth.data()));
    });
    if (form.refused.empty()) {
      INFO(error);
      CHECK_ALL(good);
    } else {  // a filter that only h5py has
      CHECK_ALL(contains(error, "filter 'lzf'"));
    }
  }
}
