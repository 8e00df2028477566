#include "src/cg/work.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "src/cg/diagonal.hpp"
#include "src/cg/operators_triangle.hpp"
#include "src/cg/operators_user.hpp"

namespace terrace::cg {

namespace {

/// What A multiplies, in the vectors of a method.
template <class B>
auto vectors_of(CgMethod method, Operand<B>&& operand) {
  decltype(CgWork<B>::vectors) vectors;
  if (method == CgMethod::classic)
    vectors.template emplace<CgClassic<B>>().p = std::move(operand);
  else if (method == CgMethod::single_reduction)
    vectors.template emplace<CgSingleReduction<B>>().u = std::move(operand);
  else
    vectors.template emplace<CgPipelined<B>>().m = std::move(operand);
  return vectors;
}

}  // namespace

template <class B>
Index CgWork<B>::bytes(Index rows, bool jacobi, Index columns, CgMethod method, bool general) {
  const Index vectors = method == CgMethod::classic            ? 6 + (general ? 1 : 0)
                        : method == CgMethod::single_reduction ? 7
                                                               : 9 + (general ? 2 : 0);
  return 8 * rows * (vectors * columns + (jacobi ? 1 : 0)) +
         2 * 8 * (CgPass<B>::partial_count + SumSpace<B>::pieces * columns);
}

template <class B>
template <class A>
CgWork<B>::CgWork(const Context<B>& context, A& a, bool jacobi, Index columns_, CgMethod method_)
    : columns(columns_),
      local_rows(a.rows().count),
      method(method_),
      vectors(vectors_of(method_, a.operand(context, columns_))),
      sums(collectively(context.control, [&] { return SumSpace<B>(context.ahead, columns_); })) {
  const Index count = local_rows, size = cg_row::size(columns);
  collectively(context.control, [&] {
    for (Buffer<double, B>* vector : {&b, &x, &r}) *vector = Buffer<double, B>(count * columns);
    const Index product_rows = A::replicated ? triangle::padded(count) : count;
    std::visit([&](auto& v) { v.allocate(count, product_rows); }, vectors);
    scalars = Buffer<double, B>(4 * size + 3 * cg_most_columns);
    ring = Buffer<double, B>(ring_rows * size);
    partials = Buffer<double, B>(CgPass<B>::partial_count);
    finished = Buffer<Index, B>(1);
    ticket = Buffer<Word, B>(1);
    seen = PinnedBuffer<double>(ring_rows * size);
    if (jacobi) inverse_diagonal = Buffer<double, B>(count);
    if constexpr (requires { hold(context, a); })
      if (context.size() == 1 && columns == 1 && method == CgMethod::classic) hold(context, a);
  });
  fill_zero(context.ahead, scalars.view());
  fill_zero(context.ahead, ticket.view());
  normalise(context, a);
  norm = a.scale.norm;
  const View<double, B> diagonal = jacobi ? inverse_diagonal.view() : r.view().slice(0, count);
  a.take_diagonal(context, diagonal);
  const DiagonalFaults faults = faults_of<B>(context, diagonal, a.rows());
  negative_row = faults.negative;
  unusable_row = faults.unusable;
  if (jacobi) invert_each<B>(context.ahead, diagonal, diagonal);
}

template <class B>
void CgWork<B>::hold(const Context<B>& context, const TriangleOperator<B>& a) {
  if constexpr (std::is_same_v<B, Cuda>) {
    if (a.tiles().read != triangle::Read::whole || !resident_cg_fits(a.n())) return;
    resident.vectors = Buffer<double, B>(3 * triangle::padded(local_rows));
    resident.scratch = Buffer<double, B>(resident_cg_scratch(a.n()));
    resident.on = true;
    fill_zero(context.ahead, resident.vectors.view());
  }
}

template <class B>
void CgWork<B>::hold(const Context<B>& context, const CsrOperator<B>& a) {
  const Stream<B>& lane = context.ahead;
  Resident made;
  made.size = resident_csr_size(B{}, a.n(), a.entries());
  if (made.size.shares == 0) return;
  made.list = Buffer<std::int32_t, B>(made.size.shares * made.size.room);
  made.place = Buffer<std::uint16_t, B>(made.size.places);
  made.bounds = Buffer<Index, B>(made.size.bounds);
  deal_shares(lane, made.shares(a.matrix()));
  std::vector<Index> bounds(std::size_t(made.size.bounds));
  download(lane, bounds.data(), made.bounds.view());
  lane.synchronize();
  if (!resident_csr_fits(B{}, made.size, bounds)) return;
  made.scratch = Buffer<double, B>(made.size.scratch);
  made.on = true;
  resident = std::move(made);
}

template <class B>
void CgWork<B>::precondition(const Context<B>& context, CgPreconditioner<B> given, int power) {
  general = std::move(given);
  general_power = power;
  inverse_diagonal = {};
  collectively(context.control,
               [&] { std::visit([&](auto& v) { v.precondition(local_rows); }, vectors); });
}

template <class B>
template <class A>
void CgWork<B>::archive(Archive& archive, const Context<B>& c, const A& a, Index launched) {
  Range own = a.rows();
  Index from = 0;
  if (A::replicated && !archive.loading()) {  // whole on every rank, written in slices
    const Index block = contiguous(a.n(), c.size()).block,
                first = std::min(a.n(), block * c.rank());
    own = {first, std::min(a.n(), first + block) - first};
    from = first * columns;
  }
  const auto vector = [&](const char* name, View<double, B> v) {
    if (c.control.reduce(v.size, Reduce::max) > 0)  // a rank may have no rows
      archive.rows(c.ahead, name, a.n(), columns, {&own, 1}, v.data + from, columns);
  };
  vector("x", x), vector("r", r);
  std::visit([&](const auto& v) { v.each(vector); }, vectors);
  archive_scalars(archive, c, A::replicated, launched);
}

/// Sums that the next iteration reduces still differ between the ranks: a row of scalars per rank.
template <class B>
void CgWork<B>::archive_scalars(Archive& archive, const Context<B>& c, bool replicated,
                                Index launched) {
  const Stream<B>& lane = c.ahead;
  const Index size = scalars.size();
  Index ranks = c.size();
  archive.value("ranks", ranks);
  std::vector<double> mine(static_cast<std::size_t>(size));
  std::vector<double> all(static_cast<std::size_t>(ranks * size));
  std::vector<Index> rows_finished(1);
  download(lane, mine.data(), scalars.view());
  download(lane, rows_finished.data(), finished.view());
  lane.synchronize();
  const Range row = archive.loading() ? Range{0, ranks} : Range{c.rank(), 1};
  archive.rows<double, Cpu>(Stream<Cpu>(), "scalars", ranks, size, {&row, 1},
                            archive.loading() ? all.data() : mine.data(), size);
  archive.list("finished", rows_finished);
  if (!archive.loading()) return;
  const Index same = ranks == c.size() ? c.rank() : 0;
  std::copy_n(all.begin() + same * size, size, mine.begin());
  if (ranks != c.size() && method != CgMethod::classic && !replicated) {
    // Rank 0 takes over what all of them had summed.
    const Index at = (launched + 1) % 4 * cg_row::size(columns) + cg_row::pq * columns;
    for (Index i = at; i < at + 5 * columns; ++i) {
      double sum = 0;
      for (Index r = 0; r < ranks; ++r) sum += all[std::size_t(r * size + i)];
      mine[std::size_t(i)] = c.rank() == 0 ? sum : 0.0;
    }
  }
  upload(lane, scalars.view(), mine.data());
  upload(lane, finished.view(), rows_finished.data());
  lane.synchronize();
}

#define TERRACE_INSTANTIATE_FOR(B, A)                                          \
  template CgWork<B>::CgWork(const Context<B>&, A<B>&, bool, Index, CgMethod); \
  template void CgWork<B>::archive(Archive&, const Context<B>&, const A<B>&, Index);
#define TERRACE_INSTANTIATE(B) \
  template struct CgWork<B>;   \
  TERRACE_FOR_EACH_OPERATOR(TERRACE_INSTANTIATE_FOR, B)
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
TERRACE_INSTANTIATE_FOR(Cpu, UserOperator)
#undef TERRACE_INSTANTIATE
#undef TERRACE_INSTANTIATE_FOR

}  // namespace terrace::cg
