#include "src/commands/band_job.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "io/unfinished.hpp"
#include "kernels/base/parallel.hpp"
#include "src/commands/band_plan.hpp"
#include "src/dense/cholesky.hpp"
#include "src/frame/guard.hpp"

namespace terrace::band {
namespace {

/// One method gives up and another goes on: on the screen, and in the report after earlier notes.
void note_fall_back(Run& run, const std::string& note) {
  run.say(note);
  const std::string before = run.report.value("note", "");
  run.report["note"] = before.empty() ? note : before + "; " + note;
}

void note_mixed(Run& run, const BandNotes& notes) {
  nlohmann::json& report = run.report["result"];
  report["iterations"] = notes.found.iterations;
  report["restarts"] = notes.found.restarts;
  report["shift"] = notes.shift;
  if (notes.factored)
    report["preconditioned_eigenvalues"] = {notes.found.smallest, notes.found.largest};
}

/// band solve, or band factor where there is no right-hand side.
template <class B>
class BandJob : public PlannedBand<B> {
  using Base = PlannedBand<B>;
  using Base::c_, Base::plan_, Base::request_, Base::run_, Base::system_, Base::nrhs, Base::shape,
      Base::solves;

 public:
  BandJob(Run& run, Context<B>& context, BandFiles& files, BandSystem& system,
          const BandRequest& request)
      : Base(run, context, system, request), files_(files) {
    BandPlan plan = plan_system<B>(system, request);
    const bool in_slabs = plan.method == BandMethod::streamed && !plan.tile_by_tile;
    if (run.progress.checkpoints && files.factor && !in_slabs)
      fail_together(Exit::usage,
                    "a solve with a stored factor has checkpoints on one rank by --method streamed "
                    "only; --checkpoint, --restart; leave them out, or solve so");
    if (!plan.note.empty()) {
      note_not_mixed();
      if (!run.options.plan) note_fall_back(run, plan.note);
    }
    choose(std::move(plan));
    if (solves())  // known once b is read
      system.rhs = [this, read = system.rhs](std::span<const Range> rows, const auto& sink) {
        read(rows, sink);
        note_diagonal();
      };
  }

