// The caller's band matrix as the solvers read one: by columns of m + 1 numbers, lower.
#pragma once
#include <optional>
#include <vector>

#include "kernels/band/forms.hpp"
#include "src/api/held.hpp"
#include "src/api/terrace/band.hpp"

namespace terrace::api {

/// The caller's memory itself where it is so already, on the host; else a copy that is, of
/// 8 (m + 1) bytes for each column of this rank's, on the device where the caller's is on one.
template <class B>
class HeldBand {
 public:
  /// Collective. Throws agreed Errors: usage, and input for NaN and Inf inside the matrix.
  HeldBand(terrace::Context<B>& context, Index n, const band::Matrix& a);
  HeldBand(HeldBand&&) noexcept = default;
  HeldBand& operator=(HeldBand&&) noexcept = default;
  /// As Held::read().
  void read(std::span<const Range> ranges, const io::Sink<double>& sink, bool there = false) const {
    held_->read(ranges, sink, there);
  }
  /// `count` of this rank's columns from the `at`-th on, to the host.
  void pack(Index at, Index count, double* out) const { held_->pack(at, count, out); }
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Index height() const { return height_; }
  [[nodiscard]] Range columns() const { return columns_; }
  [[nodiscard]] bool on_device() const { return own_there_.size() > 0; }
  /// Copies the numbers, so that the caller's memory may go.
  void keep(terrace::Context<B>& context);
  /// Order and half-bandwidth alone remain.
  void forget();

 private:
  void require_fitting(const Control& control, const band::Matrix& a, Index ld) const;
  void copy(const terrace::Context<B>& context, const band::Matrix& a, Index ld, bool as_it_is);
  void copy_on_device(const terrace::Context<B>& context, const terrace::band::BandForm& form);
  void from_upper(terrace::Context<B>& context);
  void hold(terrace::Context<B>& context, const double* data, Where where);
  void require_finite(terrace::Context<B>& context) const;
  Index n_, height_;
  Range columns_;
  Buffer<double, Cpu> own_;
  Buffer<double, B> own_there_;
  const double* data_ = nullptr;
  std::optional<Held<const double, B>> held_;
};

}  // namespace terrace::api
