// PETSc's KSPCG with Jacobi on the 3-D Laplace matrix (7 points, p^3 unknowns, 6 on the diagonal),
// the rival of jobs/cg_petsc.sh: b = A times random numbers, x from 0, relative residual 1e-10.
//
//   mpiexec -n 2 cg_petsc -points 64 -repeat 9        prints one line: iterations, seconds of the
//                                                     fastest and of the median solve
#include <petscksp.h>
#include <stdlib.h>

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  PetscInt p = 64, repeat = 9, first, last, iterations = 0;
  Mat a;
  Vec x, b, solution;
  KSP ksp;
  PC pc;
  PetscReal error = 0;
  PetscRandom random;
  double seconds[101];

  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-points", &p, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-repeat", &repeat, NULL));
  if (repeat < 1 || repeat > 101) repeat = 9;
  PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, p * p * p, p * p * p, 7, NULL,
                         3, NULL, &a));
  PetscCall(MatGetOwnershipRange(a, &first, &last));
  for (PetscInt i = first; i < last; ++i) {
    const PetscInt at[3] = {i % p, i / p % p, i / p / p}, step[3] = {1, p, p * p};
    PetscCall(MatSetValue(a, i, i, 6.0, INSERT_VALUES));
    for (int d = 0; d < 3; ++d) {
      if (at[d] > 0) PetscCall(MatSetValue(a, i, i - step[d], -1.0, INSERT_VALUES));
      if (at[d] < p - 1) PetscCall(MatSetValue(a, i, i + step[d], -1.0, INSERT_VALUES));
    }
  }
  PetscCall(MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY));
  PetscCall(MatSetOption(a, MAT_SPD, PETSC_TRUE));
  PetscCall(MatCreateVecs(a, &x, &b));
  PetscCall(VecDuplicate(x, &solution));
  PetscCall(PetscRandomCreate(PETSC_COMM_WORLD, &random));
  PetscCall(VecSetRandom(solution, random));
  PetscCall(MatMult(a, solution, b));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, a, a));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCJACOBI));
  PetscCall(KSPSetTolerances(ksp, 1e-10, 0, PETSC_DEFAULT, 10000));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPSolve(ksp, b, x));
  for (PetscInt k = 0; k < repeat; ++k) {
    PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
    const double start = MPI_Wtime();
    PetscCall(KSPSolve(ksp, b, x));
    seconds[k] = MPI_Wtime() - start;
  }
  qsort(seconds, (size_t)repeat, sizeof *seconds, by_value);
  PetscCall(KSPGetIterationNumber(ksp, &iterations));
  PetscCall(VecAXPY(x, -1.0, solution));
  PetscCall(VecNorm(x, NORM_INFINITY, &error));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD,
                        "petsc points %d iterations %d seconds %.6f median %.6f error %.2e\n", (int)p,
                        (int)iterations, seconds[0], seconds[repeat / 2], (double)error));
  PetscCall(PetscRandomDestroy(&random));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&solution));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&a));
  return PetscFinalize();
}
