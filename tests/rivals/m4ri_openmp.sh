#!/usr/bin/env bash
# M4RI with OpenMP from its sources (https://github.com/malb/m4ri, a release or a clone), without autotools, and
# the programs on it, linked statically; packages are built for one core:
#   m4ri_openmp.sh SOURCES OUTPUT      OUTPUT/m4ri_bench_omp, OUTPUT/m4ri_identity_omp
# Environment: CC (cc), CXX (c++), FLAGS (-O3 -march=native), L1, L2, L3 (bytes; default: this machine's).
set -euo pipefail
sources=$(cd "$1" && pwd)/m4ri
mkdir -p "$2" && output=$(cd "$2" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
flags=(${FLAGS:--O3 -march=native} -fopenmp)
cache() { local bytes; bytes=$(getconf "$1" 2>/dev/null || true); [ "${bytes:-0}" -gt 0 ] && echo "$bytes" || echo "$2"; }
l1=${L1:-$(cache LEVEL1_DCACHE_SIZE 32768)} l2=${L2:-$(cache LEVEL2_CACHE_SIZE 1048576)} l3=${L3:-$(cache LEVEL3_CACHE_SIZE 16777216)}

build=$output/m4ri_openmp
rm -rf "$build" && mkdir -p "$build/m4ri"
cp "$sources"/*.[ch] "$build/m4ri"
sed -e "s/@M4RI_CPU_L1_CACHE@/$l1/; s/@M4RI_CPU_L2_CACHE@/$l2/; s/@M4RI_CPU_L3_CACHE@/$l3/" \
    -e 's/@M4RI_HAVE_MM_MALLOC@/1/; s/@M4RI_HAVE_POSIX_MEMALIGN@/1/; s/@M4RI_SSE2_ENABLED@/1/; s/@M4RI_HAVE_OPENMP@/1/' \
    -e 's/@OPENMP_CFLAGS@/-fopenmp/; s/@M4RI_ENABLE_MMC@/1/; s/@[A-Z0-9_]*@/0/g' "$sources/m4ri_config.h.in" >"$build/m4ri/m4ri_config.h"
: >"$build/m4ri/config.h"
for file in "$build"/m4ri/*.c; do
  ${CC:-cc} -std=gnu99 "${flags[@]}" -w -I"$build" -I"$build/m4ri" -c "$file" -o "${file%.c}.o"
done
ar rcs "$build/libm4ri.a" "$build"/m4ri/*.o
for program in m4ri_bench m4ri_identity; do
  ${CXX:-c++} -std=c++20 "${flags[@]}" -I"$build" -I"$root" "$root/tests/rivals/$program.cpp" "$root/kernels/energy.cpp" \
    "$build/libm4ri.a" -lm -ldl -o "$output/${program}_omp"
done
echo "$output/m4ri_bench_omp $output/m4ri_identity_omp"
