#!/usr/bin/env bash
# Runs built test programs without ctest, for a GPU host that has no build tree:
#   tests/run_bundle.sh FOLDER "1 2 4" [PATTERN]     FOLDER holds bin/*_test and lib/
# Prints one line a program and rank count, and N passed, N failed at the end.
set -u
folder=$1 ranks=$2 pattern=${3:-}
export LD_LIBRARY_PATH=$folder/lib:${LD_LIBRARY_PATH:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none TERRACE_THREADS=${TERRACE_THREADS:-2}
logs=$(mktemp -d)
passed=0 failed=0
for program in "$folder"/bin/*_test; do
  name=$(basename "$program")
  case "$name" in *$pattern*) ;; *) continue ;; esac
  for n in $ranks; do
    start=$(date +%s.%N)
    if timeout -k 5 "${LIMIT:-120}" mpirun -n "$n" ${WRAPPER:-} "$program" ${ARGUMENTS:-} >"$logs/$name.$n.log" 2>&1; then
      verdict=passed passed=$((passed + 1))
    else
      verdict=FAILED failed=$((failed + 1))
    fi
    printf '%-32s ranks %s  %-7s %6.1f s  %s\n' "$name" "$n" "$verdict" "$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN {print b - a}')" \
      "$(grep -ohE '(All tests passed|test cases|skipped|terrace:).*' "$logs/$name.$n.log" | sort -u | head -2 | tr '\n' ' ' | cut -c1-110)"
    if [ "$verdict" = FAILED ]; then grep -vE '^-+$|^$|^\.\.\.' "$logs/$name.$n.log" | head -25 | cut -c1-160; fi
  done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
