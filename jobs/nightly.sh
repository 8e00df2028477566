#!/usr/bin/env bash
# What takes too long for every change: 20,000 mutated inputs (2,000 under AddressSanitizer), all sanitized tests under ThreadSanitizer, 8 GiB of every
# layout, 200 injected faults, 100,000 matrices under --guard, M4RI's bits on 1 to 5 ranks.
#   ./jobs/nightly.sh [PROGRAM]     default: build-test/terrace, as jobs/test.sh builds it
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set +e
cd "$root"
program=$(realpath "${1:-build-test/terrace}")
failed=0
python=/usr/bin/python3  # the one with the packages of setup.sh
[ -x "$python" ] || python=python3
step() {  # 77: skipped, with its reason said
  echo "== $*"
  "$@" || { [ $? = 77 ] && echo "== skipped"; } || failed=1
}
step "$python" tests/program/fuzz.py "$program" --count 20000 --seed "$(date +%Y%m%d)" --jobs "$(nproc)"
if cmake --preset tsan "${launcher[@]}" >/dev/null && cmake --build --preset tsan --target sanitized_tests; then
  step ctest --preset tsan-all -j $(($(nproc) + 1))
else
  failed=1
fi
if cmake --preset asan "${launcher[@]}" >/dev/null && cmake --build --preset asan --target terrace; then
  export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
  step "$python" tests/program/fuzz.py build-asan/terrace --count 2000 --seed "$(date +%Y%m%d)" --jobs "$(nproc)" --sanitized --limit 60
  unset ASAN_OPTIONS UBSAN_OPTIONS
else
  failed=1
fi
step "$python" tests/program/load.py "$program" --gib 8 --ranks 1,2,4 --least 0.8
step "$python" tests/program/faults.py "$program" --runs 200
tests=$(dirname "$program")/tests
step "$python" tests/program/alarms.py "$program" --count 3000 --seed "$(date +%Y%m%d)"
for ranks in 1 3; do  # --guard calls no rounding a memory error
  TERRACE_GUARD_CASES=100000 step mpirun -n $ranks "$tests/src_dense_guard_test"
done
if [ -x "$tests/m4ri_identity" ]; then step tests/rivals/identity.sh mpirun "$tests/gf2_identity" "$tests/m4ri_identity"; fi
exit $failed
