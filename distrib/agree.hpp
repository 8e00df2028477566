// collectively(): one rank's exception becomes everybody's.
#pragma once
#include <bit>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "distrib/control.hpp"
#include "kernels/base/error.hpp"

namespace terrace {

namespace detail {
/// All ranks learn the lowest failing rank's error and throw it, agreed; returns when none failed.
void agree(const Control& control, const std::optional<Error>& mine);
}  // namespace detail

/// What the work throws, as an Error of ours; none where it returns.
template <class F>
std::optional<Error> failure_of(F&& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(Exit::resources, "out of host memory; use more ranks or a smaller problem");
  } catch (const std::exception& e) {
    return Error(Exit::internal, e.what());
  }
}

/// Runs local work at a border (open, read, allocate, check options). When it throws on any rank,
/// all ranks throw the error of the lowest failing rank. The work must hold no collective call that
/// a failing rank would miss; an error that is agreed already passes through.
template <class F>
auto collectively(const Control& control, F&& work) {
  using Result = std::invoke_result_t<F>;
  std::conditional_t<std::is_void_v<Result>, std::optional<char>, std::optional<Result>> result;
  const std::optional<Error> mine = failure_of([&] {
    if constexpr (std::is_void_v<Result>)
      work();
    else
      result.emplace(work());
  });
  if (mine && mine->agreed()) throw *mine;
  detail::agree(control, mine);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

/// The same of work that each rank does alone, with a control of its own: what is agreed there is one
/// rank's.
template <class F>
auto collectively_alone(const Control& control, F&& work) {
  return collectively(control, [&] {
    try {
      return work();
    } catch (const Error& e) {
      throw Error(e.code(), e.what());
    }
  });
}

/// Throws the same error on every rank; for conditions that all ranks see alike.
[[noreturn]] inline void fail_together(Exit code, const std::string& message) {
  throw Error(code, message).as_agreed();
}

/// A number, an enumerator or a text that every rank gives alike, as a number.
struct Alike {
  template <class T>
  Alike(const char* what, const T& given) : name(what) {
    if constexpr (std::is_convertible_v<T, std::string>)
      value = Index(std::hash<std::string>{}(given));
    else if constexpr (std::is_floating_point_v<T>)
      value = std::bit_cast<Index>(double(given));
    else
      value = Index(given);
  }
  const char* name;
  Index value = 0;
};
/// Throws an agreed Error(usage) for the first of `given` in which the ranks differ; what each rank
/// refuses by these alone, all refuse then. Collective.
void require_alike(const Control& control, const std::vector<Alike>& given);

/// Empty, or on all ranks the same message: the ranks of a host together ask for more memory than
/// the host has free, or the ranks of a device for more than it has. bytes_device counts on the
/// bound CUDA device, 0 on the CPU backend. Collective.
std::string memory_shortage(const Control& control, Index bytes_host, Index bytes_device);
/// Throws Error(resources) on all ranks when there is a shortage. Call before reading.
void require_memory(const Control& control, Index bytes_host, Index bytes_device);

}  // namespace terrace
