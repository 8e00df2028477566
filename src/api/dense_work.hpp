// What the verbs of dense matrices share: plan, memory, one run of DenseSystem on the caller's rows.
#pragma once
#include <optional>
#include <utility>

#include "src/api/held.hpp"
#include "src/api/inside.hpp"
#include "src/api/terrace/dense.hpp"
#include "src/dense/system.hpp"

namespace terrace::api::dense {

/// From that order on a GPU gains, measured on an H200.
inline BackendHint hint(Index n) { return {double(n), 700}; }

/// Throws agreed Error(usage) where the ranks differ in these, or they do not fit. Collective.
void require_sizes(const Context::Inside& ranks, Index n, Index columns, Index right,
                   const Options& options, Assume assume = Assume::general);

terrace::dense::DenseRequest request_of(const Context::Inside& ranks, const Options& options);

/// Throws where a solution's ratio is too large.
void require_residual(double ratio);

/// A warning, where that is small.
void note_condition(Report& report, Index n);

template <class T, class B>
terrace::dense::RowReader reader(const Held<T, B>& held) {
  const auto read = [&held](bool there) {
    return [&held, there](std::span<const Range> ranges, const io::Sink<double>& sink) {
      held.read(ranges, sink, there);
    };
  };
  return {read(false), read(true)};
}

/// A system with its plan, and what was found.
template <class B>
class Work {
 public:
  /// `keeps`: bytes that the caller of this takes beside, where the rows are.
  Work(Context::Inside& ranks, terrace::Context<B>& context, Index n,
       const terrace::dense::DenseRequest& request, Index keeps = 0);

  /// Reads, solves and checks. Throws Code::outcome where there is no result; of a singular matrix
  /// only with `singular_is_error`.
  Report run(terrace::dense::RowReader a, terrace::dense::RowReader b, bool singular_is_error,
             std::optional<terrace::dense::StoredFactor> stored = {});
  /// After run() of a factor. `b` is read once, and once more for the check, if that is wanted.
  void solve_again(Report& report, Index right, const terrace::dense::RowReader& b, bool check);
  /// The result to the caller's rows.
  void give(Report& report, const Held<double, B>& to) const {
    timed(report.seconds.give, [&] {
      const terrace::dense::RowSource rows = system_->rows();
      if (!rows.data || !to.place(system_->destination(), rows.data, rows.ld))
        to.write(system_->destination(), rows.give, rows.anywhere);
    });
  }
  /// Before run(): what the readers read is refused with NaN or Inf.
  template <class... T>
  void refuse_not_finite(Held<T, B>&... read) {
    refuse_ = [&read...] { (read.require_finite(), ...); };
  }
  [[nodiscard]] const terrace::dense::DensePlan& plan() const { return plan_; }
  [[nodiscard]] const terrace::dense::DenseSystem<B>& system() const { return *system_; }
  [[nodiscard]] const terrace::dense::EliminationOutcome& found() const { return found_; }

 private:
  void check(Report& report, Progress& progress);

  Context::Inside& ranks_;
  terrace::Context<B>& context_;
  terrace::dense::DensePlan plan_;
  std::function<void()> refuse_;
  std::optional<terrace::dense::DenseSystem<B>> system_;
  terrace::dense::EliminationOutcome found_;
};

}  // namespace terrace::api::dense
