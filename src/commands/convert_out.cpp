#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "distrib/agree.hpp"
#include "io/foreign.hpp"
#include "io/input.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"

namespace terrace {

namespace {

/// Lines made by all threads, put in order: line(i, text) appends row i of `count` rows.
template <class F>
void put_lines(io::PlainOutput& out, Index count, const F& line) {
  constexpr Index block = 64;
  std::vector<std::string> texts(static_cast<std::size_t>(ceil_div(count, block)));
  parallel_for(Index(texts.size()), [&](Index b) {
    for (Index i = b * block; i < std::min(count, (b + 1) * block); ++i)
      line(i, texts[std::size_t(b)]);
  });
  for (const std::string& text : texts) out.put(text);
}

void put_bytes(io::PlainOutput& out, const void* data, Index bytes) {
  out.put({static_cast<const char*>(data), std::size_t(bytes)});
}

[[noreturn]] void no_form(const io::Location& from, const std::string& what,
                          const std::string& todo) {
  fail_together(Exit::input, what + "; " + io::to_string(from) + "; " + todo);
}

void first_line(const Control& control, io::PlainOutput& out, const std::string& text) {
  collectively(control, [&] {
    if (control.rank() == 0) out.put(text);
  });
}

}  // namespace

namespace {

/// round(v, 10) as Python has it: the number next to v's exact value in ten places. From 2^53 on
/// numbers are whole.
double rounded_to_ten_places(double v) {
  if (!(std::fabs(v) < 0x1p53)) return v;
  std::array<char, 64> digits{};
  const auto end = fmt::format_to_n(digits.data(), digits.size(), "{:.10f}", v).out;
  double rounded = 0;
  std::from_chars(digits.data(), end, rounded);
  return rounded;
}

}  // namespace

void hdf5_to_text(Run& run, const io::Location& from, const std::string& to, TextStyle style) {
  const Control& control = run.control;
  const io::DenseInput a = io::open_dense(control, from);
  const Index n = a.rows();
  if (a.columns() != n)
    no_form(a.location(),
            fmt::format("text holds square matrices, this one is {} x {}", n, a.columns()),
            "convert it to .npy or .mtx");
  const bool rounded = style == TextStyle::seed_python;
  const bool seed = rounded || style == TextStyle::seed_cpp;
  const char separator =
      style == TextStyle::plain_tabs || style == TextStyle::seed_cpp ? '\t' : ' ';
  io::PlainOutput out(control, to, run.options.force, 13.0 * double(n) * double(n));
  if (!seed) first_line(control, out, fmt::format("{}\n", n));
  a.read(control, streamed(control, n), [&](Index, Index count, const double* data) {
    put_lines(out, count, [&](Index i, std::string& text) {
      for (Index j = 0; j < n; ++j) {
        const double v = data[i * n + j];
        fmt::format_to(std::back_inserter(text), "{:.6e}", rounded ? rounded_to_ten_places(v) : v);
        if (seed || j + 1 < n) text += separator;
      }
      text += '\n';
    });
  });
  out.commit();
}

namespace {

void csr_to_market(const Control& control, const io::CsrInput& a, io::PlainOutput& out) {
  if (a.rows() > Index(1) << 36)
    no_form(a.location(), fmt::format("{} rows are more than any machine holds", a.rows()),
            "correct the shape");
  first_line(control, out,
             fmt::format("%%MatrixMarket matrix coordinate real general\n{} {} {}\n", a.rows(),
                         a.columns(), a.nonzeros()));
  constexpr Index piece = Index(1) << 16;
  LargeVector<Index> columns;
  LargeVector<double> values;
  for (Index first = 0; first < a.rows(); first += piece) {
    const Index count = control.rank() == 0 ? std::min(piece, a.rows() - first) : 0;
    const Range rows{first, count};
    const auto pointers = a.row_pointers(control, rows);
    a.entries(control, rows, columns, values);
    collectively(control, [&] {
      put_lines(out, count, [&](Index i, std::string& text) {
        for (Index k = pointers[std::size_t(i)]; k < pointers[std::size_t(i) + 1]; ++k) {
          const auto at = std::size_t(k - pointers[0]);
          fmt::format_to(std::back_inserter(text), "{} {} {:.17g}\n", first + i + 1,
                         columns[at] + 1, values[at]);
        }
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

void hdf5_to_matrix_market(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::Kind kind = io::kind_of(control, from);
  if (kind == io::Kind::bits)
    no_form(from, "a bit matrix has no Matrix Market form", "convert it to .npy");
  const auto write = [&](const auto& a, double numbers, const auto& put) {
    io::PlainOutput out(control, to, run.options.force, 2 * numbers);
    put(control, a, out);
    out.commit();
  };
  if (kind == io::Kind::csr) {
    const io::CsrInput a = io::open_csr(control, from);
    write(a, 3 * double(a.nonzeros()), csr_to_market);
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

void hdf5_to_numpy(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::Kind kind = io::kind_of(control, from);
  if (kind == io::Kind::csr) no_form(from, "a CSR matrix has no .npy form", "convert it to .mtx");
  if (kind == io::Kind::band)
    no_form(from, "a band matrix has no .npy form", "convert it to .mtx, or read it with h5py");
  if (kind == io::Kind::dense) {
    const io::DenseInput a = io::open_dense(control, from);
    io::PlainOutput out(control, to, run.options.force, 8 * double(a.rows()) * double(a.columns()));
    auto shape = std::vector<Index>{a.rows()};
    if (!a.is_vector()) shape.push_back(a.columns());
    first_line(control, out, io::npy_header("<f8", shape));
    a.read(control, streamed(control, a.rows()), [&](Index, Index count, const double* data) {
      put_bytes(out, data, count * a.columns() * 8);
    });
    out.commit();
    return;
  }
  const io::BitInput a = io::open_bits(control, from);
  io::PlainOutput out(control, to, run.options.force, double(a.rows()) * double(a.columns()));
  first_line(control, out, io::npy_header("|u1", {a.rows(), a.columns()}));
  a.read(control, streamed(control, a.rows()), [&](Index, Index count, const Word* data) {
    put_lines(out, count, [&](Index i, std::string& text) {
      for (Index j = 0; j < a.columns(); ++j)
        text += char(data[i * a.words() + j / 64] >> (j % 64) & 1);
    });
  });
  out.commit();
}

}  // namespace terrace
