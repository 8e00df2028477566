#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/foreign.hpp"
#include "io/input.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

namespace {

Range own_slice(const Control& control, Index extent) {
  const auto ranges = contiguous(extent, control.size()).ranges(control.rank());
  return ranges.empty() ? Range{extent, 0} : ranges[0];
}

/// A number found by rank 0 inside collectively(), on every rank.
Index share(const Control& control, Index value) {
  return control.reduce(control.rank() == 0 ? value : 0, Reduce::sum);
}

}  // namespace

void text_to_hdf5(Run& run, const std::string& from, io::Output& output) {
  const Control& control = run.control;
  std::unique_ptr<io::TextReader> reader;
  Index n = 0;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    reader = std::make_unique<io::TextReader>(from);
    n = reader->whole();
    if (n < 1) reader->fail("the order of the matrix is not positive", "the file begins with n");
    reader->require_room(1 + double(n) * double(n), 1, fmt::format("{0} x {0} numbers", n));
  });
  n = share(control, n);
  run.report["n"] = n;
  output.write<double>("A", n, n, streamed(control, n),
                       [&](Index position, Index count, double* out) {
                         for (Index i = 0; i < count * n; ++i) out[i] = reader->number();
                         std::string_view more;
                         if (position + count == n && reader->word(more))
                           reader->fail(fmt::format("more than {} x {} numbers", n, n),
                                        "the file holds n, then n x n numbers");
                       });
}

namespace {

struct Triplet {
  Index row, column;
  double value;
};

struct MarketHeader {
  Index coordinate = 0, pattern = 0, symmetric = 0, skew = 0, rows = 0, columns = 0, entries = 0;
};

MarketHeader read_market_header(io::TextReader& reader) {
  std::string line;
  reader.line(line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return char(std::tolower(c)); });
  const auto says = [&](const char* word) { return line.find(word) != std::string::npos; };
  if (line.rfind("%%matrixmarket", 0) != 0 || !says(" matrix"))
    reader.fail("no Matrix Market header", "the first line is '%%MatrixMarket matrix ...'");
  if (says("complex") || says("hermitian"))
    reader.fail("complex matrices are not taken", "store a real matrix");
  MarketHeader h;
  h.coordinate = says("coordinate");
  if (!h.coordinate && !says("array"))
    reader.fail("neither coordinate nor array", "the first line names one of them");
  h.pattern = says("pattern");
  h.skew = says("skew-symmetric");
  h.symmetric = says("symmetric");
  if (h.pattern && !h.coordinate) reader.fail("an array has no pattern", "use coordinate");
  for (;;) {  // comments, then the sizes
    if (!reader.line(line))
      reader.fail("the file ends before its sizes", "give rows, columns, entries");
    const auto first = line.find_first_not_of(" \t");
    if (first != std::string::npos && line[first] != '%') break;
  }
  Index rows = 0, columns = 0, entries = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  for (Index* const size : {&rows, &columns, &entries}) {
    if (size == &entries && !h.coordinate) break;
    while (at < end && (*at == ' ' || *at == '\t')) ++at;
    const auto [next, error] = std::from_chars(at, end, *size);
    const bool ends = next == end || *next == ' ' || *next == '\t' || *next == '\r';
    if (error != std::errc() || !ends || *size < 0)
      reader.fail(error == std::errc::result_out_of_range ? "impossible sizes: " + in_quotes(line)
                                                          : "no sizes: " + in_quotes(line),
                  h.coordinate ? "give rows, columns, entries" : "give rows, columns");
    at = next;
  }
  reader.require_extents(double(rows), double(columns));
  h.rows = rows;
  h.columns = columns;
  if (h.symmetric && rows != columns) reader.fail("symmetric but not square", "use general");
  const double half = h.skew ? 0.5 * (double(rows) - 1) : 0.5 * (double(rows) + 1);
  const double numbers = h.coordinate  ? double(entries)
                         : h.symmetric ? double(rows) * half
                                       : double(rows) * double(columns);
  const double least = !h.coordinate ? 1 : h.pattern ? 3 : 5;  // "1", "1 1" and "1 1 1"
  reader.require_room(numbers, least, fmt::format("{:.17g} entries", numbers));
  h.entries = h.coordinate ? entries : h.symmetric ? rows * (rows + 1) / 2 : rows * columns;
  if (h.skew && !h.coordinate) h.entries = rows * (rows - 1) / 2;
  return h;
}

