#!/usr/bin/env bash
# The reduced forms of the matrices of families.hpp have M4RI's bits, and the echelon forms its pivots:
#   identity.sh [--all] MPIEXEC GF2_IDENTITY M4RI_IDENTITY
# The reduced form with every plan, the echelon form with the default one (--all: with every plan).
# GF2_IDENTITY may lie in a copied folder's bin/ beside lib/. Environment:
#   RANKS="1 2 3 4 5"   BACKENDS="cpu cuda"   NUMBERS=3,10-20 (of matrices)   LIMIT=300 (seconds a run)
#   CPU_PLANS, CUDA_PLANS="default block=64 k=5,tables=broadcast"   REFERENCE=FILE (what M4RI_IDENTITY printed)
set -u
all=; [ "$1" = --all ] && { all=1; shift; }
mpiexec=$1 ours=$2 rival=${3:-}
ranks=${RANKS:-1 2 3 4 5} backends=${BACKENDS:-cpu cuda} numbers=${NUMBERS:-}
cpu_plans=${CPU_PLANS:-default block=64 block=1024}
cuda_plans=${CUDA_PLANS:-default block=64 block=1024 block=4096 method=tables}
libraries=$(cd "$(dirname "$ours")/.." && pwd)/lib
[ -d "$libraries" ] && export LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export TERRACE_THREADS=${TERRACE_THREADS:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

theirs=$folder/m4ri  # M4RI's lines of the chosen matrices
if [ -n "${REFERENCE:-}" ]; then cat "$REFERENCE"; else "$rival"; fi |
  awk -F'\t' -v numbers="$numbers" 'BEGIN {
      parts = split(numbers, part, ",")
      for (p = 1; p <= parts; ++p) {
        split(part[p], ends, "-")
        for (k = ends[1]; k <= (ends[2] == "" ? ends[1] : ends[2]); ++k) take[k] = 1
      }
    }
    !parts || $1 in take' >"$theirs"
sed 's/bits [0-9a-f]*$/bits 0000000000000000/' "$theirs" >"$theirs.echelon"  # of which the bits are not promised
[ -s "$theirs" ] || { echo "FAILED: no lines from M4RI"; exit 1; }

failed=0 total=0
compare() {  # compare BACKEND RANKS PLAN FORM
  local options=(--backend "$1" --form "$4" --numbers "$numbers") what="$1, $2 ranks, $3, $4 form" option
  if [ "$3" != default ]; then
    for option in ${3//,/ }; do options+=("--${option%%=*}" "${option#*=}"); done
  fi
  local expected=$theirs
  if [ "$4" = echelon ]; then expected=$theirs.echelon; fi
  local start=$(date +%s.%N)
  timeout -k 5 "${LIMIT:-300}" "$mpiexec" -n "$2" "$ours" "${options[@]}" >"$folder/ours" 2>"$folder/errors"
  local code=$?
  if grep -q '^skipped' "$folder/ours"; then cat "$folder/ours"; return 1; fi
  local agree=$(grep -cFxf "$expected" "$folder/ours")
  total=$((total + agree))
  printf '%-56s %4d agree %7.1f s\n' "$what" "$agree" "$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN {print b - a}')"
  if [ "$code" != 0 ] || [ "$agree" = 0 ] || ! cmp -s "$expected" "$folder/ours"; then
    echo "FAILED: $what (exit code $code)"
    diff "$expected" "$folder/ours" | sed 's/^</M4RI:   /; s/^>/terrace:/' | grep -E '^(M4RI|terrace)' | head -20
    head -5 "$folder/errors"
    failed=$((failed + 1))
  fi
}

for backend in $backends; do
  plans=$cpu_plans; [ "$backend" = cuda ] && plans=$cuda_plans
  before=$total
  for n in $ranks; do
    for plan in $plans; do
      for form in reduced echelon; do
        [ "$form" = echelon ] && [ "$plan" != default ] && [ -z "$all" ] && continue
        compare "$backend" "$n" "$plan" "$form" || continue 4
      done
    done
  done
  echo "$backend: $(wc -l <"$theirs") matrices, ranks $ranks, plans $plans: $((total - before)) reductions agree with M4RI"
done
if [ "$failed" != 0 ]; then echo "$failed runs FAILED"; exit 1; fi
echo "all bits agree"
