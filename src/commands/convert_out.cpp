#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>

#include "distrib/agree.hpp"
#include "io/foreign.hpp"
#include "io/input.hpp"
#include "io/zip.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/convert.hpp"
#include "src/commands/convert_lines.hpp"

namespace terrace {

namespace {

void put_bytes(io::PlainOutput& out, const void* data, Index bytes) {
  out.put({static_cast<const char*>(data), std::size_t(bytes)});
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

void hdf5_to_text(Run& run, const io::Location& from, const std::string& to, TextStyle style,
                  int digits) {
  const Control& control = run.control;
  const io::DenseInput a = io::open_dense(control, from);
  const Index n = a.rows(), columns = a.columns();
  const bool rounded = style == TextStyle::seed_python, csv = style == TextStyle::csv;
  const bool seed = rounded || style == TextStyle::seed_cpp;
  if (columns != n && !csv)
    no_form(a.location(),
            fmt::format("text holds square matrices only, and this one is {} x {}", n, columns),
            "convert it to .csv, .npy or .mtx");
  const char separator = csv                                                              ? ','
                         : style == TextStyle::plain_tabs || style == TextStyle::seed_cpp ? '\t'
                                                                                          : ' ';
  const double bytes = double(6 + digits) * double(n) * double(columns);
  io::PlainOutput out(control, to, run.options.force, bytes);
  show_bytes(run, Moved::written, bytes, bytes);
  if (!seed && !csv) first_line(control, out, fmt::format("{}\n", n));
  std::atomic<bool> lost{false};
  a.read(control, streamed(control, n), [&](Index, Index count, const double* data) {
    put_lines(out, count, [&](Index i, std::string& text) {
      for (Index j = 0; j < columns; ++j) {
        const double v = data[i * columns + j];
        std::array<char, 40> word{};
        const auto end = fmt::format_to_n(word.data(), word.size(), "{:.{}e}",
                                          rounded ? rounded_to_ten_places(v) : v, digits - 1)
                             .out;
        text.append(word.data(), end);
        double back = 0;
        if (!seed && !lost && (std::from_chars(word.data(), end, back), back != v)) lost = true;
        if (seed || j + 1 < columns) text += separator;
      }
      text += '\n';
    });
  });
  out.commit();
  if (control.reduce(Index(lost), Reduce::max) > 0)
    run.warn(
        fmt::format("digits were lost: {} are written per number; {}; add --digits 17 to keep "
                    "them all",
                    digits, to == io::standard_stream ? "standard output" : to));
}

namespace {
/// Row i as bytes 0 and 1.
void append_bits(const io::BitInput& a, const Word* data, Index i, std::string& text) {
  for (Index j = 0; j < a.columns(); ++j)
    text += char(data[i * a.words() + j / 64] >> (j % 64) & 1);
}
}  // namespace

void hdf5_to_numpy(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::Kind kind = io::kind_of(control, from);
  if (kind == io::Kind::sparse)
    no_form(from, "a sparse matrix has no .npy form", "convert it to .npz or .mtx");
  if (kind == io::Kind::band)
    no_form(from, "a band matrix has no .npy form", "convert it to .mtx, or read it with h5py");
  if (kind == io::Kind::dense) {
    const io::DenseInput a = io::open_dense(control, from);
    const double bytes = 8 * double(a.rows()) * double(a.columns());
    io::PlainOutput out(control, to, run.options.force, bytes);
    show_bytes(run, Moved::written, bytes, bytes);
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
  const double bytes = double(a.rows()) * double(a.columns());
  io::PlainOutput out(control, to, run.options.force, bytes);
  show_bytes(run, Moved::written, bytes, bytes);
  first_line(control, out, io::npy_header("|u1", {a.rows(), a.columns()}));
  a.read(control, streamed(control, a.rows()), [&](Index, Index count, const Word* data) {
    put_lines(out, count, [&](Index i, std::string& text) { append_bits(a, data, i, text); });
  });
  out.commit();
}

namespace {

/// Members of an archive, written as they are made; rank 0.
class NpzOutput {
 public:
  explicit NpzOutput(io::PlainOutput& out) : out_(out) {}
  void begin(const std::string& name, const std::string& header, Index bytes) {
    out_.put(zip_.begin(name + ".npy", Index(header.size()) + bytes));
    put(header);
  }
  void put(std::string_view bytes) {
    zip_.add(bytes);
    out_.put(bytes);
  }
  void end() { out_.put(zip_.end()); }
  void finish() { out_.put(zip_.finish()); }
  /// A whole member.
  template <class T>
  void array(const std::string& name, const std::string& type, const std::vector<Index>& shape,
             const T* data, Index count) {
    begin(name, io::npy_header(type, shape), count * Index(sizeof(T)));
    put({reinterpret_cast<const char*>(data), std::size_t(count) * sizeof(T)});
    end();
  }

 private:
  io::PlainOutput& out_;
  io::ZipWriter zip_;
};

/// As scipy.sparse.save_npz: CSR, whatever the file's form is.
void sparse_to_npz(const Control& control, const io::SparseInput& a, io::PlainOutput& out) {
  io::SparseRows all;
  const Index rows = control.rank() == 0 ? a.rows() : 0;
  require_memory(control, rows > 0 ? 16 * a.nonzeros() + 8 * rows : 0, 0);
  a.read(control, {0, rows}, all);
  collectively(control, [&] {
    if (control.rank() != 0) return;
    NpzOutput npz(out);
    const Index count = Index(all.values.size()), shape[] = {a.rows(), a.columns()};
    npz.array("indices", "<i8", {count}, all.columns.data(), count);
    npz.array("indptr", "<i8", {a.rows() + 1}, all.start.data(), a.rows() + 1);
    npz.array("format", "|S3", {}, "csr", 3);
    npz.array("shape", "<i8", {2}, shape, 2);
    npz.array("data", "<f8", {count}, all.values.data(), count);
    npz.finish();
  });
}

}  // namespace

void hdf5_to_npz(Run& run, const io::Location& from, const std::string& to) {
  const Control& control = run.control;
  const io::Kind kind = io::kind_of(control, from);
  if (kind == io::Kind::band)
    no_form(from, "a band matrix has no .npz form", "convert it to .mtx, or read it with h5py");
  if (kind == io::Kind::sparse) {
    const io::SparseInput a = io::open_sparse(control, from);
    const double bytes = 16 * double(a.nonzeros());
    io::PlainOutput out(control, to, run.options.force, bytes);
    show_bytes(run, Moved::written, bytes, bytes);
    sparse_to_npz(control, a, out);
    return out.commit();
  }
  std::optional<NpzOutput> npz;
  const auto begin = [&](io::PlainOutput& out, bool vector, const char* type, Index rows,
                         Index columns, Index bytes) {
    collectively(control, [&] {
      if (control.rank() != 0) return;
      npz.emplace(out);
      const auto shape = vector ? std::vector<Index>{rows} : std::vector<Index>{rows, columns};
      npz->begin(vector ? "b" : "A", io::npy_header(type, shape), bytes);
    });
  };
  const auto finish = [&](io::PlainOutput& out) {
    collectively(control, [&] {
      if (control.rank() != 0) return;
      npz->end();
      npz->finish();
    });
    out.commit();
  };
  if (kind == io::Kind::dense) {
    const io::DenseInput a = io::open_dense(control, from);
    const Index bytes = 8 * a.rows() * a.columns();
    io::PlainOutput out(control, to, run.options.force, double(bytes));
    show_bytes(run, Moved::written, double(bytes), double(bytes));
    begin(out, a.is_vector(), "<f8", a.rows(), a.columns(), bytes);
    a.read(control, streamed(control, a.rows()), [&](Index, Index count, const double* data) {
      npz->put({reinterpret_cast<const char*>(data), std::size_t(count * a.columns() * 8)});
    });
    return finish(out);
  }
  const io::BitInput a = io::open_bits(control, from);
  const Index bytes = a.rows() * a.columns();
  io::PlainOutput out(control, to, run.options.force, double(bytes));
  show_bytes(run, Moved::written, double(bytes), double(bytes));
  begin(out, a.is_vector(), "|u1", a.rows(), a.columns(), bytes);
  a.read(control, streamed(control, a.rows()), [&](Index, Index count, const Word* data) {
    for (Index i = 0; i < count; ++i) {
      std::string row;
      append_bits(a, data, i, row);
      npz->put(row);
    }
  });
  finish(out);
}

}  // namespace terrace