  [[nodiscard]] PlanNeeds needs() const override {
    PlanNeeds needs = Base::needs();
    if (files_.dense)  // which has no ways to ask for
      std::erase_if(needs.alternatives, [](const auto& other) {
        return std::string(other.words).find("--method") != std::string::npos;
      });
    return needs;
  }
  void go(Run&) override {
    BandHooks hooks;
    hooks.phase = [&](const auto& name, const auto& work) {
      // A matrix that is not symmetric is not factored first, where reading comes before.
      if (name == "solve" && files_.dense && !system_.factor) files_.dense->judge(0);
      run_.phase(name, work);
    };
    hooks.note = [&](const std::string& text) { note_fall_back(run_, text); };
    hooks.instead = [&](const BandPlan& failed, const BandNotes& notes, const BandPlan& now) {
      if (failed.method == BandMethod::mixed) {
        note_mixed(run_, notes);
        note_not_mixed();
      } else {
        run_.settings["instead_of"] = to_string(failed.method);
      }
      note_fall_back(run_, now.note);
      choose(now);
      const RankMemory memory = Base::needs().memory(c_.size());
      require_memory(run_.control, memory.host, memory.device);
    };
    if (!solves()) note_diagonal();
    done_ = solve_band(c_, system_, request_, plan_, run_.progress, hooks);
  }
  void outcome() override {
    const BandNotes& notes = done_->notes;
    const bool mixed = plan_.method == BandMethod::mixed;
    if (files_.dense) files_.dense->judge(done_->failure.minor);
    if (plan_.method == BandMethod::streamed && !plan_.tile_by_tile) {
      run_.report["parts"] = notes.parts;
      if (!system_.factor) run_.report["reading_within_solve"] = notes.reading;
    }
    if (mixed) note_mixed(run_, notes);
    require_definite();
    if (mixed) run_.report["result"]["backward_error"] = notes.found.backward_error;
    if (solves()) {
      if (plan_.method == BandMethod::tile_columns)
        note_place("substitution", system_.places.substitution);
      double flops = band_solve_flops(shape().n, shape().half_bandwidth, nrhs());
      if (!system_.factor) flops += Base::factor_flops();
      run_.rate(flops * 1e-9 / run_.seconds("solve"), "GFLOP/s");
    } else {
      run_.rate(Base::factor_flops() * 1e-9 / run_.seconds("solve"), "GFLOP/s");
    }
    done_->finish();
    if (mixed && std::isfinite(notes.condition))
      run_.report["condition_estimate"] = notes.condition;
    note_determinant(mixed);
    if (files_.dense) run_.phase("condition", [&] { note_condition(); });
  }
  void expect(bool early) override {
    files_.output->expect(8 * shape().n * (solves() ? nrhs() : system_.matrix.half_bandwidth + 1),
                          early);
  }
  /// Of the solution, against b read again, or of the factor.
  void check() override {
    double reciprocal = 1;  // of the condition, at least
    const double found = done_->residual(&reciprocal);
    const std::string where = io::to_string(files_.location);
    run_.report["residual"] = found;
    if (!(found < kBandPass)) {
      if (run_.options.guard && !done_->verify()) try_again(found, reciprocal);
      run_.outcome("check failed",
                   fmt::format("the residual is {:.3g}, above {}; {}; the matrix may be too ill "
                               "conditioned, or the factor belongs to another matrix",
                               found, kBandPass, where));
    }
    if (!files_.dense)
      warn_of(reciprocal, " at most");
    else if (system_.factor)
      files_.dense->judge(0);  // has just been read
  }
  void write() override {
    io::Output& output = *files_.output;
    if (solves()) {
      output.write<double>("x", shape().n, files_.rhs->is_vector() ? -1 : nrhs(), done_->ranges,
                           [&](Index position, Index count, double* out) {
                             std::copy_n(done_->rows.begin() + position * nrhs(), count * nrhs(),
                                         out);
                           });
      return output.commit(run_.attributes());
    }
    const Index height = system_.matrix.half_bandwidth + 1;
    const io::Source<double> columns = [&](Index position, Index count, double* out) {
      std::fill(out, out + count * height, 0.0);
      done_->copy_factor(position, count, height, out);
    };
    io::Attributes attributes{{"content", std::string("Cholesky factor")},
                              {"matrix", run_.inputs["input"].template get<std::string>()},
                              {"log_abs_determinant", log_determinant_}};
    if (files_.dense) {
      attributes["uplo"] = std::string("upper");
      attributes["reciprocal_condition"] = reciprocal_;
      output.write<double>("factor", height, height, done_->ranges,
                           terrace::dense::upper_rows(height, done_->ranges, columns), attributes);
    } else {
      attributes["uplo"] = std::string("lower");
      attributes["format"] = std::string("band");
      output.write_columns("factor", height, shape().n, done_->ranges, columns, attributes);
    }
    output.commit(run_.attributes());
  }
  [[nodiscard]] std::string problem() const override {
    std::string text = files_.dense
                           ? fmt::format("symmetric positive definite matrix, n = {}", shape().n)
                           : fmt::format("band matrix, n = {}, half-bandwidth {}", shape().n,
                                         system_.matrix.half_bandwidth);
    if (solves()) text += ", " + counted(nrhs(), "right-hand side");
    return text;
  }
  [[nodiscard]] std::string answer() const override {
    const BandNotes& notes = done_->notes;
    const bool mixed = plan_.method == BandMethod::mixed;
    std::string text = solves() ? "x" : "Cholesky factor";
    if (reciprocal_ > 0) text += fmt::format(", condition {:.2g}", 1 / reciprocal_);
    text += fmt::format(", log-determinant {}{:.10g}", mixed ? "about " : "", log_determinant_);
    if (mixed)
      text += fmt::format(
          "\nmixed precision: {}, {}, backward error {:.3g}, condition about {:.3g}",
          counted(notes.found.iterations, "iteration"), counted(notes.found.restarts, "restart"),
          notes.found.backward_error, notes.condition);
    return text;
  }

