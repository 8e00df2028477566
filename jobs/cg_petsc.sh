#!/bin/bash
# Conjugate gradients with Jacobi on the 3-D Laplace matrix: terrace against PETSc's KSPCG, with 2
# ranks of one thread, relative residual 1e-10. Each is run `times` times, in turns.
#
#   jobs/cg_petsc.sh [build folder] [points] [ranks] [times]     needs petsc-dev and pkg-config
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build} points=${2:-64} ranks=${3:-2} times=${4:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TERRACE_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
launch="${MPIEXEC:-mpiexec} -n $ranks"

# shellcheck disable=SC2046
mpicc -O3 $(pkg-config --cflags PETSc) "$here/cg_petsc.c" -o "$work/cg_petsc" $(pkg-config --libs PETSc)
"$build/terrace" generate csr-laplace -o "$work/a.h5" --dim 3 --points "$points" --rhs 1 --quiet
for ((k = 0; k < times; ++k)); do
  $launch "$work/cg_petsc" -points "$points" -repeat 5
  $launch "$build/terrace" cg "$work/a.h5" --rhs :/b --backend cpu --preconditioner jacobi \
    -o "$work/x.h5" --force --quiet --report "$work/report.json"
  python3 - "$work/report.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
print("terrace iterations", report["result"]["iterations"], "seconds", report["seconds"]["solve"])
PYTHON
done
