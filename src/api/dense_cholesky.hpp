// A dense matrix that may be positive definite, by the band's Cholesky: as a band of all columns.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dense/probes.hpp"
#include "src/api/band_work.hpp"
#include "src/api/dense_work.hpp"
#include "src/dense/cholesky.hpp"

namespace terrace::api::dense {

/// One factorization, with a system or for systems to come. It stays where it was made.
template <class B>
class ByCholesky {
 public:
  ByCholesky(Context::Inside& ranks, terrace::Context<B>& on, Index n, terrace::dense::RowReader a)
      : ranks_(ranks), context_(on), n_(n), matrix_(on.control, n, std::move(a)) {}
  ByCholesky(const ByCholesky&) = delete;
  ByCholesky& operator=(const ByCholesky&) = delete;

  /// Factors, and solves for `right` columns that `b` reads; without any the factor is for solve().
  /// False where the matrix is not one for this, and `why`, unless it only looked so. `keeps`: bytes
  /// that the caller takes beside, where the rows are. Throws as band::Work. Collective.
  bool attempt(Assume assume, Index right, terrace::band::ReadRanges b, Index keeps,
               std::string& why) {
    if (assume == Assume::automatic && !matrix_.looks_definite()) return false;
    terrace::band::BandSystem system = system_of(right);
    system.matrix = {n_, n_ - 1,
                     [this, columns = matrix_.columns()](std::span<const Range> ranges,
                                                         const io::Sink<double>& sink) {
                       columns(ranges, [&](Index position, Index count, const double* data) {
                         for (Index k = 0; k < count; ++k)
                           largest_ = std::max(largest_, std::fabs(data[k * n_]));
                         sink(position, count, data);
                       });
                     }};
    system.rhs = std::move(b);
    begin(std::move(system), right, keeps, false);
    if (const auto refused = matrix_.refused(work_->done->failure.minor)) {
      why = fmt::format("the matrix is {}; LU goes on", refused->words());
      return false;
    }
    work_->finish();
    report.log_abs_determinant = work_->report.log_abs_determinant;
    timed(work_->report.seconds.check, [&] { check(); });
    report.seconds = work_->report.seconds;
    return true;
  }
  /// In place of attempt(): L is there already, read by `columns`; the condition is known.
  void adopt(terrace::dense::RowReader columns, double reciprocal_condition, double largest,
             Index keeps) {
    terrace::band::BandSystem system = system_of(0);
    system.matrix = {n_, n_ - 1, matrix_.columns()};
    system.factor = {n_, n_ - 1, std::move(columns)};
    largest_ = largest;
    begin(std::move(system), 0, keeps, true);
    work_->finish();
    report.log_abs_determinant = work_->report.log_abs_determinant;
    report.reciprocal_condition = reciprocal_condition;
    report.seconds = work_->report.seconds;
    note_condition(report, n_);
  }
  /// After attempt(): to := the solution.
  void give(const Held<double, B>& to, Index right) {
    work_->give(to, right);
    report.seconds = work_->report.seconds;
  }

  /// Right-hand sides that solve() takes at once.
  static constexpr Index room = 64;
  /// Rows of this rank, in the order in which solve() has them.
  [[nodiscard]] const std::vector<Range>& ranges() const { return work_->done->ranges; }
  /// After attempt() without right-hand sides: x := A^-1 x, `right` numbers for each row of ranges().
  void solve(std::vector<double>& x, Index right) const {
    if (!work_->done->solve_more(x, right))
      throw std::logic_error("a whole matrix has a factor in tile columns");
  }
  /// The largest |A[i, j]|, that of the diagonal. Collective.
  [[nodiscard]] double largest() const { return context_.control.reduce(largest_, Reduce::max); }
  /// Numbers from the diagonal on of columns of L.
  void columns(Index position, Index count, double* out) const {
    std::fill_n(out, count * n_, 0.0);
    work_->done->copy_factor(position, count, n_, out);
  }

  Report report;

 private:
  [[nodiscard]] terrace::band::BandSystem system_of(Index right) const {
    terrace::band::BandSystem system;
    system.folder = std::string(1, '.');
    system.guard = ranks_.options.guard;
    system.more = right > 0 ? terrace::dense::condition_probes : room;
    return system;
  }
  void begin(terrace::band::BandSystem system, Index right, Index keeps, bool stored) {
    band::Options options;
    if (right == 0) options.method = "tile-columns";  // keeps its factor
    work_.emplace(ranks_, context_, std::move(system), reading_, right, options, stored);
    work_->keeps = keeps;
    work_->attempt();
    work_->progress.asked = {};  // of this run alone
  }
  void check() {
    report.reciprocal_condition = matrix_.reciprocal_condition(
        ranges(),
        [&](std::vector<double>& rows) { solve(rows, terrace::dense::condition_probes); });
    note_condition(report, n_);
    if (!ranks_.options.check) return;
    report.residual = work_->done->residual();
    if (!(report.residual < terrace::band::kBandPass))
      check_failed(fmt::format("the residual is {:.3g}, above {}", report.residual,
                               terrace::band::kBandPass));
  }

  Context::Inside& ranks_;
  terrace::Context<B>& context_;
  const Index n_;
  double largest_ = 0;  ///< of this rank's columns
  terrace::dense::SymmetricMatrix matrix_;
  band::Reading reading_;
  std::optional<band::Work<B>> work_;
};

}  // namespace terrace::api::dense
