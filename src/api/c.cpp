#include "src/api/terrace/c.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "src/api/c_inside.hpp"

using api::Code;
using api::Rows;
using namespace terrace::api::in_c;

namespace {

api::Options options_of(const terrace_options* given) {
  api::Options options;
  if (!given) return options;
  options.backend = given->backend == TERRACE_CPU    ? api::Backend::cpu
                    : given->backend == TERRACE_CUDA ? api::Backend::cuda
                                                     : api::Backend::automatic;
  options.threads = given->threads;
  options.check = given->unchecked == 0;
  options.guard = given->guard != 0;
  options.stream = given->stream;
  if (given->progress)
    options.progress = [call = given->progress, user = given->user](double done) {
      return call(done, user) != 0;
    };
  return options;
}

api::dense::Assume taken_for(int assume) {
  using api::dense::Assume;
  return assume == TERRACE_SPD         ? Assume::spd
         : assume == TERRACE_LOOKS_SPD ? Assume::automatic
                                       : Assume::general;
}

void put(const api::band::Report& from, terrace_report* to) {
  if (!to) return;
  *to = {};
  to->residual = from.residual;
  to->reciprocal_condition = from.reciprocal_condition;
  to->log_abs_determinant = from.log_abs_determinant;
  to->log_abs_determinant_error = from.log_abs_determinant_error;
  to->determinant_sign = 1;
  if (!from.warnings.empty()) put_text(from.warnings[0], to->warning, sizeof to->warning);
  put_seconds(from.seconds, *to);
}
void put(const api::gf2::Report& from, terrace_report* to, std::int64_t* pivots = nullptr) {
  if (pivots) std::copy(from.pivots.begin(), from.pivots.end(), pivots);
  if (!to) return;
  *to = {};
  to->rank = from.rank;
  to->certified = from.certified;
  put_seconds(from.seconds, *to);
}

}  // namespace

