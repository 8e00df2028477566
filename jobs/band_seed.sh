#!/usr/bin/env bash
# Band Cholesky by tile columns against the tile width, as in figures 2 to 5 of Khimich and Baranov 2013:
#   jobs/band_seed.sh [OUTPUT [RANKS...]]     writes OUTPUT.csv, .md, .svg (jobs/results/band_seed, 1)
# On a GPU: widths 16 to 128, diagonal block and substitution on the GPU and on the CPU; without one the CPU
# backend, widths 16 to 512. LAPACK on one rank of the CPU beside both. A point that takes longer than LIMIT
# seconds is left out, and named. Environment: TERRACE (build/terrace), BACKEND (auto), WIDTHS, HALF_BANDWIDTHS
# ("1000 2000"), N (200000 on a GPU, 20000 without), REPEAT (3), LIMIT (120).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
output=${1:-$root/jobs/results/band_seed}
if [ $# -gt 0 ]; then shift; fi
all_ranks=("$@")
if [ ${#all_ranks[@]} -eq 0 ]; then all_ranks=(1); fi
terrace=${TERRACE:-$root/build/terrace} repeat=${REPEAT:-3} limit=${LIMIT:-120}
backend=${BACKEND:-auto}
if [ "$backend" = auto ]; then
  if [ "$(terrace_gpus)" -gt 0 ]; then backend=cuda; else backend=cpu; fi
fi
if [ "$backend" = cuda ]; then
  widths=${WIDTHS:-16 32 48 64 80 96 112 128} n=${N:-200000} places=(gpu cpu)
else
  widths=${WIDTHS:-16 32 48 64 96 128 192 256 512} n=${N:-20000} places=(cpu)
fi
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# point NAME BACKEND RANKS M DIAGONAL SUBSTITUTION OPTIONS...: one benchmark to lines of the table
point() {
  local name=$1 on=$2 ranks=$3 m=$4 diagonal=$5 substitution=$6; shift 6
  local status=0
  rm -f "$folder/report.json"
  timeout -k 5 "$limit" mpirun -n "$ranks" "$terrace" bench band --backend "$on" --method tile-columns --n "$n" \
    --half-bandwidth "$m" --repeat "$repeat" --diagonal "$diagonal" --substitution "$substitution" --progress never \
    --quiet --report "$folder/report.json" "$@" >"$folder/log" 2>&1 || status=$?
  if [ $status != 0 ]; then
    terrace_note "$output.csv" $status "m = $m, $ranks ranks, $on, diagonal $diagonal, substitution $substitution, $*: $(tail -1 "$folder/log")"
  fi
  terrace_rows "$folder/report.json" "$output.csv" '
    [if .who == "terrace" then $name else .who end, $on, .ranks, .n, .half_bandwidth,
     (if .who == "terrace" then $report.block else 0 end), $diagonal, $substitution, .phase, .seconds]' \
    --arg name "$name" --arg on "$on" --arg diagonal "$diagonal" --arg substitution "$substitution"
}

gpu=$( { nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | sort | uniq -c | sed 's/^ *//' | paste -sd ' ')
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
  echo "# Seconds, median of $repeat; one right-hand side; $(date -u +%Y-%m-%d)"
  echo "# CPU: ${cpu:-unknown}, $(nproc) cores, ${TERRACE_THREADS:-all} threads a rank; GPU: ${gpu:-none}"
  echo "who,backend,ranks,n,half_bandwidth,width,diagonal,substitution,phase,seconds"
} >"$output.csv"

for m in ${HALF_BANDWIDTHS:-1000 2000}; do
  point "terrace's own width" cpu 1 "$m" cpu cpu --rivals lapack
  for ranks in "${all_ranks[@]}"; do
    for width in $widths; do
      for diagonal in "${places[@]}"; do
        for substitution in "${places[@]}"; do
          point terrace "$backend" "$ranks" "$m" "$diagonal" "$substitution" --block "$width"
        done
      done
    done
  done
done
python3 "$root/jobs/band_seed_plot.py" "$output.csv" "$output"
echo "$output.csv, .md, .svg"
terrace_verdict "$output.csv"
