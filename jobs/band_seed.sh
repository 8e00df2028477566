#!/usr/bin/env bash
# Band Cholesky against the tile width, as in figures 2 to 5 of Khimich and Baranov 2013:
#   jobs/band_seed.sh [OUTPUT [RANKS...]]     writes OUTPUT.csv, .md, .svg (jobs/results/band_seed, 1)
# By tile columns in memory, and streamed through a window of the backend's (the seed's way); on a GPU widths 16 to 256,
# diagonal block and substitution on the GPU and on the CPU; without one the CPU backend, widths 16 to 512. LAPACK's factor
# and solve on one rank of the CPU beside both. One start of the program is one half-bandwidth, method and number of ranks;
# one that takes longer than LIMIT seconds is left out. Ranks on other machines: MORE names tables of other runs of this
# script, which the figures take as well. Environment: TERRACE (build/terrace), BACKEND (auto), WIDTHS (comma-separated),
# HALF_BANDWIDTHS ("1000 2000"), METHODS ("tile-columns streamed"), N (100000 on a GPU, 20000 without), REPEAT (3), LIMIT
# (240), MORE, and KEEP or REPLAY (jobs/setup.sh).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
output=${1:-$root/jobs/results/band_seed}
if [ $# -gt 0 ]; then shift; fi
all_ranks=("$@")
if [ ${#all_ranks[@]} -eq 0 ]; then all_ranks=(1); fi
terrace=${TERRACE:-$root/build/terrace} repeat=${REPEAT:-3} limit=${LIMIT:-240}
backend=${BACKEND:-auto}
if [ "$backend" = auto ]; then
  if [ "$(terrace_gpus)" -gt 0 ]; then backend=cuda; else backend=cpu; fi
fi
if [ "$backend" = cuda ]; then
  widths=${WIDTHS:-16,32,48,64,96,128,160,192,224,256} n=${N:-100000} places=gpu,cpu
else
  widths=${WIDTHS:-16,32,48,64,96,128,192,256,512} n=${N:-20000} places=cpu
fi
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# points NAME BACKEND RANKS M OPTIONS...: one start of the benchmark to lines of the table
points() {
  local name=$1 on=$2 ranks=$3 m=$4 status=0; shift 4
  terrace_bench "$folder/report.json" "$folder/log" "$limit" "$ranks" bench band --backend "$on" --n "$n" --half-bandwidth "$m" \
    --repeat "$repeat" --progress never --quiet "$@" || status=$?
  if [ $status != 0 ]; then
    terrace_note "$output.csv" $status "m = $m, $ranks ranks, $on, $*: $(tail -1 "$folder/log")"
  fi
  terrace_rows "$folder/report.json" "$output.csv" '
    [if .who == "terrace" then $name else .who end, $on, .ranks, .n, .half_bandwidth, .method // "",
     (if .who == "terrace" then .block // 0 else 0 end), .diagonal // "", .substitution // "", .phase, .seconds]' \
    --arg name "$name" --arg on "$on"
}

{
  echo "# Seconds, median of $repeat; one right-hand side"
  terrace_machine
  echo "who,backend,ranks,n,half_bandwidth,method,width,diagonal,substitution,phase,seconds"
} >"$output.csv"

for m in ${HALF_BANDWIDTHS:-1000 2000}; do
  if [ "${all_ranks[0]}" = 1 ]; then points "terrace's own width" cpu 1 "$m" --method tile-columns --rivals lapack; fi
  for ranks in "${all_ranks[@]}"; do
    for method in ${METHODS:-tile-columns streamed}; do
      points terrace "$backend" "$ranks" "$m" --method "$method" --widths "$widths" --diagonal "$places" --substitution "$places"
    done
  done
done
if ! command -v jq >/dev/null; then exit 0; fi  # REPLAY makes the tables
python3 "$root/jobs/band_seed_plot.py" "$output.csv" ${MORE:-} "$output"
echo "$output.csv, .md, .svg"
terrace_verdict "$output.csv"
