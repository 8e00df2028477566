// The caller's band matrix as the solvers read one: by columns of m + 1 numbers, lower.
#pragma once
#include <optional>
#include <vector>

#include "src/api/held.hpp"
#include "src/api/inside.hpp"
#include "src/api/terrace/band.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::api {

/// Throws an agreed Error(usage) where the ranks' matrices differ in size or triangle, or the ranks in
/// `others`. Collective.
void require_alike(const Context::Inside& ranks, Index n, const band::Matrix& a,
                   std::vector<Alike> others = {});

/// The caller's memory itself where it is so already, on the host; else a copy that is, of
/// 8 (m + 1) bytes for each column of this rank's, on the device where the caller's is on one.
template <class B>
class HeldBand {
 public:
  /// After require_alike(). Collective. Throws agreed Errors: usage, and input for NaN and Inf inside
  /// the matrix.
  /// `lent`: of one rank, in memory of B, nothing is copied before it has to be; here() is the caller's
  /// memory, and require_placed_finite() throws.
  HeldBand(terrace::Context<B>& context, Index n, const band::Matrix& a, bool lent = false);
  HeldBand(HeldBand&&) noexcept = default;
  HeldBand& operator=(HeldBand&&) noexcept = default;
  /// What is lent, as terrace::band::BandReader::here.
  [[nodiscard]] terrace::band::BandHere here() const;
  /// One word in the memory of B, zero at first: others may note there what they find, too. Null: the matrix
  /// was not lent.
  [[nodiscard]] Index* not_finite() const { return not_finite_.data(); }
  /// After reading what is lent: throws where the word is set and the matrix to blame; false where it is set
  /// and the matrix is not.
  bool require_placed_finite();
  /// As Held::read().
  void read(std::span<const Range> ranges, const io::Sink<double>& sink, bool there = false) {
    own();
    held_->read(ranges, sink, there);
  }
  /// `count` of this rank's columns from the `at`-th on, to the host.
  void pack(Index at, Index count, double* out) const { held_->pack(at, count, out); }
  [[nodiscard]] Index n() const { return n_; }
  [[nodiscard]] Index height() const { return height_; }
  [[nodiscard]] Range columns() const { return columns_; }
  [[nodiscard]] bool on_device() const { return own_there_.size() > 0; }
  /// Copies the numbers, so that the caller's memory may go.
  void keep();
  /// Order and half-bandwidth alone remain.
  void forget();

 private:
  void require_fitting(const Control& control, const band::Matrix& a, Index ld) const;
  /// What is lent is copied.
  void own();
  void take(bool across);
  void copy(bool as_it_is);
  void copy_on_device();
  void from_upper();
  void hold(const double* data, Where where);
  void require_finite() const;
  terrace::Context<B>* context_;
  Index n_, height_;
  band::Matrix given_;  ///< with a leading dimension
  bool lent_ = false;
  Buffer<Index, B> not_finite_;
  Range columns_;
  Buffer<double, Cpu> own_;
  Buffer<double, B> own_there_;
  const double* data_ = nullptr;
  std::optional<Held<const double, B>> held_;
};

}  // namespace terrace::api
