// What gf2 rref, rank, solve, kernel and inverse share.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "distrib/agree.hpp"
#include "src/commands/gf2_run.hpp"
#include "src/program/profile.hpp"

namespace terrace::gf2_command {

inline void write_vector(io::Output& output, const Control& control, const std::string& name,
                         const auto& values) {
  using T = typename std::decay_t<decltype(values)>::value_type;
  const std::vector<Range> ranges = control.rank() == 0 && !values.empty()
                                        ? std::vector<Range>{{0, Index(values.size())}}
                                        : std::vector<Range>{};
  output.write<T>(name, Index(values.size()), -1, ranges, [&](Index position, Index count, T* out) {
    std::copy_n(values.begin() + position, count, out);
  });
}

/// The destination of every row of this rank when pivot rows go first, the others behind them.
inline std::vector<Index> pivot_rows_first(const BlockCyclic& layout, int rank,
                                           const Pivots& pivots) {
  std::vector<Index> sorted(pivots.rows);
  std::sort(sorted.begin(), sorted.end());
  std::vector<Index> destination(std::size_t(layout.slots(rank)), -1);
  for (Index q = 0; q < pivots.rank(); ++q)
    if (layout.owner(pivots.rows[std::size_t(q)]) == rank)
      destination[std::size_t(layout.slot(pivots.rows[std::size_t(q)]))] = q;
  for (Index slot = 0; slot < Index(destination.size()); ++slot) {
    if (destination[std::size_t(slot)] >= 0) continue;
    const Index row = layout.global(slot, rank);
    const Index before = std::lower_bound(sorted.begin(), sorted.end(), row) - sorted.begin();
    destination[std::size_t(slot)] = pivots.rank() + row - before;
  }
  return destination;
}

/// What rref, rank, solve, kernel and inverse share: the elimination of
///
///   | A | B | witness | check sums |    B for solve alone, check sums with --guard, a word each
template <class B>
class EliminationJob {
 public:
  /// `what`: for the amounts of work. `beside`: bytes on the backend that a rank takes besides.
  EliminationJob(Run& run, Context<B>& context, Files& files, const Gf2Options& o, const char* what,
                 EchelonForm form, std::function<Index(int ranks)> beside = {})
      : run_(run),
        context_(context),
        files_(files),
        what_(what),
        form_(form),
        layout_(bit_row_layout(files.a.rows(), run.control.size())),
        a_(file_source(context, files.a, layout_)),
        b_(files.b ? file_source(context, *files.b, layout_) : BitSource<B>{}),
        columns_(a_.columns),
        words_(a_.words() + b_.words()),
        seed_(witness_seed(run.options.seed)),
        plan_(plan_panels(context, panel_wish(run.options, o.candidates),
                          std::min(files.a.rows(), columns_), measured_panels(context))) {
    plan_.witness = seed_;
    memory_ = [this, beside = std::move(beside)](const PanelPlan& with, int ranks) {
      const BlockCyclic rows = bit_row_layout(files_.a.rows(), ranks);
      const Index all = words_ + extra_words();
      return BitMemory{BitMatrix<B>::bytes(rows, all) +
                           echelon_bytes<B>(rows, round_up(all, bit_row_alignment), with) +
                           (beside ? beside(ranks) : 0),
                       staging_bytes(std::max(a_.words(), b_.words()), rows.slots(0))};
    };
  }
  EliminationJob(const EliminationJob&) = delete;
  EliminationJob& operator=(const EliminationJob&) = delete;

  [[nodiscard]] Work work() const {
    BitWork w{machine_of(context_), what_,    elimination_method<B>(plan_),
              files_.a.rows(),      columns_, b_.columns,
              plan_.columns};
    w.k = plan_.product.shape.k;
    w.stored = plan_.product.stored;
    w.check = checks();
    w.output = !run_.options.output.empty() || run_.options.plan;
    return bit_work(w);
  }
  [[nodiscard]] PlanNeeds needs() const {
    note_plan<B>(run_, plan_, memory_);
    return plan_needs<B>(plan_, memory_, run_.control.size());
  }
  void describe() { describe_panels<B>(run_, plan_, layout_); }

  void read() {
    matrix_ = collectively(context_.control,
                           [&] { return BitMatrix<B>(context_, layout_, words_ + extra_words()); });
    load(context_, a_, matrix_);
    if (files_.b) load(context_, b_, matrix_, a_.words());
    put_witness(context_, matrix_, words_, seed_);
  }
  void solve() {
    pivots_ = reduce_to_echelon(context_, matrix_, columns_, form_, plan_, run_.progress);
  }
  /// Rank, and the rate of an elimination that updates `rows` rows on average.
  void outcome(double rows) {
    run_.report["result"]["rank"] = pivots_.rank();
    double sum = 0;
    for (const auto& panel : pivots_.panels)
      sum += double(panel.count) * rows * 64.0 * double(words_ - panel.word);
    rate(run_, sum);
  }
  void outcome() { outcome(double(layout_.extent)); }
  /// Of a reduced form.
  void check() {
    witness_ = witness_of_reduced(context_, matrix_, columns_, words_, pivots_, seed_);
  }
  /// What `verify` needs: pivots, the rows that carried them, the witness words.
  void write_terrace_group(bool with_span = false) {
    io::Output& output = *files_.output;
    output.group("terrace");
    write_vector(output, run_.control, "pivots", pivots_.columns);
    write_vector(output, run_.control, "pivot_rows", pivots_.rows);
    write_vector(output, run_.control, "witness", witness_.x);
    if (with_span) write_vector(output, run_.control, "span", witness_.y);
    output.group("");
    commit(output, run_, witness_);
  }
  /// The matrix's rows in their places, its first words.
  void write_rows(const char* name, Index rows) {
    files_.output->write_scattered<Word>(
        name, rows, a_.words(), pivot_rows_first(layout_, context_.rank(), pivots_),
        row_source<B>(context_, matrix_.rows(), 0, a_.words()), bits_attributes(columns_));
  }

 protected:
  [[nodiscard]] Index extra_words() const { return run_.options.guard ? 2 : 1; }
  [[nodiscard]] bool checks() const { return !run_.options.no_check; }

  Run& run_;
  Context<B>& context_;
  Files& files_;
  const char* what_;
  EchelonForm form_;
  BlockCyclic layout_;
  BitSource<B> a_, b_;
  Index columns_, words_;  ///< of A; words of A and B
  Word seed_;
  PanelPlan plan_;
  MemoryOf memory_;
  BitMatrix<B> matrix_;
  Pivots pivots_;
  Witness witness_;
};

}  // namespace terrace::gf2_command