 private:
  void choose(BandPlan plan) {
    Base::choose(std::move(plan));
    if (!files_.dense) return;
    run_.report["way"] = run_.report["method"];
    run_.report["method"] = "cholesky";
    if (solves()) run_.report["columns"] = nrhs();
    for (const char* key : {"half_bandwidth", "parts"}) run_.report.erase(key);
  }
  /// In mixed precision an estimate, with its standard error.
  void note_determinant(bool mixed) {
    nlohmann::json& result = run_.report["result"];
    double error = 0;
    if (mixed)
      run_.phase("condition", [&] { log_determinant_ = done_->log_determinant(&error); });
    else
      log_determinant_ = done_->log_determinant();
    result["log_abs_determinant"] = log_determinant_;
    if (files_.dense) result["determinant_sign"] = 1;
    if (mixed) result["log_abs_determinant_error"] = error;
  }
  /// Of a dense matrix, by solves with the factor.
  void note_condition() {
    reciprocal_ = files_.dense->reciprocal_condition(done_->ranges, [&](std::vector<double>& rows) {
      (void)done_->solve_more(rows, files_.dense->probes);
    });
    run_.report["result"]["reciprocal_condition"] = reciprocal_;
    warn_of(reciprocal_, "");
  }
  /// What has passed its check may still have no right digit. `bound`: words behind the number.
  void warn_of(double reciprocal, const char* bound) {
    if (reciprocal < double(shape().n) * std::numeric_limits<double>::epsilon())
      run_.warn(
          fmt::format("the reciprocal condition is {:.2g}{}, below n * 2.2e-16: rounding "
                      "alone may have changed every digit of the result; {}; compare it with a "
                      "run on slightly changed numbers, or scale rows and columns so that the "
                      "diagonal is near one",
                      reciprocal, bound, io::to_string(files_.location)));
  }
  void note_not_mixed() {
    run_.report["precision"] = "fp64";
    run_.settings["precision"] = kNotMixed;
  }
  void note_place(const char* work, const std::string& asked) {
    run_.report["places"][work] = std::is_same_v<B, Cpu> || asked == "cpu" ? "cpu" : "gpu";
  }
  void note_diagonal() {
    if (plan_.method == BandMethod::tile_columns && !system_.factor)
      note_place("diagonal", system_.places.diagonal);
  }
  void require_definite() {
    const BandFailure& failure = done_->failure;
    if (failure.minor == 0) return;
    const std::string where = io::to_string(files_.location);
    if (failure.unscalable)
      run_.outcome(
          "not positive definite",
          fmt::format("the pivot of row {} is out of range, and the entries differ too much for a "
                      "single scale factor; {}; scale rows and columns so that the "
                      "diagonal is near one, or use --method tile-columns",
                      failure.minor, where));
    if (run_.options.guard) run_.require_same_inputs();
    if (failure.passing)
      confirmed_fault(c_.control,
                      fmt::format("the leading minor of order {} was not positive definite, but is "
                                  "with the matrix read again",
                                  failure.minor));
    run_.report["result"]["failed_minor"] = failure.minor;
    run_.outcome("not positive definite",
                 fmt::format("the matrix is not positive definite: its leading minor of order {} "
                             "is not positive; {}; check the matrix, or shift its diagonal",
                             failure.minor, where));
  }
  /// --guard of methods without sums on the way: the check has failed, and all is done once more
  /// with the matrix read again.
  void try_again(double before, double& reciprocal) {
    run_.say("--guard: the check failed; the matrix is read and solved again");
    double now = std::numeric_limits<double>::infinity();
    if (done_->again()) now = done_->residual(&reciprocal);
    require_definite();
    run_.require_same_inputs();
    if (now < kBandPass)
      confirmed_fault(c_.control, fmt::format("the residual was {:.3g}, but is {:.3g} with the "
                                              "matrix read and solved again",
                                              before, now));
  }

  BandFiles& files_;
  std::unique_ptr<BandResult<B>> done_;
  double log_determinant_ = 0, reciprocal_ = 0;
};

}  // namespace

BandReader reader_of(const Run& run, const io::BandInput& input) {
  BandReader reader{input.n(), input.half_bandwidth(),
                    [&](std::span<const Range> ranges, const io::Sink<double>& sink) {
                      input.read(run.control, ranges, sink);
                    }};
  if (input.by_diagonals())
    reader.diagonals = [&](Range columns, const io::Sink<double>& sink) {
      input.read_diagonals(run.control, columns, sink);
    };
  return reader;
}

void conduct_band(Run& run, BandFiles& files, const BandOptions& options, BandRequest& request) {
  const std::string& output = run.options.output;
  BandSystem system;
  system.matrix = files.matrix;
  system.reread = files.reread;
  system.where = io::to_string(files.location);
  system.factor = files.factor;
  if (files.rhs)
    system.rhs = [&](std::span<const Range> ranges, const io::Sink<double>& sink) {
      files.rhs->read(run.control, ranges, sink);
    };
  system.places = options.places;
  system.scratch = options.scratch;
  system.folder = output.empty() ? "." : io::folder_of(io::parse_location(output).file);
  system.guard = run.options.guard;
  if (files.dense) system.more = files.dense->probes;
  system.seed = Word(run.options.seed);
  request.n = files.matrix.n;
  request.half_bandwidth = files.matrix.half_bandwidth;
  request.nrhs = files.rhs ? files.rhs->columns() : 0;
  request.check = !run.options.no_check;
  if (!run.options.plan) files.output.emplace(run.control, output, run.options.force);
  if (files.rhs) {
    run.report["right_hand_sides"] = request.nrhs;
    run.report["precision"] = "fp64";
  }
  with_backend(run, [&]<class B>(Context<B>& c) {
    check_places(B{}, options.places);
    note_memory(c, request);
    BandJob<B> job(run, c, files, system, request);
    conduct(run, c, job);
  });
}

}  // namespace terrace::band
