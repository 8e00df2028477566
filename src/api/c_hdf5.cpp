#include <algorithm>
#include <cstdlib>
#include <vector>

#include "src/api/c_inside.hpp"
#include "src/api/terrace/hdf5.h"
#include "src/api/terrace/hdf5.hpp"

using namespace terrace::api::in_c;

struct terrace_hdf5_output {
  api::hdf5::Output file;
};

namespace {

/// A copy that terrace_free() gives back.
template <class T>
T* given(const std::vector<T>& values) {
  T* const out = static_cast<T*>(std::malloc(std::max<std::size_t>(1, values.size() * sizeof(T))));
  if (!out) throw std::bad_alloc();
  std::copy(values.begin(), values.end(), out);
  return out;
}

}  // namespace

extern "C" {

int terrace_hdf5_look(terrace_context* c, const char* location, terrace_shape* shape) {
  return coded([&] {
    const api::hdf5::Shape found = api::hdf5::look(c->context, location);
    *shape = {int(found.kind), int(found.is_vector), found.rows,
              found.columns,   found.half_bandwidth, found.nonzeros};
  });
}
int terrace_hdf5_read(terrace_context* c, const char* location, int64_t first, int64_t count,
                      int64_t columns, double* a, int64_t lda) {
  return coded([&] { api::hdf5::read(c->context, location, rows(a, first, count, columns, lda)); });
}
int terrace_hdf5_read_bits(terrace_context* c, const char* location, int64_t first, int64_t count,
                           int64_t columns, uint64_t* a, int64_t lda) {
  return coded([&] { api::hdf5::read(c->context, location, rows(a, first, count, columns, lda)); });
}
int terrace_hdf5_read_band(terrace_context* c, const char* location, int64_t first, int64_t count,
                           double* ab) {
  return coded(
      [&] { api::hdf5::read_band(c->context, location, api::Rows::range(first, count), ab); });
}
int terrace_hdf5_read_csr(terrace_context* c, const char* location, int64_t first, int64_t count,
                          int64_t** start, int64_t** column, double** value) {
  return coded([&] {
    const api::hdf5::Csr found =
        api::hdf5::read_csr(c->context, location, api::Rows::range(first, count));
    *start = given(found.start);
    *column = given(found.column);
    *value = given(found.value);
  });
}
int terrace_hdf5_read_factor(terrace_context* c, const char* location, int64_t n, int64_t first,
                             int64_t count, const double* a, int64_t lda,
                             terrace_dense_factor** out, terrace_report* report) {
  return coded([&] {
    *out = new terrace_dense_factor{api::hdf5::read_factor(
        c->context, location, n != 0 ? rows(a, first, count, n, lda) : api::Local<const double>{})};
    put((*out)->factor.report(), report);
  });
}

int terrace_hdf5_create(terrace_context* c, const char* target, int overwrite,
                        terrace_hdf5_output** out) {
  return coded([&] {
    *out = new terrace_hdf5_output{api::hdf5::Output(c->context, target, overwrite != 0)};
  });
}
int terrace_hdf5_write(terrace_hdf5_output* output, const char* name, int64_t n, int64_t first,
                       int64_t count, int64_t columns, const double* a, int64_t lda, int vector) {
  return coded(
      [&] { output->file.write(name, n, rows(a, first, count, columns, lda), vector != 0); });
}
int terrace_hdf5_write_bits(terrace_hdf5_output* output, const char* name, int64_t n, int64_t first,
                            int64_t count, int64_t columns, const uint64_t* a, int64_t lda) {
  return coded([&] { output->file.write(name, n, rows(a, first, count, columns, lda)); });
}
int terrace_hdf5_write_band(terrace_hdf5_output* output, const char* name, int64_t n, int64_t m,
                            int64_t first, int64_t count, const double* ab, int64_t ldab,
                            int layout, int upper) {
  return coded(
      [&] { output->file.write_band(name, n, band_of(m, first, count, ab, ldab, layout, upper)); });
}
int terrace_hdf5_write_csr(terrace_hdf5_output* output, const char* name, int64_t n, int64_t first,
                           int64_t count, const int64_t* start, const int64_t* column,
                           const double* value) {
  return coded([&] {
    output->file.write_csr(name, n, api::Rows::range(first, count), start, column, value);
  });
}
int terrace_hdf5_write_factor(terrace_hdf5_output* output, const char* name,
                              const terrace_dense_factor* factor, const char* matrix) {
  return coded([&] { output->file.write_factor(name, factor->factor, matrix ? matrix : ""); });
}
int terrace_hdf5_commit(terrace_hdf5_output* output) {
  return coded([&] { output->file.commit(); });
}
void terrace_hdf5_close(terrace_hdf5_output* output) { delete output; }

}  // extern "C"