extern "C" {

const char* terrace_version(void) {
  static const std::string text = api::version();
  return text.c_str();
}
const char* terrace_error(void) { return last_text.c_str(); }
int64_t terrace_error_position(void) { return last_position; }

int terrace_open(MPI_Comm comm, const terrace_options* options, terrace_context** out) {
  return coded([&] { *out = new terrace_context{api::Context(comm, options_of(options))}; });
}
int terrace_open_fortran(int comm, const terrace_options* options, terrace_context** out) {
  return coded([&] {
    *out = new terrace_context{api::Context(MPI_Comm_f2c(MPI_Fint(comm)), options_of(options))};
  });
}
int terrace_open_alone(const terrace_options* options, terrace_context** out) {
  return coded([&] { *out = new terrace_context{api::Context(options_of(options))}; });
}
void terrace_close(terrace_context* context) { delete context; }
int terrace_rank_of(const terrace_context* context) { return context->context.rank(); }
int terrace_size_of(const terrace_context* context) { return context->context.size(); }
void terrace_release_memory(terrace_context* context) { context->context.release_memory(); }
int terrace_set_options(terrace_context* context, const terrace_options* options) {
  return coded([&] { context->context.options() = options_of(options); });
}

int terrace_dense_invert(terrace_context* c, int64_t n, int64_t first, int64_t count, double* a,
                         int64_t lda, terrace_report* report) {
  return coded(
      [&] { put(api::dense::invert(c->context, n, rows(a, first, count, n, lda)), report); });
}
int terrace_dense_solve(terrace_context* c, int64_t n, int64_t first, int64_t count,
                        const double* a, int64_t lda, int64_t nrhs, double* b, int64_t ldb,
                        terrace_report* report) {
  return coded([&] {
    put(api::dense::solve(c->context, n, rows(a, first, count, n, lda),
                          rows(b, first, count, nrhs, ldb)),
        report);
  });
}
int terrace_dense_solve_assuming(terrace_context* c, int assume, int64_t n, int64_t first,
                                 int64_t count, const double* a, int64_t lda, int64_t nrhs,
                                 double* b, int64_t ldb, terrace_report* report) {
  return coded([&] {
    put(api::dense::solve(c->context, n, rows(a, first, count, n, lda),
                          rows(b, first, count, nrhs, ldb), taken_for(assume)),
        report);
  });
}
int terrace_dense_determinant(terrace_context* c, int64_t n, int64_t first, int64_t count,
                              const double* a, int64_t lda, terrace_report* report) {
  return coded(
      [&] { put(api::dense::determinant(c->context, n, rows(a, first, count, n, lda)), report); });
}

int terrace_dense_factor_make(terrace_context* c, int64_t n, int64_t first, int64_t count,
                              const double* a, int64_t lda, terrace_dense_factor** out,
                              terrace_report* report) {
  return terrace_dense_factor_make_assuming(c, TERRACE_GENERAL, n, first, count, a, lda, out,
                                            report);
}
int terrace_dense_factor_make_assuming(terrace_context* c, int assume, int64_t n, int64_t first,
                                       int64_t count, const double* a, int64_t lda,
                                       terrace_dense_factor** out, terrace_report* report) {
  return coded([&] {
    *out = new terrace_dense_factor{
        api::dense::Factor(c->context, n, rows(a, first, count, n, lda), taken_for(assume))};
    put((*out)->factor.report(), report);
  });
}
int terrace_dense_factor_is_cholesky(const terrace_dense_factor* factor) {
  return factor->factor.method() == "cholesky";
}
int terrace_dense_factor_solve(terrace_dense_factor* factor, int64_t first, int64_t count,
                               int64_t nrhs, double* b, int64_t ldb, terrace_report* report) {
  return coded([&] { put(factor->factor.solve(rows(b, first, count, nrhs, ldb)), report); });
}
void terrace_dense_factor_free(terrace_dense_factor* factor) { delete factor; }

int terrace_band_solve(terrace_context* c, int64_t n, int64_t m, int64_t first, int64_t count,
                       const double* ab, int64_t ldab, int layout, int upper, int mixed,
                       int64_t nrhs, double* b, int64_t ldb, terrace_report* report) {
  return coded([&] {
    api::band::Options options;
    options.mixed = mixed != 0;
    put(api::band::solve(c->context, n, band_of(m, first, count, ab, ldab, layout, upper),
                         rows(b, first, count, nrhs, ldb), options),
        report);
  });
}
int terrace_band_factor_make(terrace_context* c, int64_t n, int64_t m, int64_t first, int64_t count,
                             const double* ab, int64_t ldab, int layout, int upper,
                             terrace_band_factor** out, terrace_report* report) {
  return coded([&] {
    *out = new terrace_band_factor{
        api::band::Factor(c->context, n, band_of(m, first, count, ab, ldab, layout, upper))};
    put((*out)->factor.report(), report);
  });
}
int terrace_band_factor_solve(terrace_band_factor* factor, int64_t first, int64_t count,
                              int64_t nrhs, double* b, int64_t ldb, terrace_report* report) {
  return coded([&] { put(factor->factor.solve(rows(b, first, count, nrhs, ldb)), report); });
}
const double* terrace_band_factor_columns(const terrace_band_factor* factor) {
  const double* columns = nullptr;
  (void)coded([&] { columns = factor->factor.view().data; });
  return columns;
}
void terrace_band_factor_free(terrace_band_factor* factor) { delete factor; }

int terrace_gf2_reduce(terrace_context* c, int64_t n, int64_t columns, int64_t first, int64_t count,
                       uint64_t* a, int64_t lda, int echelon, int64_t* pivots, uint64_t* transform,
                       int64_t ldt, terrace_report* report) {
  return coded([&] {
    const auto form = echelon ? api::gf2::Form::echelon : api::gf2::Form::reduced;
    const auto own = rows(a, first, count, columns, lda);
    put(transform
            ? api::gf2::reduce(c->context, n, own, rows(transform, first, count, n, ldt), form)
            : api::gf2::reduce(c->context, n, own, form),
        report, pivots);
  });
}
int terrace_gf2_rank(terrace_context* c, int64_t n, int64_t columns, int64_t first, int64_t count,
                     const uint64_t* a, int64_t lda, int64_t* pivots, terrace_report* report) {
  return coded([&] {
    put(api::gf2::rank(c->context, n, rows(a, first, count, columns, lda)), report, pivots);
  });
}
int terrace_gf2_solve(terrace_context* c, int64_t n, int64_t columns, int64_t first, int64_t count,
                      const uint64_t* a, int64_t lda, int64_t nrhs, const uint64_t* b, int64_t ldb,
                      int64_t x_first, int64_t x_count, uint64_t* x, int64_t ldx,
                      terrace_report* report) {
  return coded([&] {
    put(api::gf2::solve(c->context, n, rows(a, first, count, columns, lda),
                        rows(b, first, count, nrhs, ldb), rows(x, x_first, x_count, nrhs, ldx)),
        report);
  });
}
int terrace_gf2_inverse(terrace_context* c, int64_t n, int64_t first, int64_t count, uint64_t* a,
                        int64_t lda, terrace_report* report) {
  return coded(
      [&] { put(api::gf2::inverse(c->context, n, rows(a, first, count, n, lda)), report); });
}
int terrace_gf2_kernel(terrace_context* c, int64_t n, int64_t columns, int64_t first, int64_t count,
                       const uint64_t* a, int64_t lda, int64_t* dimension, int64_t* basis_first,
                       int64_t* basis_count, uint64_t** basis, terrace_report* report) {
  return coded([&] {
    const api::gf2::Basis found =
        api::gf2::kernel(c->context, n, rows(a, first, count, columns, lda));
    *dimension = found.dimension;
    *basis_first = found.rows.first;
    *basis_count = found.rows.count;
    *basis = static_cast<uint64_t*>(std::malloc(std::max<std::size_t>(1, 8 * found.words.size())));
    if (!*basis)
      throw api::Error(Code::resources, "out of host memory; for the kernel; use more ranks");
    std::copy(found.words.begin(), found.words.end(), *basis);
    put(found.report, report);
  });
}
int terrace_gf2_multiply(terrace_context* c, int64_t n, int64_t inner, int64_t columns,
                         int64_t first, int64_t count, const uint64_t* a, int64_t lda,
                         int64_t b_first, int64_t b_count, const uint64_t* b, int64_t ldb,
                         uint64_t* product, int64_t ldc, terrace_report* report) {
  return coded([&] {
    put(api::gf2::multiply(c->context, n, rows(a, first, count, inner, lda),
                           rows(b, b_first, b_count, columns, ldb),
                           rows(product, first, count, columns, ldc)),
        report);
  });
}
void terrace_free(void* memory) { std::free(memory); }

int terrace_cg_csr(terrace_context* c, int64_t n, int64_t first, int64_t count,
                   const int64_t* start, const int64_t* column, const double* value,
                   terrace_cg_operator** out) {
  return coded([&] {
    *out = new terrace_cg_operator{
        api::cg::csr(c->context, n, Rows::range(first, count), start, column, value)};
  });
}
int terrace_cg_csr32(terrace_context* c, int64_t n, int64_t first, int64_t count,
                     const int32_t* start, const int32_t* column, const double* value,
                     terrace_cg_operator** out) {
  return coded([&] {
    *out = new terrace_cg_operator{
        api::cg::csr(c->context, n, Rows::range(first, count), start, column, value)};
  });
}
int terrace_cg_dense(terrace_context* c, int64_t n, int64_t first, int64_t count, const double* a,
                     int64_t lda, terrace_cg_operator** out) {
  return coded([&] {
    *out = new terrace_cg_operator{api::cg::dense(c->context, n, rows(a, first, count, n, lda))};
  });
}
int terrace_cg_band(terrace_context* c, int64_t n, int64_t m, int64_t first, int64_t count,
                    const double* ab, int64_t ldab, int layout, int upper,
                    terrace_cg_operator** out) {
  return coded([&] {
    *out = new terrace_cg_operator{
        api::cg::band(c->context, n, band_of(m, first, count, ab, ldab, layout, upper))};
  });
}
int terrace_cg_user(terrace_context* c, int64_t n, int64_t first, int64_t count,
                    void (*product)(const double*, double*, void*), void* user,
                    const double* diagonal, terrace_cg_operator** out) {
  return coded([&] {
    api::cg::Product call;
    if (product) call = [product, user](const double* p, double* q) { product(p, q, user); };
    *out = new terrace_cg_operator{
        api::cg::user(c->context, n, Rows::range(first, count), std::move(call), diagonal)};
  });
}
int terrace_cg_solve(terrace_cg_operator* a, int64_t first, int64_t count, int64_t nrhs,
                     const double* b, int64_t ldb, double* x, int64_t ldx,
                     const terrace_cg_options* given, terrace_cg_result* results) {
  return coded([&] {
    api::cg::Options options;
    if (given) {
      options.rtol = given->rtol;
      options.atol = given->atol;
      options.max_iterations = given->max_iterations;
      if (given->preconditioner) options.preconditioner = given->preconditioner;
      if (given->block > 0) options.block = given->block;
      if (given->degree > 0) options.degree = given->degree;
      options.start_given = given->start_given != 0;
      options.mixed = given->mixed != 0;
      if (given->near_columns > 0)
        options.near_null_space =
            rows(given->near_null_space, first, count, given->near_columns, given->near_ld);
      if (given->observe)
        options.observe = [given](std::int64_t iteration, double residual) {
          return given->observe(iteration, residual, given->user) != 0;
        };
    }
    const auto found =
        a->a.solve(rows(b, first, count, nrhs, ldb), rows(x, first, count, nrhs, ldx), options);
    for (std::size_t i = 0; results && i < found.size(); ++i) {
      results[i] = {};
      results[i].converged = found[i].converged;
      results[i].iterations = found[i].iterations;
      results[i].residual = found[i].residual;
      results[i].scaled_residual = found[i].scaled_residual;
      results[i].setup_seconds = found[i].setup_seconds;
      put_text(found[i].reason, results[i].reason, sizeof results[i].reason);
    }
  });
}
int terrace_cg_update_csr(terrace_cg_operator* a, const double* value) {
  return coded([&] { a->a.update_values(value); });
}
int terrace_cg_update_dense(terrace_cg_operator* a, int64_t n, int64_t first, int64_t count,
                            const double* values, int64_t ld) {
  return coded([&] { a->a.update_values(rows(values, first, count, n, ld)); });
}
int terrace_cg_update_band(terrace_cg_operator* a, int64_t m, int64_t first, int64_t count,
                           const double* ab, int64_t ldab, int layout, int upper) {
  return coded([&] { a->a.update_values(band_of(m, first, count, ab, ldab, layout, upper)); });
}
void terrace_cg_free(terrace_cg_operator* a) { delete a; }

}  // extern "C"
