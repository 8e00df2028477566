#include "src/api/terrace/hdf5.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "io/input.hpp"
#include "io/output.hpp"
#include "src/api/dense_factor.hpp"
#include "src/api/held_band.hpp"
#include "src/api/inside.hpp"

namespace terrace::api::hdf5 {

namespace {

Alike pieces_of_files() { return {"TERRACE_IO_PIECE_BYTES", io::piece_bytes()}; }

/// The file that each rank names, of which those that differ, also in `others`, are an agreed
/// Error(usage). Collective.
io::Location located(const Context& context, const std::string& location,
                     std::vector<Alike> others = {}) {
  others.insert(others.end(), {{"the location", location}, pieces_of_files()});
  context.inside().require_alike(std::move(others));
  return io::parse_location(location);
}

void require_shape(Index rows, Index columns, Index found, const std::string& location) {
  if (columns != found)
    fail_together(Exit::usage,
                  fmt::format("the matrix is {} x {}, and the array has {} columns; {}; give as "
                              "many",
                              rows, found, columns, location));
}

/// The rows of `input` that this rank holds.
template <class T, class Input>
void read_rows(Context& context, const Input& input, const Local<T>& a, Index columns) {
  Context::Inside& ranks = context.inside();
  with_backend(ranks, There(a), BackendHint{0, 1}, [&]<class B>(terrace::Context<B>& on) {
    const Held<T, B> held(on, input.rows(), a, columns, "a");
    std::vector<Index> places;
    input.read(ranks.control, held.ranges(), [&](Index position, Index count, const T* rows) {
      places.resize(std::size_t(count));
      for (Index i = 0; i < count; ++i) places[std::size_t(i)] = position + i;
      held.put(places, rows);
    });
  });
}

template <class B>
std::vector<Range> one(const HeldBand<B>& a) {
  return {a.columns()};
}

}  // namespace

Shape look(Context& context, const std::string& location) {
  return at_border([&] {
    const Control& control = context.inside().control;
    const io::Location at = located(context, location);
    Shape shape;
    switch (io::kind_of(control, at)) {
      case io::Kind::dense: {
        const io::DenseInput in = io::open_dense(control, at);
        shape = {Kind::dense, in.rows(), in.columns(), 0, 0, in.is_vector()};
        break;
      }
      case io::Kind::band: {
        const io::BandInput in = io::open_band(control, at);
        shape = {Kind::band, in.n(), in.n(), in.half_bandwidth(), 0, false};
        break;
      }
      case io::Kind::sparse: {
        const io::SparseInput in = io::open_sparse(control, at);
        shape = {Kind::csr, in.rows(), in.columns(), 0, in.nonzeros(), false};
        break;
      }
      case io::Kind::bits: {
        const io::BitInput in = io::open_bits(control, at);
        shape = {Kind::bits, in.rows(), in.columns(), 0, 0, in.is_vector()};
        break;
      }
    }
    return shape;
  });
}

void read(Context& context, const std::string& location, Local<double> a) {
  at_border([&] {
    const io::DenseInput in = io::open_dense(
        context.inside().control, located(context, location, {{"Local::columns of a", a.columns}}));
    require_shape(in.rows(), a.columns, in.columns(), location);
    read_rows(context, in, a, in.columns());
  });
}

void read(Context& context, const std::string& location, Local<gf2::Word> a) {
  at_border([&] {
    const io::BitInput in = io::open_bits(
        context.inside().control, located(context, location, {{"Local::columns of a", a.columns}}));
    require_shape(in.rows(), a.columns, in.columns(), location);
    read_rows(context, in, a, in.words());
  });
}

void read_band(Context& context, const std::string& location, Rows columns, double* ab) {
  at_border([&] {
    const Control& control = context.inside().control;
    const io::BandInput in = io::open_band(control, located(context, location));
    const Index height = in.half_bandwidth() + 1;
    (void)Holders(control, in.n(), columns, "ab");
    const Range own{columns.first, columns.count};
    in.read(control, {&own, 1}, [&](Index position, Index count, const double* from) {
      std::copy_n(from, count * height, ab + position * height);
    });
  });
}

Csr read_csr(Context& context, const std::string& location, Rows rows) {
  return at_border([&] {
    const Control& control = context.inside().control;
    const io::SparseInput in = io::open_sparse(control, located(context, location));
    (void)Holders(control, in.rows(), rows, "the CSR matrix");
    io::SparseRows found;
    in.read(control, {rows.first, rows.count}, found);
    return collectively(control, [&] {
      return Csr{rows,
                 {found.start.begin(), found.start.end()},
                 {found.columns.begin(), found.columns.end()},
                 {found.values.begin(), found.values.end()}};
    });
  });
}

dense::Factor read_factor(Context& context, const std::string& location, Local<const double> a) {
  return at_border([&] { return dense::Factor(dense::read_factor(context, location, a)); });
}

struct Output::Inside {
  Context context;
  io::Output file;
  [[nodiscard]] const Control& control() const { return context.inside().control; }
  void require_alike(const std::string& name, Index rows, std::vector<Alike> others) const {
    others.insert(others.end(), {{"the name", name}, {"rows", rows}});
    context.inside().require_alike(std::move(others));
  }

