#include <HYPRE.h>
#include <HYPRE_IJ_mv.h>
#include <HYPRE_parcsr_ls.h>
#include <HYPRE_utilities.h>
#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/hypre.hpp"
#include "distrib/mpi.hpp"

namespace terrace {
namespace {

/// The library, from when it is first wanted; null: it is not where it was when Terrace was built.
void* library() {
  static void* const handle = dlopen(TERRACE_HYPRE, RTLD_NOW | RTLD_LOCAL);
  return handle;
}
template <class F>
F* named(const char* name) {
  return reinterpret_cast<F*>(dlsym(library(), name));
}
/// HYPRE_Name(...), which must not fail.
#define CALL(name, ...) \
  check_hypre(named<decltype(HYPRE_##name)>("HYPRE_" #name)(__VA_ARGS__), "HYPRE_" #name)

void check_hypre(HYPRE_Int code, const char* call) {
  if (code != 0)
    throw Error(Exit::fault, std::string("hypre failed, code ") + std::to_string(code) + "; in " +
                                 call + "; use --preconditioner amg");
}

}  // namespace

struct Hypre::Inside {
  HYPRE_Solver solver = nullptr;
  HYPRE_IJMatrix matrix = nullptr;
  HYPRE_IJVector right = nullptr, left = nullptr;
  HYPRE_ParCSRMatrix a = nullptr;
  HYPRE_ParVector b = nullptr, x = nullptr;
  HYPRE_Int rows = 0;
  std::vector<HYPRE_BigInt> number;  // of own rows

  Inside() = default;
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    const auto end = [](auto* call, auto& what) {
      if (what) call(what);
    };
    end(named<decltype(HYPRE_BoomerAMGDestroy)>("HYPRE_BoomerAMGDestroy"), solver);
    end(named<decltype(HYPRE_IJVectorDestroy)>("HYPRE_IJVectorDestroy"), right);
    end(named<decltype(HYPRE_IJVectorDestroy)>("HYPRE_IJVectorDestroy"), left);
    end(named<decltype(HYPRE_IJMatrixDestroy)>("HYPRE_IJMatrixDestroy"), matrix);
  }
  void vector(MPI_Comm comm, HYPRE_BigInt first, HYPRE_IJVector& ij, HYPRE_ParVector& par) {
    CALL(IJVectorCreate, comm, first, first + rows - 1, &ij);
    CALL(IJVectorSetObjectType, ij, HYPRE_PARCSR);
    CALL(IJVectorInitialize, ij);
    CALL(IJVectorAssemble, ij);
    CALL(IJVectorGetObject, ij, reinterpret_cast<void**>(&par));
  }
};

std::string hypre_version() { return HYPRE_RELEASE_VERSION; }

Hypre::Hypre(const Control& control, Index n, Range own, const Index* start, const Index* column,
             const double* value) {
  int started = 0;
  MPI_Initialized(&started);
  const bool there = library() && started;
  if (control.reduce(Index(there), Reduce::min) == 0)
    fail_together(Exit::usage, std::string("hypre cannot be loaded from " TERRACE_HYPRE
                                           "; --preconditioner hypre; use amg, or build again"));
  const Index entries = start[own.count] - start[0];
  collectively(control, [&] {
    constexpr Index most = std::numeric_limits<HYPRE_Int>::max();
    if (n > most || entries > most)
      throw Error(Exit::resources,
                  "more than 2^31 rows, or entries on one rank; --preconditioner hypre; use amg");
    inside_ = std::make_unique<Inside>();
  });
  Inside& in = *inside_;
  MPI_Comm comm = mpi_comm(control);
  if (comm == MPI_COMM_NULL) comm = MPI_COMM_SELF;
  const auto first = HYPRE_BigInt(own.first);
  static const bool begun = [] {
    CALL(Init);
    return true;
  }();
  (void)begun;

  in.rows = HYPRE_Int(own.count);
  CALL(IJMatrixCreate, comm, first, first + in.rows - 1, first, first + in.rows - 1, &in.matrix);
  CALL(IJMatrixSetObjectType, in.matrix, HYPRE_PARCSR);
  std::vector<HYPRE_Int> counts;
  for (Index i = 0; i < own.count; ++i) {
    in.number.push_back(first + HYPRE_BigInt(i));
    counts.push_back(HYPRE_Int(start[i + 1] - start[i]));
  }
  CALL(IJMatrixSetRowSizes, in.matrix, counts.data());
  CALL(IJMatrixInitialize, in.matrix);
  std::vector<HYPRE_BigInt> columns(column, column + entries);
  CALL(IJMatrixSetValues, in.matrix, in.rows, counts.data(), in.number.data(), columns.data(),
       value);
  CALL(IJMatrixAssemble, in.matrix);
  CALL(IJMatrixGetObject, in.matrix, reinterpret_cast<void**>(&in.a));
  in.vector(comm, first, in.right, in.b);
  in.vector(comm, first, in.left, in.x);

  constexpr HYPRE_Int hmis = 10, extended = 6, forward_l1 = 13, backward_l1 = 14;
  CALL(BoomerAMGCreate, &in.solver);
  CALL(BoomerAMGSetPrintLevel, in.solver, 0);
  CALL(BoomerAMGSetMaxIter, in.solver, 1);
  CALL(BoomerAMGSetTol, in.solver, 0.0);
  CALL(BoomerAMGSetCoarsenType, in.solver, hmis);
  CALL(BoomerAMGSetInterpType, in.solver, extended);
  CALL(BoomerAMGSetPMaxElmts, in.solver, 4);
  CALL(BoomerAMGSetStrongThreshold, in.solver, 0.25);
  CALL(BoomerAMGSetAggNumLevels, in.solver, 1);
  CALL(BoomerAMGSetCycleRelaxType, in.solver, forward_l1, 1);
  CALL(BoomerAMGSetCycleRelaxType, in.solver, backward_l1, 2);
  CALL(BoomerAMGSetup, in.solver, in.a, in.b, in.x);
}
Hypre::~Hypre() = default;

void Hypre::apply(const double* r, double* z) const {
  Inside& in = *inside_;
  CALL(IJVectorSetValues, in.right, in.rows, in.number.data(), r);
  CALL(IJVectorAssemble, in.right);
  std::fill_n(z, in.rows, 0.0);
  CALL(IJVectorSetValues, in.left, in.rows, in.number.data(), z);
  CALL(IJVectorAssemble, in.left);
  // Of numbers that are not finite it says so; whoever iterates sees them in z.
  (void)named<decltype(HYPRE_BoomerAMGSolve)>("HYPRE_BoomerAMGSolve")(in.solver, in.a, in.b, in.x);
  CALL(ClearAllErrors);
  CALL(IJVectorGetValues, in.left, in.rows, in.number.data(), z);
}

}  // namespace terrace
