#!/usr/bin/env bash
# Installs what is missing, builds, and runs the whole test suite; ends with ctest's summary.
#   ./jobs/test.sh [ctest options]      TERRACE_SANITIZERS="asan tsan" adds the sanitizer builds in a reduced form, or one of them
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
terrace_install test
cd "$root"

at_once=$(($(nproc) + 2))  # launching and waiting leave cores idle
unoptimized=OFF            # device code: without a GPU it is compiled and linked, and not run
if [ "$(terrace_gpus)" = 0 ]; then unoptimized=ON; fi

for preset in ${TERRACE_SANITIZERS:-}; do
  echo "== $preset"
  cmake --preset $preset "${launcher[@]}" >/dev/null
  cmake --build --preset $preset --target $([ $preset = tsan ] && echo lane_tests || echo sanitized_tests)
  ctest --preset $preset -j "$at_once"
done

echo "== all tests"
cmake -S . -B build-test -G Ninja -DTERRACE_TESTS=ON -DTERRACE_WERROR=ON "$(terrace_cuda_option)" -DTERRACE_CUDA_UNOPTIMIZED=$unoptimized -DTERRACE_QUICK_START=ON -DCMAKE_CXX_FLAGS=-D_GLIBCXX_ASSERTIONS -DCMAKE_UNITY_BUILD=ON "${launcher[@]}" >build-test.log 2>&1 ||
  { tail -20 build-test.log >&2; exit 1; }
rm -f build-test.log
cmake --build build-test
ctest --test-dir build-test --output-on-failure --no-tests=error -j "$at_once" "$@"
