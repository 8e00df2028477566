// The program's files from the library: what is written by rows dealt one way is read by another.
#include <terrace/hdf5.hpp>

#include "file_name.hpp"
#include "library.hpp"

using namespace library;
namespace hdf5 = terrace::hdf5;

namespace {

terrace::Code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  }
  return terrace::Code(0);
}

}  // namespace

TEST_CASE("matrices are saved and read in the program's forms") {
  Context context = group();
  const FileName name("library_hdf5");
  const Index n = 61, m = 7, columns = 100, words = 2;
  const Rows rows = share(n, 0), other = Rows::cyclic(4);
  const std::vector<Index> list = held(n, rows), others = held(n, other);
  const std::vector<double> a = random_matrix(n, n, 1), b = random_matrix(n, 1, 2);
  const std::vector<Word> bits = random_bits(n, columns, 3);
  const Band band = random_band(n, m, 4);
  const std::vector<double> own = part(a, n, others, n + 2, 1.5), right = part(b, 1, list, 1, 0.0);
  std::vector<Word> dirty = bits;
  for (Index i = 0; i < n; ++i) dirty[std::size_t(i * words + 1)] |= Word(1) << 63;
  const std::vector<Word> own_bits = part(dirty, words, others, words, Word(0));
  std::vector<double> lower(std::size_t((m + 1) * rows.count));
  for (Index d = 0; d <= m; ++d)
    std::copy_n(band.lower.begin() + d * n + rows.first, rows.count,
                lower.begin() + d * rows.count);
  std::vector<Index> start{7}, column(7, 0);  // pointers need not begin at zero
  std::vector<double> value;
  for (const Index i : list) {
    for (Index j = 0; j < n; ++j)
      if (const double v = band.dense[std::size_t(i * n + j)]; v != 0)
        column.push_back(j), value.push_back(v);
    start.push_back(Index(column.size()));
  }
  column.erase(column.begin(), column.begin() + 7);

  {
    hdf5::Output unfinished(context, *name);
    unfinished.write("A", n, {own.data(), other, n, n + 2});
  }
  CHECK(code_of([&] { hdf5::look(context, name.at("/A")); }) == Code::input);  // nothing is left
  hdf5::Output file(context, *name);
  file.write("A", n, {own.data(), other, n, n + 2});
  file.write("b", n, Local<const double>{right.data(), rows, 1}, true);
  file.write("bits", n, Local<const Word>{own_bits.data(), other, columns, words});
  file.write_band("band", n, {lower.data(), m, rows});
  file.write_csr("csr", n, rows, start.data(), column.data(), value.data());
  file.commit();
  CHECK(code_of([&] { hdf5::Output(context, *name); }) == Code::usage);  // there already

  const hdf5::Shape dense = hdf5::look(context, name.at("/A"));
  CHECK((dense.kind == hdf5::Kind::dense && dense.rows == n && dense.columns == n));
  CHECK(hdf5::look(context, name.at("/b")).is_vector);
  std::vector<double> back(std::size_t(Index(list.size()) * (n + 1)), 2.5);
  hdf5::read(context, name.at("/A"), Local<double>{back.data(), rows, n, n + 1});
  CHECK(back == part(a, n, list, n + 1, 2.5));
  CHECK(code_of([&] {
          hdf5::read(context, name.at("/A"), Local<double>{back.data(), rows, n - 1, n + 1});
        }) == Code::usage);
  std::vector<double> vector(others.size());
  hdf5::read(context, name.at("/b"), Local<double>{vector.data(), other, 1});
  CHECK(vector == part(b, 1, others, 1, 0.0));

  const hdf5::Shape packed = hdf5::look(context, name.at("/bits"));
  CHECK((packed.kind == hdf5::Kind::bits && packed.columns == columns));
  std::vector<Word> bits_back(list.size() * words);
  hdf5::read(context, name.at("/bits"), Local<Word>{bits_back.data(), rows, columns});
  CHECK(bits_back == part(bits, words, list, words, Word(0)));

  const hdf5::Shape banded = hdf5::look(context, name.at("/band"));
  CHECK((banded.kind == hdf5::Kind::band && banded.half_bandwidth == m));
  std::vector<double> ab(std::size_t(rows.count * (m + 1)), 3.0);
  hdf5::read_band(context, name.at("/band"), rows, ab.data());
  bool same = true;
  for (Index j = 0; j < rows.count; ++j)
    for (Index d = 0; d <= m; ++d) {
      const Index i = rows.first + j + d;
      same = same && ab[std::size_t(j * (m + 1) + d)] ==
                         (i < n ? band.dense[std::size_t(i * n + rows.first + j)] : 0.0);
    }
  CHECK(same);

  const hdf5::Shape sparse = hdf5::look(context, name.at("/csr"));
  CHECK((sparse.kind == hdf5::Kind::csr && sparse.nonzeros == n * (2 * m + 1) - m * (m + 1)));
  const hdf5::Csr csr = hdf5::read_csr(context, name.at("/csr"), rows);
  CHECK(csr.column == column);
  CHECK(csr.value == value);
}