/// Rank 0 reads the entries in pieces and tells them to all; keep(triplet) on every rank. Symmetric
/// entries come twice.
template <class F>
void each_market_entry(const Control& control, io::TextReader* reader, const MarketHeader& h,
                       const F& keep) {
  constexpr Index piece = Index(1) << 18;
  std::vector<Triplet> entries;
  Index row = h.skew ? 1 : 0, column = 0;  // of the array form
  for (Index done = 0; done < h.entries; done += piece) {
    const Index count = std::min(piece, h.entries - done);
    collectively(control, [&] {
      entries.resize(std::size_t(count));
      if (control.rank() != 0) return;
      for (Triplet& t : entries) {
        if (h.coordinate) {
          t.row = reader->whole() - 1;
          t.column = reader->whole() - 1;
          if (t.row < 0 || t.row >= h.rows || t.column < 0 || t.column >= h.columns)
            reader->fail(
                fmt::format("entry ({}, {}) lies outside the matrix", t.row + 1, t.column + 1),
                fmt::format("indices go from 1 to {} and {}", h.rows, h.columns));
          t.value = h.pattern ? 1.0 : reader->number();
        } else {
          t = {row, column, reader->number()};
          if (++row == h.rows) row = h.symmetric ? ++column + h.skew : (++column, 0);
        }
      }
      std::string_view more;
      if (done + count == h.entries && reader->word(more))
        reader->fail(fmt::format("more than {} entries", h.entries), "correct the sizes");
    });
    control.broadcast(entries.data(), count * Index(sizeof(Triplet)), 0);
    for (const Triplet& t : entries) {
      keep(t);
      if (h.symmetric && t.row != t.column) keep({t.column, t.row, h.skew ? -t.value : t.value});
    }
  }
}

/// This rank's entries, sorted, duplicates summed, as rows of a CSR group A.
void write_csr(Run& run, io::Output& output, const MarketHeader& h, const Range& rows,
               std::vector<Triplet>& mine) {
  const Control& control = run.control;
  std::stable_sort(mine.begin(), mine.end(), [](const Triplet& a, const Triplet& b) {
    return a.row != b.row ? a.row < b.row : a.column < b.column;
  });
  std::size_t kept = 0;
  for (std::size_t k = 0; k < mine.size(); ++k) {
    if (kept > 0 && mine[kept - 1].row == mine[k].row && mine[kept - 1].column == mine[k].column)
      mine[kept - 1].value += mine[k].value;
    else
      mine[kept++] = mine[k];
  }
  mine.resize(kept);
  const auto counts = control.gather_all(Index(kept));
  const Index before = std::accumulate(counts.begin(), counts.begin() + control.rank(), Index(0));
  const Index nonzeros = std::accumulate(counts.begin(), counts.end(), Index(0));
  std::vector<Index> pointers = collectively(
      control, [&] { return std::vector<Index>(std::size_t(rows.count) + 1, before); });
  for (const Triplet& t : mine) ++pointers[std::size_t(t.row - rows.first) + 1];
  for (std::size_t i = 1; i < pointers.size(); ++i) pointers[i] += pointers[i - 1] - before;
  const bool last = rows.end() == h.rows && (rows.count > 0 || control.rank() == 0);
  const std::vector<Range> entries{{before, Index(kept)}};
  const std::vector<Range> pointer_rows{{rows.first, rows.count + (last ? 1 : 0)}};
  output.group("A");
  output.write<Index>(
      "indptr", h.rows + 1, -1, pointer_rows,
      [&](Index p, Index count, Index* out) { std::copy_n(pointers.begin() + p, count, out); });
  output.write<Index>("indices", nonzeros, -1, entries, [&](Index p, Index count, Index* out) {
    for (Index k = 0; k < count; ++k) out[k] = mine[std::size_t(p + k)].column;
  });
  output.write<double>("data", nonzeros, -1, entries, [&](Index p, Index count, double* out) {
    for (Index k = 0; k < count; ++k) out[k] = mine[std::size_t(p + k)].value;
  });
  output.attribute("shape", std::vector<Index>{h.rows, h.columns});
  output.attribute("encoding-type", std::string("csr_matrix"));
  output.attribute("encoding-version", std::string("0.1.0"));
  output.group("");
  run.report["nonzeros"] = nonzeros;
}

}  // namespace

