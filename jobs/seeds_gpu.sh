#!/usr/bin/env bash
# The studies of the band, Gauss-Jordan and gradients seeds on GPUs, unattended:
#   jobs/seeds_gpu.sh FOLDER        one GPU: about 6 minutes     jobs/seeds_gpu.sh FOLDER 2      two GPUs: about 2 minutes
# Reports are kept in FOLDER/reports (two GPUs: reports2) as soon as each start of the program ends, and tables in FOLDER
# where jq is. Tables and figures from the reports, anywhere:
#   jobs/seeds_gpu.sh --tables FOLDER [OUTPUT_FOLDER]             writes band_seed, dense_seed and cg_seed .csv, .md, .svg
# Environment: TERRACE (build/terrace), TOTAL (seconds for all, 420; two GPUs 180): what has no time left is not started.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
tables=0
if [ "${1:-}" = --tables ]; then tables=1; shift; fi
if [ $# -lt 1 ]; then sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; fi
folder=$(mkdir -p "$1" && cd "$1" && pwd)
# The same arguments in both runs: a report is found by them.
export REPEAT=${REPEAT:-2} REPEAT_LARGE=1 BACKEND=${BACKEND:-cuda} BACKENDS="${BACKENDS:-cuda cpu}"

if [ $tables = 1 ]; then
  output=${2:-$folder}
  mkdir -p "$output"
  result=0
  two=$folder/reports2
  if [ -e "$two/machine" ]; then
    REPLAY=$two "$root/jobs/band_seed.sh" "$folder/two_gpus" 2 >/dev/null || result=1
    if [ -e "$folder/two_gpus.csv" ]; then export MORE=$folder/two_gpus.csv; fi
  fi
  export REPLAY=$folder/reports
  "$root/jobs/band_seed.sh" "$output/band_seed" >/dev/null || result=1
  if [ -n "${MORE:-}" ]; then grep -v '^who,' "$MORE" >>"$output/band_seed.csv"; fi
  "$root/jobs/dense_seed.sh" "$output/dense_seed" >/dev/null || result=1
  "$root/jobs/cg_seed.sh" "$output/cg_seed" >/dev/null || result=1
  exit $result
fi

gpus=${2:-1}
if [ "$gpus" = 1 ]; then reports=$folder/reports total=${TOTAL:-420}; else reports=$folder/reports2 total=${TOTAL:-180}; fi
mkdir -p "$reports"
start=$SECONDS result=0
export KEEP=$reports LIMIT=${LIMIT:-150} DEADLINE=$(($(date +%s) + total))
study() {  # study NAME OUTPUT ARGUMENTS...
  local name=$1 status=0; shift
  echo "== $name after $((SECONDS - start)) s"
  "$root/jobs/$name.sh" "$@" >"$reports/$name.log" 2>&1 || status=$?
  if [ $status != 0 ]; then echo "$name: exit $status; $(tail -1 "$reports/$name.log")" >&2; result=1; fi
}
if [ "$gpus" = 1 ]; then
  study band_seed "$folder/band_seed"
  study dense_seed "$folder/dense_seed"
  study cg_seed "$folder/cg_seed"
else
  study band_seed "$folder/two_gpus" "$gpus"
fi
echo "== done in $((SECONDS - start)) s"
exit $result
