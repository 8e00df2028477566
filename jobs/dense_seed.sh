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

gpu=$( { nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | sort | uniq -c | sed 's/^ *//' | paste -sd ' ')
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
  echo "# Medians; runs: $repeat up to n = 1,000, $repeat_large above; GFLOP/s of 2 n^3; $(date -u +%Y-%m-%d)"
  echo "# CPU: ${cpu:-unknown}, $(nproc) cores, ${TERRACE_THREADS:-all} threads a rank; GPU: ${gpu:-none}"
  echo "who,backend,n,grid,threads,seconds,gflops,fraction,residual"
} >"$output.csv"

for group in $sizes; do
  runs=$repeat
  if [ "${group##*,}" -gt 1000 ]; then runs=$repeat_large; fi
  status=0
  rm -f "$folder/report.json"
  timeout -k 5 "$limit" mpirun -n 1 "$terrace" bench dense --backend "$backend" --method textbook --n "$group" --repeat "$runs" \
    "${options[@]}" --progress never --quiet --report "$folder/report.json" >"$folder/log" 2>&1 || status=$?
  if [ $status != 0 ]; then terrace_note "$output.csv" $status "n = $group: $(tail -1 "$folder/log")"; fi
  terrace_rows "$folder/report.json" "$output.csv" '
    [.who, $report.backend, .n, .grid // 0, .threads // 0, .seconds, .rate.value, .fraction_of_bound.fraction, .residual]'
done
python3 "$root/jobs/dense_seed_plot.py" "$output.csv" "$output"
echo "$output.csv, .md, .svg"
terrace_verdict "$output.csv"
