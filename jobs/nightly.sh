#!/usr/bin/env bash
# What takes too long for every change; each part can be run alone, and a whole nightly can be run in parts.
#   ./jobs/nightly.sh [--only PART,...] [--minutes M] [--inputs N] [--gib G] [--backend cpu|cuda] [--log FILE] [PROGRAM]
#     cases         the program's tests with all their cases, where a run of the tests takes a part
#     differential  random commands, forms, options, ranks, restarts, damage against NumPy and SciPy: M minutes
#     inputs        N mutated inputs (20,000); N / 50 damaged bytes of each layout of HDF5
#     tidy          clang-tidy on every source; every header compiles alone
#     tsan, asan    sanitized tests under ThreadSanitizer; all their cases under AddressSanitizer
#     asan-inputs   N / 10 mutated inputs under AddressSanitizer
#     load, faults  G (8) GiB of every layout, and ranks' memory on matrices of 1 GB; 200 injected faults
#     python        500 cases of the Python package on 1 and on 3 ranks
#     alarms        3,000 matrices under --guard, and 100,000 of each family in one process, without a false alarm
#     m4ri          M4RI's bits on 1 to 5 ranks
#     fuzz          libFuzzer on the parsers (clang): M / 2 minutes a target
#     mutations     one-line mutations and the tests that should notice them: M minutes, goes on where the last run ended
#   default: all, 30 minutes, build-test/terrace as jobs/test.sh builds it, log nightly-DATE.log beside it. Exit 1: a part failed.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set +e
cd "$root"
all=cases,differential,inputs,tidy,tsan,asan,asan-inputs,load,faults,python,alarms,m4ri,fuzz,mutations
parts=$all
minutes=30 inputs=20000 gib=8 backend=cpu log= program=build-test/terrace
while [ $# -gt 0 ]; do
  case $1 in
    --only) parts=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --inputs) inputs=$2; shift 2 ;;
    --gib) gib=$2; shift 2 ;;
    --backend) backend=$2; shift 2 ;;
    --log) log=$2; shift 2 ;;
    --*) echo "unknown option $1; see the head of $0" >&2; exit 2 ;;
    *) program=$1; shift ;;
  esac
done
for part in ${parts//,/ }; do
  [[ ",$all," == *",$part,"* ]] || { echo "unknown part $part; there are $all" >&2; exit 2; }
done
program=$(realpath "$program")
date=$(date +%Y%m%d)
log=${log:-$(dirname "$program")/nightly-$date.log}
exec > >(tee -a "$log") 2>&1
failed=0
python=/usr/bin/python3  # the one with the packages of setup.sh
[ -x "$python" ] || python=python3
seconds=$(awk "BEGIN { print int(60 * $minutes) }")
wanted() { [[ ",$parts," == *",$1,"* ]]; }
step() {  # its status is that of the command
  local start=$SECONDS status=0
  echo "== $(date -u +%FT%TZ) $*"
  "$@" || status=$?
  case $status in
    0) echo "== passed, $((SECONDS - start)) s" ;;
    77) echo "== skipped: $*" ;;  # its reason is said
    *) echo "== FAILED, $((SECONDS - start)) s: $*"; failed=1 ;;
  esac
  return $status
}
build() {  # build PRESET TARGET...: all that UndefinedBehaviorSanitizer knows; the preset leaves out what doubles the time to compile
  local all=(); if [ "$1" = asan ]; then all=("-DTERRACE_SANITIZE=address;undefined"); fi
  cmake --preset "$1" "${all[@]}" "${launcher[@]}" >/dev/null && cmake --build --preset "$1" --target "${@:2}"
}
build_fuzz() {
  cmake -S . -B build-fuzz -G Ninja -DTERRACE_FUZZ=ON -DTERRACE_TESTS=OFF -DTERRACE_CUDA=OFF -DTERRACE_WERROR=ON -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ "${launcher[@]}" >/dev/null && cmake --build build-fuzz --target text_fuzz structure_fuzz
}

