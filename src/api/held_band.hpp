// The caller's band matrix as the solvers read one: by columns of m + 1 numbers, lower.
#pragma once
#include <optional>
#include <vector>

#include "src/api/held.hpp"
#include "src/api/terrace/band.hpp"

namespace terrace::api {

/// The caller's memory itself where it is so already, on the host; else a copy that is, of
/// 8 (m + 1) bytes for each column of this rank's.
template <class B>
class HeldBand {
 public:
  /// Collective. Throws agreed Errors: usage, and input for NaN and Inf inside the matrix.
  HeldBand(terrace::Context<B>& context, Index n, const band::Matrix& a);
  HeldBand(HeldBand&&) noexcept = default;
  HeldBand& operator=(HeldBand&&) noexcept = default;
  void read(std::span<const Range> ranges, const io::Sink<double>& sink) const {
    held_->read(ranges, sink);
  }
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Index height() const { return height_; }
  [[nodiscard]] Range columns() const { return columns_; }
  /// Copies the numbers, so that the caller's memory may go.
  void keep(terrace::Context<B>& context);

 private:
  void copy(terrace::Context<B>& context, const band::Matrix& a, Index ld);
  void from_upper(terrace::Context<B>& context);
  void hold(terrace::Context<B>& context, const double* data);
  void require_finite(const Control& control, const double* data) const;
  Index n_, height_;
  Range columns_;
  std::vector<double> own_;
  const double* data_ = nullptr;
  std::optional<Held<const double, B>> held_;
};

}  // namespace terrace::api
