#!/usr/bin/env bash
# Conjugate gradients on CPU and GPU against Cramer's rule, and sums and products of matrices, against n,
#   jobs/cg_seed.sh [OUTPUT]     writes OUTPUT.csv, .md, .svg (jobs/results/cg_seed)
# On every backend: the textbook's sum and product, its two alternative product kernels (CUDA), ours and the library's; its
# conjugate gradients and ours, both whole solves to a relative residual of 1e-10; largest orders by grids and memory; on the
# CPU Cramer's rule with determinants by elimination and by expansion; peak memory of a + b with and without moves.
# Medians of REPEAT runs. A start of the program that takes longer than LIMIT seconds is left out. Environment: TERRACE
# (build/terrace), BACKENDS ("cpu cuda" where a GPU is seen, else "cpu"), SIZES_CPU ("4 8 16 32 64 128 256 512 1024 2048"),
# SIZES_CUDA ("8 16 32 64 128 256 512 1024 2048 4096 8192 16384"), MEMORY_CPU (2000), MEMORY_CUDA (25000), REPEAT (3), LIMIT (120).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
output=${1:-$root/jobs/results/cg_seed}
terrace=${TERRACE:-$root/build/terrace} repeat=${REPEAT:-3} limit=${LIMIT:-120}
if [ -z "${BACKENDS:-}" ]; then
  BACKENDS=cpu
  if [ "$(terrace_gpus)" -gt 0 ]; then BACKENDS="cpu cuda"; fi
fi
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

{
  echo "# Medians of $repeat runs on one rank"
  terrace_machine
  echo "what,who,backend,n,seconds,rate,unit,fraction,iterations,residual,peak_bytes,matrices"
} >"$output.csv"

start() {  # FILTER ARGUMENTS...: runs a benchmark, appends its rows
  local filter=$1 status=0
  shift
  terrace_bench "$folder/report.json" "$folder/log" "$limit" 1 bench "$@" --repeat "$repeat" --progress never --quiet || status=$?
  if [ $status != 0 ]; then terrace_note "$output.csv" $status "bench $*: $(tail -1 "$folder/log")"; fi
  terrace_rows "$folder/report.json" "$output.csv" "$filter"
}
row='[.what, .who, $report.backend, .n, .seconds, .rate.value, .rate.unit, .fraction_of_bound.fraction // "", .iterations // "",
  .residual, .peak_bytes // "", .matrices // ""]'

for backend in $BACKENDS; do
  if [ "$backend" = cpu ]; then
    sizes=${SIZES_CPU:-4 8 16 32 64 128 256 512 1024 2048} memory=${MEMORY_CPU:-2000}
  else
    sizes=${SIZES_CUDA:-8 16 32 64 128 256 512 1024 2048 4096 8192 16384} memory=${MEMORY_CUDA:-25000}
  fi
  start "$row" matrix --backend "$backend" --what sum,product --n "${sizes// /,}"
  start "$row" matrix --backend "$backend" --what cg --n "${sizes// /,}"
  if [ "$backend" = cpu ]; then start "$row" matrix --backend cpu --what cramer --n 2,3,4,5,6,7,8,9,10,12,16,20,24,28,32; fi
  start "$row" matrix --backend "$backend" --what memory --n "$memory"
  start '["cg", .who, $report.backend, .n, .seconds, .rate.value, .rate.unit, .fraction_of_bound.fraction // "", .iterations, .residual, "", ""]' \
    cg --backend "$backend" --kind dense --n "${sizes// /,}" --rtol 1e-10
  # Bounds are computed: a row has the order by the grid covered once, by the grid here, and by memory.
  start "$row" matrix --backend "$backend" --what bounds --n 1
  if [ -e "$folder/report.json" ] && command -v jq >/dev/null; then
    jq -r '.backend as $b | .bounds[]? | ["bound", .what, $b, .most, 0, .grid_once // "", .by, .grid_here // "", "", "", .memory, .matrices] | map(tostring) | join(",")' \
      "$folder/report.json" | tee -a "$output.csv"
  fi
done
if ! command -v jq >/dev/null; then exit 0; fi  # REPLAY makes the tables
python3 "$root/jobs/cg_seed_plot.py" "$output.csv" "$output"
echo "$output.csv, .md, .svg"
terrace_verdict "$output.csv"