echo "== nightly of $(git describe --always --dirty 2>/dev/null), $(uname -n), $(nproc) cores, parts $parts"
if wanted cases; then
  for name in $(grep -lE '\bALL\b|\.(some|part)\(' tests/program/*.py | xargs -n 1 basename | grep -v '^terrace.py'); do
    step env TERRACE_TEST_ALL=1 "$python" "tests/program/$name" "$program"
  done
fi
if wanted differential; then
  step "$python" tests/program/differential.py "$program" --count 1000000 --seed "$date" --seconds "$seconds" --jobs "$(nproc)" --backend "$backend"
fi
if wanted inputs; then
  step "$python" tests/program/fuzz.py "$program" --count "$inputs" --seed "$date" --jobs "$(nproc)"
  step "$python" tests/program/damaged.py "$program" --tries $((inputs / 50)) --seed "$date" --jobs "$(nproc)"
fi
if wanted tidy; then step "$python" tests/tidy.py . "$(dirname "$program")" --all; step "$python" tests/headers.py . "$(dirname "$program")" --all; fi
if wanted tsan; then
  if step build tsan sanitized_tests sanitized_kernels; then step ctest --preset tsan-all -j $(($(nproc) + 1)); fi
fi
if wanted asan; then
  if step build asan sanitized_tests sanitized_kernels; then step env TERRACE_TEST_ALL=1 ctest --preset asan-all -j $(($(nproc) + 1)); fi
fi
if wanted asan-inputs; then
  if step build asan terrace; then
    export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
    step "$python" tests/program/fuzz.py build-asan/terrace --count $((inputs / 10)) --seed "$date" --jobs "$(nproc)" --sanitized --limit 60
    unset ASAN_OPTIONS UBSAN_OPTIONS
  fi
fi
if wanted load; then
  step "$python" tests/program/load.py "$program" --gib "$gib" --ranks 1,2,4 --least 0.8
  step "$python" tests/program/memory.py "$program" --large
fi
if wanted faults; then step "$python" tests/program/faults.py "$program" --runs 200; fi
if wanted python; then
  export PYTHONPATH=$root/src/api/python TERRACE_LIBRARY=$(dirname "$program")/libterrace.so TERRACE_PROGRAM=$program
  step "$python" tests/api/python_test.py --count 500 --seed "$date"  # without a launcher: it starts the program itself
  step mpirun -n 3 "$python" tests/api/python_test.py --count 500 --seed "$date"
  unset PYTHONPATH TERRACE_LIBRARY TERRACE_PROGRAM
fi
tests=$(dirname "$program")/tests
if wanted alarms; then
  step "$python" tests/program/alarms.py "$program" --count 3000 --seed "$date"
  for family in dense gf2 band cg; do
    step env TERRACE_THREADS=1 TERRACE_GUARD_CASES=100000 "$tests/${family}_guard_test" "~*CUDA*"
  done
fi
if wanted m4ri; then
  if [ -x "$tests/m4ri_identity" ]; then
    step tests/rivals/identity.sh mpirun "$tests/gf2_identity" "$tests/m4ri_identity"
  else
    echo "== skipped: m4ri: there is no $tests/m4ri_identity; install libm4ri-dev, configure and build again"
  fi
fi
if wanted fuzz; then
  terrace_install fuzz
  if step build_fuzz; then
    for target in text structure; do
      corpus=build-fuzz/corpus-$target
      "$python" tests/fuzz/corpus.py "$target" "$corpus"
      step env ASAN_OPTIONS=detect_leaks=0 "build-fuzz/tests/fuzz/${target}_fuzz" "$corpus" -max_total_time=$((seconds / 2)) -timeout=60 -rss_limit_mb=4096 \
        -max_len=4096 -print_final_stats=1 -verbosity=0 -error_exitcode=1 -artifact_prefix="build-fuzz/$target-"
      for found in build-fuzz/"$target"-*; do [ -f "$found" ] && echo "ASAN_OPTIONS=detect_leaks=0 build-fuzz/tests/fuzz/${target}_fuzz $found   # an input that fails"; done
    done
  fi
fi
if wanted mutations; then step "$python" jobs/mutations.py --minutes "$minutes" --backend "$backend" --table build-mutations/mutations.md; fi
echo "== nightly ended with $failed; $log"
exit $failed
