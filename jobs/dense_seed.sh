#!/usr/bin/env bash
# The grid study of Gauss-Jordan inversion column by column: time against n for every shape of the launches,
#   jobs/dense_seed.sh [OUTPUT]     writes OUTPUT.csv, .md, .svg (jobs/results/dense_seed)
# On a GPU: grids of 8, 16, 32 squared blocks of 16, 32 squared threads (--method textbook), the default method and
# cuSOLVER beside them; without one the same method in one thread of the CPU, the default method and LAPACK. Sizes up
# to 1,000: the median of REPEAT runs; larger ones: of REPEAT_LARGE. Sizes of one start of the program ("1500,2000")
# that together take longer than LIMIT seconds are left out. Environment: TERRACE (build/terrace), BACKEND (auto),
# SIZES ("100,200,300,400,500,700,1000 1500,2000 2500,3000"), REPEAT (3), REPEAT_LARGE (1), LIMIT (180).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
output=${1:-$root/jobs/results/dense_seed}
terrace=${TERRACE:-$root/build/terrace} repeat=${REPEAT:-3} repeat_large=${REPEAT_LARGE:-1} limit=${LIMIT:-180}
sizes=${SIZES:-100,200,300,400,500,700,1000 1500,2000 2500,3000}
backend=${BACKEND:-auto}
if [ "$backend" = auto ]; then
  if [ "$(terrace_gpus)" -gt 0 ]; then backend=cuda; else backend=cpu; fi
fi
if [ "$backend" = cuda ]; then
  options=(--grid 8,16,32 --threads 16,32 --rivals cusolver)
else
  options=(--rivals lapack)
fi
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

{
  echo "# Medians; runs: $repeat up to n = 1,000, $repeat_large above; GFLOP/s of 2 n^3"
  terrace_machine
  echo "who,backend,n,grid,threads,seconds,gflops,fraction,residual"
} >"$output.csv"

for group in $sizes; do
  runs=$repeat
  if [ "${group##*,}" -gt 1000 ]; then runs=$repeat_large; fi
  status=0
  terrace_bench "$folder/report.json" "$folder/log" "$limit" 1 bench dense --backend "$backend" --method textbook --n "$group" \
    --repeat "$runs" "${options[@]}" --progress never --quiet || status=$?
  if [ $status != 0 ]; then terrace_note "$output.csv" $status "n = $group: $(tail -1 "$folder/log")"; fi
  terrace_rows "$folder/report.json" "$output.csv" '
    [.who, $report.backend, .n, .grid // 0, .threads // 0, .seconds, .rate.value, .fraction_of_bound.fraction, .residual]'
done
if ! command -v jq >/dev/null; then exit 0; fi  # REPLAY makes the tables
python3 "$root/jobs/dense_seed_plot.py" "$output.csv" "$output"
echo "$output.csv, .md, .svg"
terrace_verdict "$output.csv"
