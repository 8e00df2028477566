#!/usr/bin/env bash
# Installs what is missing, builds, solves one real problem of each family, verifies, prints a table.
#   ./jobs/quickstart.sh            TERRACE_RANKS=4 ./jobs/quickstart.sh
# Device code takes most of the time to build: left out where no GPU is seen, but with TERRACE_CUDA=1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
terrace_install build

build=$root/build
cuda=$(terrace_cuda_option)
if [ "$(terrace_gpus)" = 0 ] && [ "$cuda" = -DTERRACE_CUDA=ON ] && [ "${TERRACE_CUDA:-0}" != 1 ]; then
  echo "no GPU is seen here: building for the CPU alone; TERRACE_CUDA=1 ./jobs/quickstart.sh builds for both"
  cuda=-DTERRACE_CUDA=OFF
fi
cmake -S "$root" -B "$build" -G Ninja -DTERRACE_TESTS=OFF "$cuda" -DCMAKE_UNITY_BUILD=ON "${launcher[@]}" >"$root/.quickstart.log" 2>&1 ||
  { tail -20 "$root/.quickstart.log" >&2; exit 1; }
cmake --build "$build" --target terrace
rm -f "$root/.quickstart.log"

terrace=$build/terrace
gpus=$(terrace_gpus)
cores=$(nproc)
if [ "$gpus" -gt 0 ]; then ranks=${TERRACE_RANKS:-$gpus}; else ranks=${TERRACE_RANKS:-$((cores < 4 ? cores : 4))}; fi
data=$build/quickstart
rm -rf "$data" && mkdir -p "$data" && cd "$data"
run() { mpirun -n "$ranks" "$terrace" "$@"; }

echo
echo "terrace on $ranks ranks, $( [ "$gpus" -gt 0 ] && echo "$gpus GPU(s)" || echo "$cores cores")"
run generate gf2-random --rows 8192 --columns 8192 --seed 1 -o gf2.h5 --quiet
run generate band-spd --n 100000 --half-bandwidth 200 --rhs 1 --seed 2 -o band.h5 --quiet
run generate dense-random --n 1500 --seed 3 -o dense.h5 --quiet
run generate csr-laplace --dim 2 --points 300 --rhs 1 --seed 4 -o laplace.h5 --quiet

printf '\n%-38s %9s %10s %-10s %-17s %s\n' problem "solve s" rate unit check verified
status=0
row() {  # row NAME RESULT COMMAND...
  local name=$1 result=$2; shift 2
  local verdict=FAIL
  if run "$@" -o "$result.h5" --report "$result.json" --quiet --progress never &&
     run verify "$result.h5" >"$result.verify" 2>&1; then verdict=PASS; else status=1; fi
  jq -r --arg name "$name" --arg verdict "$verdict" \
    '[$name, (.seconds.solve // "-"), (.rate.value // "-"), (.rate.unit // "-"),
      (if (.residual|type) == "number" then .residual else (.certificate // "-") end), $verdict] | @tsv' "$result.json" |
    awk -F'\t' '{check = $5 + 0 ? sprintf("ratio %.2g (< 30)", $5) : "certificate"
                 printf "%-38s %9.4f %10.3g %-10s %-17s %s\n", $1, $2, $3, $4, check, $6}'
}
row "gf2 rref      8192 x 8192"                 rref    gf2 rref gf2.h5:/A
row "band solve    n = 100000, half-band 200"   x_band  band solve band.h5:/A --rhs :/b
row "dense invert  n = 1500"                    inverse dense invert dense.h5:/A
row "cg            2-D Laplace, 300 x 300"      x_cg    cg laplace.h5:/A --rhs :/b
echo
echo "inputs, results and reports: $data"
echo "to use the program: export PATH=$build:\$PATH"
exit $status
