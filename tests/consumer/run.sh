#!/usr/bin/env bash
# Installs the build tree, builds the library page's example against it with find_package, runs it.
set -euo pipefail
build=$1 source=$2 work=$3
rm -rf "$work" && mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/terrace" --version
cmake -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
one=$(mpiexec -n 1 "$work/build/invert" 300)
two=$(mpiexec -n 2 "$work/build/invert" 300)
echo "$one"
[ "$one" = "$two" ]
# The library's page shows this very program; tests/pages.py compares that of README.md.
awk '/^```cpp$/{on=1; next} /^```$/{on=0} on' "$source/../../src/api/README.md" | diff - "$source/main.cpp"
