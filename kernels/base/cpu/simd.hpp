// Code compiled for several instruction sets and chosen at run time, by hand: the loader's own
// mechanism (ifunc) does not live with the sanitizers.
#pragma once
#include <cstdlib>
#include <string_view>

#include "kernels/base/backend.hpp"

namespace terrace::simd {

/// 512 bits that may lie at any multiple of 8 bytes; two or four registers on smaller machines.
/// Name the type in declarations: `auto` drops its alignment.
typedef Word Vector __attribute__((vector_size(64), aligned(8), may_alias));

enum class Level { plain, avx2, avx512 };

/// The best level of this machine; TERRACE_SIMD=plain or avx2 takes a lower one (for tests).
inline Level level() {
#if defined(__x86_64__)
  static const Level found = [] {
    __builtin_cpu_init();
    const char* text = std::getenv("TERRACE_SIMD");
    const std::string_view wanted = text ? text : "";
    if (wanted == "plain") return Level::plain;
    if (wanted != "avx2" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("bmi2"))
      return Level::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) return Level::avx2;
    return Level::plain;
  }();
  return found;
#else
  return Level::plain;
#endif
}

}  // namespace terrace::simd

/// Defines name(parameter) from an always-inlined template body##<Level>(parameter).
#if defined(__x86_64__)
#define TERRACE_MULTIVERSION(name, body, Parameter)                                            \
  __attribute__((target("avx512f,avx2,bmi2,popcnt"))) void name##_avx512(const Parameter& p) { \
    body<simd::Level::avx512>(p);                                                              \
  }                                                                                            \
  __attribute__((target("avx2,bmi2,popcnt"))) void name##_avx2(const Parameter& p) {           \
    body<simd::Level::avx2>(p);                                                                \
  }                                                                                            \
  void name(const Parameter& p) {                                                              \
    switch (simd::level()) {                                                                   \
      case simd::Level::avx512:                                                                \
        return name##_avx512(p);                                                               \
      case simd::Level::avx2:                                                                  \
        return name##_avx2(p);                                                                 \
      default:                                                                                 \
        return body<simd::Level::plain>(p);                                                    \
    }                                                                                          \
  }
#else
#define TERRACE_MULTIVERSION(name, body, Parameter) \
  void name(const Parameter& p) { body<simd::Level::plain>(p); }
#endif
#define TERRACE_INLINE inline __attribute__((always_inline))