void matrix_market_to_hdf5(Run& run, const std::string& from, io::Output& output) {
  const Control& control = run.control;
  std::unique_ptr<io::TextReader> reader;
  MarketHeader h;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    reader = std::make_unique<io::TextReader>(from);
    h = read_market_header(*reader);
  });
  control.broadcast(&h, sizeof h, 0);
  run.report["n"] = h.rows;
  run.report["columns"] = h.columns;
  const Range rows = own_slice(control, h.rows);
  if (h.coordinate) {
    const Index entries = h.entries / control.size() * (h.symmetric ? 2 : 1);
    require_memory(control, (rows.count + 1) * 8 + entries * Index(sizeof(Triplet)), 0);
    std::vector<Triplet> mine;
    each_market_entry(control, reader.get(), h, [&](const Triplet& t) {
      if (t.row >= rows.first && t.row < rows.end()) mine.push_back(t);
    });
    write_csr(run, output, h, rows, mine);
    return;
  }
  require_memory(control, rows.count * h.columns * 8, 0);
  std::vector<double> mine = collectively(
      control, [&] { return std::vector<double>(std::size_t(rows.count * h.columns)); });
  each_market_entry(control, reader.get(), h, [&](const Triplet& t) {
    if (t.row >= rows.first && t.row < rows.end())
      mine[std::size_t((t.row - rows.first) * h.columns + t.column)] = t.value;
  });
  output.write<double>("A", h.rows, h.columns, {&rows, 1}, [&](Index p, Index count, double* out) {
    std::copy_n(mine.begin() + p * h.columns, count * h.columns, out);
  });
}

namespace {

/// Packed words of one row; throws naming a value that is neither 0 nor 1.
void pack_row(const double* row, Index columns, Index i, const std::string& from, Word* out) {
  std::fill(out, out + ceil_div(columns, 64), Word(0));
  for (Index j = 0; j < columns; ++j) {
    if (row[j] != 0 && row[j] != 1)
      throw Error(Exit::input,
                  fmt::format("a value other than 0 and 1: {}; {} row {}, column {}; a bit "
                              "matrix holds 0 and 1 only",
                              row[j], from, i, j));
    out[j / 64] |= Word(row[j] != 0) << (j % 64);
  }
}

/// As a text number that is not finite is refused.
void refuse_not_finite(const double* rows, Index count, Index columns, Index first,
                       const std::string& from) {
  const double* const end = rows + count * columns;
  const double* const wrong =
      std::find_if(rows, end, [](double value) { return !std::isfinite(value); });
  if (wrong == end) return;
  const Index at = wrong - rows;
  throw Error(Exit::input, fmt::format("{} in the input; {} row {}, column {}; only finite numbers "
                                       "can be worked on",
                                       std::isnan(*wrong) ? "NaN" : "Inf", from,
                                       first + at / columns, at % columns));
}

}  // namespace

void numpy_to_hdf5(Run& run, const std::string& from, io::Output& output) {
  const Control& control = run.control;
  const io::NpyHeader h = collectively(control, [&] { return io::read_npy_header(from); });
  const bool vector = h.shape.size() == 1, bits = h.bytes == 1 && h.kind != 'i';
  const Index rows = h.shape[0], columns = vector ? 1 : h.shape[1];
  run.report["n"] = rows;
  run.report["columns"] = columns;
  const Range slice = own_slice(control, rows);
  // Element (i, j) for rows of this rank; column-major files are read column by column.
  const auto fill = [&](Index position, Index count, double* out) {
    const Index first = slice.first + position;
    if (!h.fortran || vector) {
      io::read_npy(from, h, first * columns, count * columns, out);
    } else {
      std::vector<double> column(static_cast<std::size_t>(count));
      for (Index j = 0; j < columns; ++j) {
        io::read_npy(from, h, j * rows + first, count, column.data());
        for (Index i = 0; i < count; ++i) out[i * columns + j] = column[std::size_t(i)];
      }
    }
    refuse_not_finite(out, count, columns, first, from);
  };
  if (!bits) {
    output.write<double>(vector ? "b" : "A", rows, vector ? -1 : columns, {&slice, 1}, fill);
    return;
  }
  const Index words = ceil_div(columns, 64);
  std::vector<double> part;
  output.write<Word>(vector ? "b" : "A", rows, words, {&slice, 1},
                     [&](Index position, Index count, Word* out) {
                       constexpr Index block = 64;
                       for (Index i = 0; i < count; i += block) {
                         const Index now = std::min(block, count - i);
                         part.resize(std::size_t(now * columns));
                         fill(position + i, now, part.data());
                         for (Index r = 0; r < now; ++r)
                           pack_row(part.data() + r * columns, columns,
                                    slice.first + position + i + r, from, out + (i + r) * words);
                       }
                     },
                     {{"columns", columns}, {"format", std::string("bits")}});
}

}  // namespace terrace
