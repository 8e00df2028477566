// The ways to solve behind src/band/system.hpp, each with its memory and what it tries again.
#pragma once
#include "distrib/agree.hpp"
#include "io/scratch.hpp"
#include "src/band/stream.hpp"
#include "src/band/system.hpp"
#include "src/frame/guard.hpp"
#include "src/frame/kept_input.hpp"

namespace terrace::band {

/// What a way works with.
template <class B>
struct BandTask {
  Context<B>& c;
  const BandSystem& system;
  const BandRequest& request;
  Progress& progress;
  BandHooks hooks;
};

/// All ranks call all members, in this order, and then those of the result. Until finish() its rows
/// are those of B.
template <class B>
class BandWay : public BandResult<B>, protected BandTask<B> {
 protected:
  using BandTask<B>::c, BandTask<B>::system, BandTask<B>::request;

 public:
  /// `own`: rows of this rank.
  BandWay(const BandTask<B>& task, const BandPlan& plan, const BlockCyclic& own)
      : BandWay(task, plan) {
    this->ranges = own.ranges(c.rank());
    slots_ = BlockCyclic{plan.shape.padded(), own.block, own.ranks}.slots(c.rank());
  }
  BandWay(const BandTask<B>& task, const BandPlan& plan, const Range& own) : BandWay(task, plan) {
    this->ranges = {own};
    slots_ = own.count;
  }

  virtual void take() = 0;
  virtual void read() = 0;
  /// What is kept is compared with the file from now on.
  void read_again() { kept_.begin(); }
  /// `failure`, or why another way has to do it; empty: it need not.
  virtual std::string solve() = 0;
  /// Tries `failure` again, where that may tell more.
  virtual void settle() {}

 protected:
  BandWay(const BandTask<B>& task, const BandPlan& plan)
      : BandResult<B>(plan), BandTask<B>(task), problem_(band_problem<B>(system.matrix)) {}
  [[nodiscard]] bool solves() const { return bool(system.rhs); }
  [[nodiscard]] bool stored() const { return bool(system.factor); }
  [[nodiscard]] std::vector<double> right_hand_sides() const {
    std::vector<double> b = collectively(
        c.control, [&] { return std::vector<double>(std::size_t(slots_ * request.nrhs), 0.0); });
    system.rhs(this->ranges, [&](Index position, Index count, const double* data) {
      std::copy(data, data + count * request.nrhs, b.begin() + position * request.nrhs);
    });
    return b;
  }
  [[nodiscard]] const std::string& scratch_folder() const {
    return system.scratch.empty() ? system.folder : system.scratch;
  }
  template <class Rows>
  double residual_of_rows(const Rows& own, double* reciprocal) {
    return band_residual<B>(c, for_check(), own, this->rows, right_hand_sides(), request.nrhs,
                            reciprocal);
  }
  /// Of one rank, with system.rhs_at: x without gaps in memory of the backend.
  double residual_there(View<const double, B> x, double* reciprocal) {
    return band_residual<B>(c, for_check(), x, {system.rhs_at, x.size}, request.nrhs, reciprocal);
  }
  [[nodiscard]] Index planned() const {
    const BandBytes bytes = band_bytes<B>(this->plan, system, request.nrhs, true);
    return std::is_same_v<B, Cpu> ? bytes.host + bytes.backend : bytes.backend + bytes.check;
  }
  /// Before the matrix is read: whether kept_ takes its columns. Of one rank, which reads all of them.
  bool keeps() {
    const Range all{0, problem_.n};
    return c.size() == 1 && request.check && !system.guard && !stored() &&
           system.matrix.half_bandwidth == problem_.half_bandwidth &&
           kept_.take(c, system.reread, {&all, 1}, problem_.half_bandwidth + 1, planned());
  }
  /// The matrix again: what was kept, once the file is known to be the same, or else the file.
  [[nodiscard]] BandProblem<B> for_check() {
    kept_.require_same(c.control, system.where);
    if (!kept_.holds()) return problem_;
    return {problem_.n, problem_.half_bandwidth,
            [this](Context<B>& context, Range columns, Index height, Index ld, View<double, B> to) {
              const Index width = problem_.half_bandwidth + 1;
              copy_rows<double, B>(context.ahead, to.data, ld,
                                   kept_.doubles().data + columns.first * width, width, height,
                                   columns.count);
            }};
  }
  /// Whether `rows` gets X; makes room for it.
  [[nodiscard]] bool wants_rows() {
    if (system.rhs_at) return false;
    this->rows.resize(std::size_t(slots_ * request.nrhs));
    return true;
  }
  [[nodiscard]] Index numbers_of_rows() const { return problem_.n * request.nrhs; }
  /// Of one rank, all rows of X; behind them stands zero.
  [[nodiscard]] View<double, B> whole_rows(const Buffer<double, B>& x) const {
    return x.view().slice(0, numbers_of_rows());
  }
  /// Numbers on the backend from the host, or there.
  void put_rows(View<double, B> to) const {
    upload(c.ahead, to.slice(0, Index(this->rows.size())), this->rows.data());
    c.ahead.synchronize();
  }
  /// What solve_more() promises, by substitute(x).
  template <class F>
  bool solve_in_vectors(std::vector<double>& more, Index nrhs, const F& substitute) {
    BandVectors<B> x =
        collectively(c.control, [&] { return band_vectors<B>(c, this->plan.shape, nrhs); });
    const View<double, B> own = x.data.view().slice(0, Index(more.size()));
    upload(c.ahead, own, static_cast<const double*>(more.data()));
    substitute(x);
    download(c.ahead, more.data(), View<const double, B>(own));
    c.ahead.synchronize();
    return true;
  }
  void get_rows_of(View<const double, B> from) {
    download(c.ahead, this->rows.data(), from.slice(0, Index(this->rows.size())));
    c.ahead.synchronize();
  }

