// Inverts a random matrix on any number of ranks: mpirun -n 4 ./invert 1000
#include <cstdio>
#include <cstdlib>

#include "distrib/agree.hpp"
#include "kernels/base/random.hpp"
#include "src/dense/gauss_jordan.hpp"

using namespace terrace;
using namespace terrace::dense;

int main(int argc, char** argv) {
  const Session session(&argc, &argv);
  const Control& control = session.control();
  return guarded(control, [&] {
    Context<Cpu> context = make_context<Cpu>(control);  // Context<Cuda> for the GPUs
    const Index n = argc > 1 ? std::atoll(argv[1]) : 1000;
    const JordanPlan plan = plan_jordan<Cpu>(control.size(), n, 0, true, 0, "auto");
    GaussJordan<Cpu> solver(context, plan);
    for (Index slot = 0; slot < solver.slots(); ++slot) {  // each rank fills its own rows
      const Index i = plan.rows.global(slot, control.rank());
      for (Index j = 0; j < n; ++j)
        solver.data().data[slot * solver.ld() + j] = random_uniform(1, i, j);
    }
    Progress quiet(false, false);
    const JordanOutcome outcome = solver.run(quiet);
    if (!outcome.good()) fail_together(Exit::outcome, "singular");
    if (control.rank() == 0)
      std::printf("n = %ld, log |det A| = %.6f\n", long(n), outcome.log_abs_determinant);
    return 0;  // row destination()[slot] of the inverse now stands in slot
  });
}
