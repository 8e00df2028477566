#!/usr/bin/env bash
# What takes too long for every change: 20,000 mutated inputs, 8 GiB of every layout, 200 injected faults.
#   ./jobs/nightly.sh [PROGRAM]     default: build-test/terrace, as jobs/test.sh builds it
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set +e
cd "$root"
program=$(realpath "${1:-build-test/terrace}")
failed=0
step() { echo "== $*"; "$@" || failed=1; }
step python3 tests/program/fuzz.py "$program" --count 20000 --seed "$(date +%Y%m%d)" --jobs "$(nproc)"
step python3 tests/program/load.py "$program" --gib 8 --ranks 1,2,4 --least 0.8
if [ -f tests/program/faults.py ]; then step python3 tests/program/faults.py "$program" --runs 200; fi
exit $failed
