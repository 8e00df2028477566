// What the functions in C share: the objects behind the handles, codes in place of exceptions, arrays.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>

#include "src/api/terrace/c.h"
#include "src/api/terrace/terrace.hpp"

namespace api = terrace::api;

struct terrace_context {
  api::Context context;
};
struct terrace_dense_factor {
  api::dense::Factor factor;
};
struct terrace_band_factor {
  api::band::Factor factor;
};
struct terrace_cg_operator {
  api::cg::Operator a;
};

namespace terrace::api::in_c {

inline thread_local std::string last_text;
inline thread_local std::int64_t last_position = -1;

/// Runs the call; nothing is thrown across C.
template <class F>
int coded(F&& call) noexcept {
  try {
    call();
    return TERRACE_DONE;
  } catch (const Error& e) {
    last_text = e.what();
    last_position = e.position();
    return int(e.code());
  } catch (const std::exception& e) {
    last_text = e.what();
  } catch (...) {
    last_text = "an exception of unknown type";
  }
  last_position = -1;
  return TERRACE_INTERNAL;
}

template <class T>
Local<T> rows(T* data, std::int64_t first, std::int64_t count, std::int64_t columns,
              std::int64_t ld) {
  return {data, count == TERRACE_CYCLIC ? Rows::cyclic(first) : Rows::range(first, count), columns,
          ld, where_is(data)};
}

inline band::Matrix band_of(std::int64_t m, std::int64_t first, std::int64_t count,
                            const double* ab, std::int64_t ldab, int layout, int upper) {
  return {ab,
          m,
          Rows::range(first, count),
          layout == 0 ? band::Matrix::diagonals : band::Matrix::by_columns,
          upper ? band::Uplo::upper : band::Uplo::lower,
          ldab,
          where_is(ab)};
}

inline void put_text(const std::string& text, char* to, std::size_t room) {
  const std::size_t length = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}
inline void put_seconds(const Seconds& seconds, terrace_report& to) {
  to.seconds_prepare = seconds.prepare;
  to.seconds_solve = seconds.solve;
  to.seconds_check = seconds.check;
  to.seconds_give = seconds.give;
}
inline void put(const dense::Report& from, terrace_report* to) {
  if (!to) return;
  *to = {};
  to->residual = from.residual;
  to->reciprocal_condition = from.reciprocal_condition;
  to->log_abs_determinant = from.log_abs_determinant;
  to->determinant_sign = from.determinant_sign;
  if (!from.warnings.empty()) put_text(from.warnings[0], to->warning, sizeof to->warning);
  put_seconds(from.seconds, *to);
}

}  // namespace terrace::api::in_c
