#!/usr/bin/env bash
# Installs what building needs on Debian 12 or Ubuntu 24.04 (only what is missing), and sets MPI's
# environment. Sourced by the other scripts; terrace_install [build|test|fuzz|python]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

terrace_install() {
  local packages=(build-essential cmake ninja-build pkg-config openmpi-bin libopenmpi-dev libhdf5-openmpi-dev libdeflate-dev
                  libopenblas-dev liblapacke-dev libcli11-dev libfmt-dev nlohmann-json3-dev libhwloc-dev jq)
  if [ "${1:-build}" = test ]; then
    packages+=(catch2 hdf5-tools python3 python3-numpy python3-scipy python3-h5py python3-mpi4py libm4ri-dev clang-format clang-tidy
               munge slurmctld slurmd slurm-client)
  fi
  if [ "${1:-build}" = python ]; then packages+=(python3-venv); fi
  if [ "${1:-build}" = fuzz ]; then
    packages+=(clang python3 python3-numpy)
    ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 ||
      packages+=("$(apt-cache search --names-only '^libclang-rt-[0-9]+-dev$' 2>/dev/null | cut -d' ' -f1 | sort -V | tail -1)")
  fi
  local wished=()  # without them a test is skipped
  if [ "${1:-build}" = test ]; then wished=(doxygen abigail-tools libmetis-dev libhypre-dev); fi
  command -v dpkg-query >/dev/null || { echo "This is no Debian or Ubuntu: install ${packages[*]} yourself, see jobs/README.md" >&2; return 0; }
  local missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local become=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Missing packages: ${missing[*]}; run as root or install sudo" >&2; exit 1; }
    become=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  [ ${#wished[@]} -eq 0 ] || "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wished[@]}" >/dev/null ||
    echo "not installed: ${wished[*]}; a test each is skipped" >&2
}

# nvcc, wherever the toolkit lies.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then PATH=$PATH:/usr/local/cuda/bin; fi

terrace_cuda_option() {  # CUDA is built where nvcc and NCCL are
  if command -v nvcc >/dev/null; then echo "-DTERRACE_CUDA=ON"; else echo "-DTERRACE_CUDA=OFF"; fi
}

terrace_gpus() { { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU ' || true; }

# Benchmarks' reports become tables. A run counts where its answer was checked and is right: what is not
# is said on stderr and in the table's notes, which the figures' texts repeat, and ends the script with 1.
terrace_note() {  # terrace_note TABLE STATUS WHAT: a start that ended with this exit status
  case $2 in
    124 | 137) echo "# left out, beyond the time limit: $3" ;;
    5) echo "# left out, no memory or device for it: $3" ;;
    *) echo "# failed, exit $2: $3" ;;
  esac | tee -a "$1" >&2
}
terrace_rows() {  # terrace_rows REPORT TABLE FILTER [JQ OPTIONS...]: FILTER makes a row's list of a run
  local report=$1 table=$2 filter=$3; shift 3
  if [ ! -e "$report" ]; then return 0; fi
  if ! command -v jq >/dev/null; then echo "jq is not here: $table stays without rows" >&2; return 0; fi
  jq -r 'def good: .failed == null and (.seconds | type) == "number" and ((.residual | type) == "number" or .certificate == "passed");
    .runs[]? | select(good | not) | "# failed, no checked answer: \(.who) \(del(.seconds, .rate, .fraction_of_bound) | tojson)"' "$report" |
    tee -a "$table" >&2
  jq -r "$@" 'def good: .failed == null and (.seconds | type) == "number" and ((.residual | type) == "number" or .certificate == "passed");
    . as $report | .runs[]? | select(good) | '"$filter"' | map(tostring) | join(",")' "$report" | tee -a "$table"
}
terrace_verdict() {  # terrace_verdict TABLE: 1 where something failed
  if grep -q '^# failed' "$1"; then echo "some runs failed: see the notes of $1" >&2; return 1; fi
}
# Of the numbers of the standard input; of an even count the mean of the middle two.
terrace_median() { sort -g | awk '{all[NR] = $1} END {if (NR) printf "%.9g\n", (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2}'; }

# Open MPI refuses root and more ranks than cores unless told; binding to one core would starve threads.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none
# On one machine mpirun needs no devices; to look for them takes it 0.04 to 0.1 s of each start.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--opencl,-gl,-cuda,-nvml,-rsmi,-levelzero,-pci,-linuxio}
export TERRACE_OVERSUBSCRIBE=1  # several ranks per GPU too: sizes and scripts tried on one machine
launcher=()
if [ -z "${CCACHE_DISABLE:-}" ] && command -v ccache >/dev/null; then  # one cache for every clone
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1
  launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi

# One start of the program: terrace_bench REPORT LOG LIMIT RANKS ARGUMENTS...  With KEEP=FOLDER its report is kept there
# as well; with REPLAY=FOLDER nothing is started, and kept reports are used: tables are made where jq is. With DEADLINE
# (seconds since 1970) nothing runs longer.
terrace_bench() {
  local report=$1 log=$2 limit=$3 ranks=$4 status=0 name; shift 4
  name=$(echo "$ranks $*" | cksum | cut -d ' ' -f 1)
  rm -f "$report"
  if [ -n "${REPLAY:-}" ]; then
    if [ ! -e "$REPLAY/$name.status" ]; then echo "no report of it" >"$log"; return 124; fi
    if [ -e "$REPLAY/$name.json" ]; then cp "$REPLAY/$name.json" "$report"; fi
    cp "$REPLAY/$name.log" "$log"
    return "$(cat "$REPLAY/$name.status")"
  fi
  if [ -n "${DEADLINE:-}" ]; then
    local left=$((DEADLINE - $(date +%s)))
    if [ "$left" -lt 5 ]; then echo "no time was left" >"$log"; return 124; fi
    if [ "$limit" -gt "$left" ]; then limit=$left; fi
  fi
  timeout -k 5 "$limit" mpirun -n "$ranks" "$terrace" "$@" --report "$report" >"$log" 2>&1 || status=$?
  if [ -n "${KEEP:-}" ]; then
    if [ -e "$report" ]; then cp "$report" "$KEEP/$name.json"; fi
    tail -3 "$log" >"$KEEP/$name.log"
    echo "$status" >"$KEEP/$name.status"
  fi
  return "$status"
}
# What measures, in a line of a table's notes.
terrace_machine() {
  if [ -n "${REPLAY:-}" ]; then cat "$REPLAY/machine"; return; fi
  local gpu cpu words
  gpu=$( { nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | sort | uniq -c | sed 's/^ *//' | paste -sd ' ')
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
  words="# CPU: ${cpu:-unknown}, $(nproc) cores, ${TERRACE_THREADS:-all} threads a rank; GPU: ${gpu:-none}; $(date -u +%Y-%m-%d)"
  echo "$words"
  if [ -n "${KEEP:-}" ]; then echo "$words" >"$KEEP/machine"; fi
}