  template <class T>
  void write(const std::string& name, Index rows, const Local<const T>& a, Index words,
             Index columns, const io::Attributes& attributes) {
    Context::Inside& ranks = context.inside();
    with_backend(ranks, There(a), BackendHint{0, 1}, [&]<class B>(terrace::Context<B>& on) {
      const Held<const T, B> held(on, rows, a, words, "a");
      file.write<T>(
          name, rows, columns, held.ranges(),
          [&](Index position, Index count, T* out) {
            held.pack(position, count, out);
            if constexpr (std::is_same_v<T, Word>)
              for (Index i = 1; a.columns % 64 != 0 && i <= count; ++i)
                out[i * words - 1] &= (Word(1) << (a.columns % 64)) - 1;
          },
          attributes);
    });
  }
};

Output::Output(Context& context, const std::string& target, bool overwrite)
    : inside_(at_border([&] {
        context.inside().require_alike({{"the target", target},
                                        {"overwrite", overwrite},
                                        {"TERRACE_STRIPE_BYTES", io::stripe_bytes()},
                                        pieces_of_files()});
        return std::unique_ptr<Inside>(
            new Inside{context, {context.inside().control, target, overwrite}});
      })) {}
Output::~Output() = default;
Output::Output(Output&&) noexcept = default;
Output& Output::operator=(Output&&) noexcept = default;

void Output::write(const std::string& name, std::int64_t rows, Local<const double> a, bool vector) {
  at_border([&] {
    inside_->require_alike(name, rows, {{"Local::columns of a", a.columns}, {"vector", vector}});
    if (vector && a.columns != 1)
      fail_together(Exit::usage, fmt::format("a vector of {} columns; '{}'; give one, or a matrix",
                                             a.columns, name));
    inside_->write(name, rows, a, a.columns, vector ? -1 : a.columns, {});
  });
}
void Output::write(const std::string& name, std::int64_t rows, Local<const gf2::Word> a) {
  at_border([&] {
    inside_->require_alike(name, rows, {{"Local::columns of a", a.columns}});
    const Index words = ceil_div(a.columns, 64);
    inside_->write(name, rows, a, words, words,
                   {{"format", std::string("bits")}, {"columns", a.columns}});
  });
}
void Output::write_band(const std::string& name, std::int64_t n, const band::Matrix& a) {
  at_border([&] {
    require_alike(inside_->context.inside(), n, a, {{"the name", name}});
    with_backend(
        inside_->context.inside(), There(a), BackendHint{0, 1},
        [&]<class B>(terrace::Context<B>& on) {
          HeldBand<B> held(on, n, a);
          inside_->file.write_columns(
              name, held.height(), n, one(held),
              [&](Index position, Index count, double* out) { held.pack(position, count, out); },
              {{"format", std::string("band")}, {"uplo", std::string("lower")}});
        });
  });
}
void Output::write_csr(const std::string& name, std::int64_t n, Rows rows,
                       const std::int64_t* start, const std::int64_t* column, const double* value) {
  at_border([&] {
    const Control& control = inside_->control();
    inside_->require_alike(name, n, {});
    (void)Holders(control, n, rows, "the CSR matrix");
    const Index own = rows.count > 0 ? start[rows.count] - start[0] : 0;
    const std::vector<Index> entries = control.gather_all(own);
    Index before = 0, all = 0;
    for (int r = 0; r < control.size(); ++r) {
      if (r < control.rank()) before += entries[std::size_t(r)];
      all += entries[std::size_t(r)];
    }
    const Range mine{before, own};
    std::vector<Range> starts{{rows.first, rows.count}};
    if (control.rank() == control.size() - 1) starts.push_back({n, 1});
    io::Output& file = inside_->file;
    file.group(name);
    file.write<Index>("indptr", n + 1, -1, starts, [&](Index position, Index count, Index* out) {
      for (Index i = 0; i < count; ++i)
        out[i] = position + i < rows.count ? before + start[position + i] - start[0] : all;
    });
    file.write_held<Index>("indices", all, -1, {&mine, 1}, column);
    file.write_held<double>("data", all, -1, {&mine, 1}, value);
    file.attribute("shape", std::vector<Index>{n, n});
    file.attribute("encoding-type", std::string("csr_matrix"));
    file.attribute("encoding-version", std::string("0.1.0"));
    file.group("");
  });
}
void Output::write_factor(const std::string& name, const dense::Factor& factor,
                          const std::string& matrix) {
  at_border([&] {
    inside_->require_alike(name, 0, {{"the name of the matrix", matrix}});
    factor.inside().write(inside_->file, name, matrix);
  });
}
void Output::commit() {
  at_border([&] {
    inside_->file.commit({{"version", std::string(TERRACE_VERSION)},
                          {"command_line", std::string("the library")},
                          {"ranks", Index(inside_->control().size())}});
  });
}

}  // namespace terrace::api::hdf5
