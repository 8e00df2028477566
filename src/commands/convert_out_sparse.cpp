// HDF5 to files of entries: Matrix Market, SMS and alist.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_lines.hpp"

namespace terrace {

namespace {

/// By rows, in the form of Matrix Market, or of SMS but for its last line.
void sparse_to_lines(const Control& control, const io::SparseInput& a, io::PlainOutput& out,
                     bool sms) {
  if (a.rows() > Index(1) << 36)
    no_form(a.location(), fmt::format("{} rows are more than any machine can hold", a.rows()),
            "correct the shape");
  io::SparseRows part;
  const Index piece = a.by_rows() ? Index(1) << 16 : std::max<Index>(1, a.rows());
  Index nonzeros = a.nonzeros();
  if (a.is_triangle() && !sms) {  // the diagonal is stored once
    const Range all{0, control.rank() == 0 ? a.rows() : 0};
    nonzeros = control.reduce(a.row_pointers(control, all).back(), Reduce::max);
  }
  first_line(control, out,
             sms ? fmt::format("{} {} M\n", a.rows(), a.columns())
                 : fmt::format("%%MatrixMarket matrix coordinate real general\n{} {} {}\n",
                               a.rows(), a.columns(), nonzeros));
  for (Index first = 0; first < a.rows(); first += piece) {
    const Index count = control.rank() == 0 ? std::min(piece, a.rows() - first) : 0;
    a.read(control, {first, count}, part);
    collectively(control, [&] {
      put_lines(out, count, [&](Index i, std::string& text) {
        for (Index k = part.start[std::size_t(i)]; k < part.start[std::size_t(i) + 1]; ++k)
          fmt::format_to(std::back_inserter(text), "{} {} {:.17g}\n", first + i + 1,
                         part.columns[std::size_t(k)] + 1, part.values[std::size_t(k)]);
      });
    });
  }
}

void band_to_market(const Control& control, const io::BandInput& a, io::PlainOutput& out) {
  const Index n = a.n(), m = std::min(a.half_bandwidth(), std::max<Index>(0, n - 1));
  const Index height = a.half_bandwidth() + 1;
  first_line(control, out,
             fmt::format("%%MatrixMarket matrix coordinate real symmetric\n{} {} {}\n", n, n,
                         n * (m + 1) - m * (m + 1) / 2));
  a.read(control, streamed(control, n), [&](Index position, Index count, const double* data) {
    put_lines(out, count, [&](Index c, std::string& text) {
      const Index j = position + c;
      for (Index i = j; i <= std::min(n - 1, j + m); ++i)
        fmt::format_to(std::back_inserter(text), "{} {} {:.17g}\n", i + 1, j + 1,
                       data[c * height + i - j]);
    });
  });
}

/// The array form is column-major: the rows are read once for each block of columns.
void dense_to_market(const Control& control, const io::DenseInput& a, io::PlainOutput& out) {
  const Index rows = a.rows(), columns = a.columns();
  first_line(control, out,
             fmt::format("%%MatrixMarket matrix array real general\n{} {}\n", rows, columns));
  const Index block = std::clamp<Index>((Index(16) << 20) / std::max<Index>(1, rows), 1,
                                        std::max<Index>(1, columns));
  std::vector<double> part;
  for (Index first = 0; first < columns; first += block) {
    const Index count = std::min(block, columns - first);
    collectively(control, [&] {
      if (control.rank() == 0) part.resize(std::size_t(rows * count));
    });
    a.read(control, streamed(control, rows), [&](Index position, Index got, const double* data) {
      for (Index i = 0; i < got; ++i)
        for (Index j = 0; j < count; ++j)
          part[std::size_t(j * rows + position + i)] = data[i * columns + first + j];
    });
    collectively(control, [&] {
      if (control.rank() != 0) return;
      put_lines(out, rows * count, [&](Index i, std::string& text) {
        fmt::format_to(std::back_inserter(text), "{:.17g}\n", part[std::size_t(i)]);
      });
    });
  }
}

}  // namespace

namespace {

/// visit(j) for the ones of a row.
template <class F>
void ones_of(const io::BitInput& a, const Word* row, const F& visit) {
  for (Index w = 0; w < a.words(); ++w)
    for (Word ones = row[w]; ones != 0; ones &= ones - 1) visit(w * 64 + std::countr_zero(ones));
}

Index count_ones(const Control& control, const io::BitInput& a) {
  Index count = 0;
  a.read(control, streamed(control, a.rows()), [&](Index, Index rows, const Word* data) {
    for (Index w = 0; w < rows * a.words(); ++w) count += std::popcount(data[w]);
  });
  return control.reduce(count, Reduce::sum);
}

/// A line for each one, by rows.
template <class F>
void each_one(const Control& control, const io::BitInput& a, io::PlainOutput& out, const F& line) {
  a.read(control, streamed(control, a.rows()), [&](Index position, Index count, const Word* data) {
    put_lines(out, count, [&](Index i, std::string& text) {
      ones_of(a, data + i * a.words(), [&](Index j) { line(position + i, j, text); });
    });
  });
}

}  // namespace

void hdf5_to_matrix_market(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::Kind kind = io::kind_of(control, from);
  if (kind == io::Kind::bits) {
    const io::BitInput a = io::open_bits(control, from);
    const Index ones = count_ones(control, a);
    io::PlainOutput out(control, to, run.options.force, 4 * double(ones));
    first_line(control, out,
               fmt::format("%%MatrixMarket matrix coordinate pattern general\n{} {} {}\n", a.rows(),
                           a.columns(), ones));
    each_one(control, a, out, [](Index i, Index j, std::string& text) {
      fmt::format_to(std::back_inserter(text), "{} {}\n", i + 1, j + 1);
    });
    return out.commit();
  }
  const auto write = [&](const auto& a, double numbers, const auto& put) {
    io::PlainOutput out(control, to, run.options.force, 2 * numbers);
    put(control, a, out);
    out.commit();
  };
  if (kind == io::Kind::sparse) {
    const io::SparseInput a = io::open_sparse(control, from);
    write(a, 3 * double(a.nonzeros()),
          [](const Control& c, const io::SparseInput& matrix, io::PlainOutput& out) {
            sparse_to_lines(c, matrix, out, false);
          });
  }
  if (kind == io::Kind::band) {
    const io::BandInput a = io::open_band(control, from);
    write(a, 3 * double(a.n()), band_to_market);
  }
  if (kind == io::Kind::dense) {
    const io::DenseInput a = io::open_dense(control, from);
    write(a, double(a.rows()) * double(a.columns()), dense_to_market);
  }
}

void hdf5_to_sms(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::Kind kind = io::kind_of(control, from);
  if (kind == io::Kind::sparse) {
    const io::SparseInput a = io::open_sparse(control, from);
    io::PlainOutput out(control, to, run.options.force, 6 * double(a.nonzeros()));
    sparse_to_lines(control, a, out, true);
    first_line(control, out, "0 0 0\n");
    return out.commit();
  }
  if (kind != io::Kind::bits)
    no_form(from, "only sparse and bit matrices have an .sms form", "convert it to .mtx or .npy");
  const io::BitInput a = io::open_bits(control, from);
  io::PlainOutput out(control, to, run.options.force, 0);
  first_line(control, out, fmt::format("{} {} M\n", a.rows(), a.columns()));
  each_one(control, a, out, [](Index i, Index j, std::string& text) {
    fmt::format_to(std::back_inserter(text), "{} {} 1\n", i + 1, j + 1);
  });
  first_line(control, out, "0 0 0\n");
  out.commit();
}

void hdf5_to_alist(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::BitInput a = io::open_bits(control, from);  // sparse groups too: odd values
  std::vector<std::vector<Index>> of_column, of_row;    // rank 0: as many numbers as ones
  collectively(control, [&] {
    if (control.rank() != 0) return;
    of_column.resize(std::size_t(a.columns()));
    of_row.resize(std::size_t(a.rows()));
  });
  a.read(control, streamed(control, a.rows()), [&](Index position, Index count, const Word* data) {
    for (Index i = 0; i < count; ++i)
      ones_of(a, data + i * a.words(), [&](Index j) {
        of_column[std::size_t(j)].push_back(position + i + 1);
        of_row[std::size_t(position + i)].push_back(j + 1);
      });
  });
  io::PlainOutput out(control, to, run.options.force, 2 * double(a.rows() + a.columns()));
  collectively(control, [&] {
    if (control.rank() != 0) return;
    const auto most = [](const auto& lists) {
      std::size_t size = 0;
      for (const auto& list : lists) size = std::max(size, list.size());
      return size;
    };
    const std::size_t heights[] = {most(of_column), most(of_row)};
    out.put(fmt::format("{} {}\n{} {}\n", a.columns(), a.rows(), heights[0], heights[1]));
    for (const auto* lists : {&of_column, &of_row}) {
      std::string line;
      for (const auto& list : *lists) line += fmt::format("{} ", list.size());
      if (!line.empty()) line.pop_back();
      out.put(line + "\n");
    }
    int which = 0;
    for (const auto* lists : {&of_column, &of_row}) {
      for (const auto& list : *lists) {  // zeros fill the lines, as MacKay's programs want
        std::string line;
        for (std::size_t k = 0; k < heights[which]; ++k)
          line += fmt::format("{}{}", k > 0 ? " " : "", k < list.size() ? list[k] : 0);
        out.put(line + "\n");
      }
      ++which;
    }
  });
  out.commit();
}

}  // namespace terrace