  const BandProblem<B> problem_;
  KeptInput<B> kept_;
  Index slots_ = 0;  ///< rows of BandResult::rows
};

/// By tile columns or in parts: the band in memory of the backend.
template <class B>
std::unique_ptr<BandWay<B>> band_way_in_memory(const BandTask<B>& task, const BandPlan& plan);
/// In mixed precision, there too.
template <class B>
std::unique_ptr<BandWay<B>> band_way_mixed(const BandTask<B>& task, const BandPlan& plan);
/// The band in memory of the host, or in a scratch file: in slabs on one rank.
template <class B>
std::unique_ptr<BandWay<B>> band_way_streamed(const BandTask<B>& task, const BandPlan& plan);
/// In a window, on any number of ranks.
template <class B>
std::unique_ptr<BandWay<B>> band_way_in_window(const BandTask<B>& task, const BandPlan& plan);

/// This rank's tile columns of the matrix, or of a factor of it, in clear tile columns.
template <class B>
void read_tiles(Context<B>& c, const BandReader& from, BandTiles<B>& a) {
  const BandShape& s = a.shape;
  const Index stored = from.half_bandwidth + 1;
  const BlockCyclic columns{s.n, s.width, c.size()};
  // Below row n stands zero already.
  const auto height = [&](Index column) { return std::min(s.half_bandwidth + 1, s.n - column); };
  if (const BandHere here = from.here ? from.here() : BandHere{}) {
    place_columns<B>(c, here, s.n, {0, s.n}, height(0), s.column(), a.data.data());
    return c.ahead.synchronize();
  }
  if (turns_there(c, from))
    return turn_columns<B>(c, from, columns.ranges(c.rank()), s.half_bandwidth + 1, a.data.view(),
                           s.column());
  from.read(columns.ranges(c.rank()), [&](Index position, Index count, const double* data) {
    copy_rows<double, B>(c.ahead, a.data.data() + position * s.column(), s.column(), data, stored,
                         height(columns.global(position, c.rank())), count);
    c.ahead.synchronize();
  });
}

/// All of it in a file, which has to outlive it and may not move.
inline BandStreamStore band_store(const io::ScratchFile& file) {
  constexpr Index word = sizeof(double);
  return {[&file](Index at, const double* from, Index count) {
            file.write(at * word, from, count * word);
          },
          [&file](Index at, double* to, Index count) { file.read(at * word, to, count * word); }};
}

}  // namespace terrace::band
