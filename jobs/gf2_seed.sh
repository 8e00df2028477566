#!/usr/bin/env bash
# Seconds to the echelon form of square 2^N bit matrices, method by method, beside those of Lebedev 2013:
#   jobs/gf2_seed.sh [OUTPUT [FIRST [LAST]]]     writes OUTPUT.csv, .md, .svg (jobs/results/gf2_seed, 10, 17)
# Without a GPU only the CPU's columns. A point that would take longer than LIMIT seconds is left out, with
# all larger sizes of its method. Environment: TERRACE (build/terrace), TERRACE_M4RI_BENCH (beside it),
# TERRACE_M4RI_OMP_BENCH (the same program with an OpenMP build of M4RI), RANKS (1), REPEAT (3), LIMIT (120).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
output=${1:-$root/jobs/results/gf2_seed} first=${2:-10} last=${3:-17}
ranks=${RANKS:-1} repeat=${REPEAT:-3} limit=${LIMIT:-120}
terrace=${TERRACE:-$root/build/terrace}
m4ri=${TERRACE_M4RI_BENCH:-}
for place in "$(dirname "$terrace")/tests/m4ri_bench" "$(dirname "$terrace")/m4ri_bench"; do
  if [ -z "$m4ri" ] && [ -x "$place" ]; then m4ri=$place; fi
done
m4ri_omp=${TERRACE_M4RI_OMP_BENCH:-}
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# One point: prints its seconds (median) where the answer was checked, or nothing; the cause goes to stderr and the notes.
terrace_point() {  # terrace_point N OPTIONS...
  local n=$1 status=0; shift
  rm -f "$folder/report.json"
  timeout -k 5 "$limit" mpirun -n "$ranks" "$terrace" bench gf2 --n $((1 << n)) --echelon --repeat "$repeat" \
    --progress never --quiet --report "$folder/report.json" "$@" >"$folder/log" 2>&1 || status=$?
  if [ $status != 0 ]; then terrace_note "$output.csv" $status "N = $n, $*: $(tail -1 "$folder/log")"; return 0; fi
  terrace_rows "$folder/report.json" "$folder/rows" '[.seconds, .rank]' >/dev/null
  { grep '^# failed' "$folder/rows" >>"$output.csv" || true; }
  sed -n '/^#/!s/.*,//p' "$folder/rows" >"$folder/rank.$n"
  sed -n '/^#/!s/,.*//p' "$folder/rows"
  rm -f "$folder/rows"
}
m4ri_point() {  # m4ri_point N PROGRAM METHOD: the median of separate processes, generation not counted
  local n=$1 order=$((1 << $1)) i status=0 rank
  for ((i = 0; i < repeat; ++i)); do
    timeout -k 5 "$limit" "$2" $order 1 full "$3" $order 0.5 -1 echelon >"$folder/m4ri.$i" 2>&1 || status=$?
    if [ $status != 0 ]; then terrace_note "$output.csv" $status "N = $n, M4RI $3"; return 0; fi
    rank=$(sed -n 's/.* rank \([0-9]*\).*/\1/p' "$folder/m4ri.$i")
    # The rank is terrace's, whose certificate held; where terrace was too slow, one that random matrices have.
    if [ -s "$folder/rank.$n" ]; then
      [ "$rank" = "$(cat "$folder/rank.$n")" ]
    else
      [ "${rank:-0}" -le $order ] && [ "${rank:-0}" -ge $((order - 16)) ]
    fi || { echo "# failed, another rank than terrace's: N = $n, M4RI $3, ${rank:-none}" | tee -a "$output.csv" >&2; return 0; }
  done
  for ((i = 0; i < repeat; ++i)); do sed -n 's/^seconds \([^ ]*\).*/\1/p' "$folder/m4ri.$i"; done | terrace_median
}

measure() {  # measure NAME TRANSFERS POINT...: all sizes, smallest first
  local name=$1 transfers=$2 kind=$3 n seconds; shift 3
  for ((n = first; n <= last; ++n)); do
    seconds=$("$kind" "$n" "$@")
    if [ -z "$seconds" ]; then break; fi
    echo "measured,$name,$transfers,$n,$seconds" >>"$output.csv"
    printf '%-26s transfers %-3s N = %2d %12.6f s\n' "$name" "$transfers" "$n" "$seconds"
    # The next size is eight times the work, run repeat times and once more to warm up.
    if awk -v s="$seconds" -v r="$repeat" -v limit="$limit" 'BEGIN {exit !(8 * s * (r + 1) > limit)}'; then
      echo "$name: $((repeat + 1)) runs of a size above 2^$n would take longer than $limit s"
      break
    fi
  done
}

gpu=$( { nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | sort | uniq -c | sed 's/^ *//' | paste -sd ' ')
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
  echo "# Seconds of terrace and M4RI, medians of $repeat; square 2^N, random, echelon form; $(date -u +%Y-%m-%d)"
  echo "# CPU: ${cpu:-unknown}, $(nproc) cores; GPU: ${gpu:-none}; ranks: $ranks"
  echo "source,method,transfers,N,seconds"
} >"$output.csv"

measure "CPU all cores" no terrace_point --backend cpu
if [ -n "$m4ri" ]; then
  measure "M4RI m4ri" no m4ri_point "$m4ri" m4ri
  measure "M4RI pluq" no m4ri_point "$m4ri" pluq
else
  echo "M4RI is not here: build the tests with libm4ri-dev, or set TERRACE_M4RI_BENCH"
fi
if [ -n "$m4ri_omp" ]; then measure "M4RI all cores" no m4ri_point "$m4ri_omp" auto; fi
if [ "$(terrace_gpus)" -gt 0 ]; then
  for transfers in no yes; do
    flag=(--backend cuda)
    if [ "$transfers" = yes ]; then flag+=(--transfers); fi
    measure "GPU Gauss" $transfers terrace_point "${flag[@]}" --method columns
    measure "GPU k = 1" $transfers terrace_point "${flag[@]}" --method tables --k 1
    measure "GPU k = 4" $transfers terrace_point "${flag[@]}" --method tables --k 4
    measure "GPU k = 8" $transfers terrace_point "${flag[@]}" --method tables --k 8
    measure "GPU k = 14" $transfers terrace_point "${flag[@]}" --method tables --k 14
    measure "GPU block form" $transfers terrace_point "${flag[@]}"
  done
else
  echo "no GPU here: the CPU's columns only"
fi

python3 "$root/jobs/gf2_seed_plot.py" "$output.csv" "$root/jobs/gf2_seed_2013.csv" "$output"
echo "$output.csv, .md, .svg"
terrace_verdict "$output.csv"
