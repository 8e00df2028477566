// The reduced and the echelon form of the matrices of families.hpp on all ranks, one line each:
//   gf2_identity [--backend cpu|cuda] [--block N] [--method NAME] [--k K] [--tables NAME]
//                [--panels NAME] [--form reduced|echelon] [--numbers 3,10-20]
// The options of the plan are those of terrace gf2.
// Prints what m4ri_identity prints; of the echelon form the bits are not promised and read 0.
// Says "skipped" and reduces nothing where no device is seen.
#include <cstdio>
#include <cstdlib>

#include "distrib/agree.hpp"
#include "src/gf2/echelon.hpp"
#include "src/program/profile.hpp"
#include "tests/rivals/families.hpp"

using namespace terrace;
using namespace terrace::gf2;
using rivals::Family;

namespace {

struct Options {
  PanelWish common;
  std::string backend = "cpu", numbers;
  EchelonForm form = EchelonForm::reduced;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) fail_together(Exit::usage, name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--backend" && (value == "cpu" || value == "cuda"))
      o.backend = value;
    else if (name == "--block")
      o.common.block = std::atol(value.c_str());
    else if (name == "--method")
      o.common.method = value;
    else if (name == "--k")
      o.common.k = std::atol(value.c_str());
    else if (name == "--tables")
      o.common.tables = value;
    else if (name == "--panels")
      o.common.panels = value;
    else if (name == "--form" && (value == "reduced" || value == "echelon"))
      o.form = value == "echelon" ? EchelonForm::echelon : EchelonForm::reduced;
    else if (name == "--numbers")
      o.numbers = value;
    else
      fail_together(Exit::usage, "gf2_identity does not know " + name + " " + value);
  }
  return o;
}

/// This rank's rows of the reduced or echelon form, one after the other, with `words` words each.
template <class B>
std::vector<Word> slice(const Context<B>& context, const BitMatrix<B>& matrix, Index words) {
  std::vector<Word> rows(std::size_t(matrix.slots() * words));
  copy_rows(context.bulk, rows.data(), words, matrix.data.data(), matrix.stride, words,
            matrix.slots());
  context.bulk.synchronize();
  return rows;
}

template <class B>
void reduce(Context<B>& context, const Family& family, const Options& o) {
  const PanelPlan plan = plan_panels(context, o.common, std::min(family.rows, family.columns),
                                     measured_panels(context));
  const BlockCyclic layout = bit_row_layout(family.rows, context.size());
  BitSource<B> source{family.rows, family.columns, {}};
  const Index words = source.words();
  source.read = [&](const BitSink<B>& sink) {
    const auto fill = family.prepare();
    const Index slots = layout.slots(context.rank());
    std::vector<Word> host(std::size_t(slots * words), 0);
    for (Index slot = 0; slot < slots; ++slot)
      fill(layout.global(slot, context.rank()), {host.data() + slot * words, family.columns});
    const Buffer<Word, B> rows(Index(host.size()));
    upload(context.bulk, rows.view(), host.data());
    sink(0, {rows.data(), words, slots, nullptr});
    context.bulk.synchronize();
  };
  BitMatrix<B> matrix(context, layout, words);
  load(context, source, matrix);
  Progress quiet(false, false);
  const Pivots found = reduce_to_echelon(context, matrix, family.columns, o.form, plan, quiet);

  Word pivots = 0;
  std::vector<Index> pivot_of(std::size_t(family.rows), -1);
  for (Index q = 0; q < found.rank(); ++q) {
    pivots ^= rivals::mixed_pivot(q, found.columns[std::size_t(q)]);
    pivot_of[std::size_t(found.rows[std::size_t(q)])] = q;
  }
  // Exclusive or of the reduced rows; whether a row that is no pivot holds a one.
  std::vector<Word> sums(1, 0);
  Index left_over = 0;
  const auto rows = slice(context, matrix, words);
  for (Index slot = 0; slot < matrix.slots(); ++slot) {
    const Index q = pivot_of[std::size_t(layout.global(slot, context.rank()))];
    for (Index j = 0; j < words; ++j) {
      const Word bits = rows[std::size_t(slot * words + j)];
      if (q < 0)
        left_over |= Index(bits != 0);
      else
        sums[0] ^= rivals::mixed_bit_word(q, j, bits);
    }
  }
  context.control.reduce(sums, Reduce::bit_xor);
  left_over = context.control.reduce(left_over, Reduce::max);
  if (o.form == EchelonForm::echelon) sums[0] = 0;
  if (context.rank() != 0) return;
  std::printf("%s%s\n", rivals::line_of(family, found.rank(), pivots, sums[0]).c_str(),
              left_over ? "\ta row that is no pivot is not zero" : "");
  std::fflush(stdout);
}

template <class B>
void reduce_all(const Control& control, const Options& o) {
  Context<B> context = make_context<B>(control);
  const auto list = rivals::families();
  const auto take = rivals::chosen(o.numbers, list.size());
  if (take.empty()) fail_together(Exit::usage, "--numbers takes a list such as 3,10-20");
  for (const auto& family : list)
    if (take[std::size_t(family.number)]) reduce(context, family, o);
}

void on_chosen_backend(const Control& control, const Options& o) {
  if (o.backend == "cpu") return reduce_all<Cpu>(control, o);
  if constexpr (with_cuda) {
    if (control.reduce(Index(cuda_device_count()), Reduce::min) > 0)
      return reduce_all<Cuda>(control, o);
  }
  if (control.rank() == 0) std::printf("skipped: no CUDA device seen\n");
}

}  // namespace

int main(int argc, char** argv) {
  Session session(&argc, &argv);
  const Control& control = session.control();
  return guarded(control, [&] {
    on_chosen_backend(control, parse(argc, argv));
    return 0;
  });
}
