#!/usr/bin/env bash
# The installed tree as its users have it: moved elsewhere, headers that compile alone and fast, no names but ours, and the
# examples built against it with find_package and pkg-config, which print the same on 1, 2 and 3 ranks and in each language.
#   run.sh BUILD SOURCE WORK [static]     static: libterrace.a in place of the .so
set -euo pipefail
build=$1 source=$2 work=$3 kind=${4:-shared}
examples=$(realpath "$source/../../src/api/examples")
rm -rf "$work" && mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >/dev/null
if [ "$kind" = static ]; then
  rm -r "$work/first/lib"
  cmake --install "$build" --prefix "$work/first" --component static >/dev/null
fi
mv "$work/first" "$work/moved"
prefix=$work/moved
env -i "$prefix/bin/terrace" --version | head -1
# Pages, the scripts of the shells, the schema of reports.
for file in man/man1/terrace.1 man/man1/terrace-gf2-rref.1 bash-completion/completions/terrace zsh/site-functions/_terrace terrace/report.schema.json; do
  [ -s "$prefix/share/$file" ] || { echo "share/$file is not installed" >&2; exit 1; }
done
[ "$(bash -c '. "$1"; COMP_WORDS=(terrace gf2 r) COMP_CWORD=2; _terrace; echo "${COMPREPLY[*]}"' - "$prefix/share/bash-completion/completions/terrace")" = "rref rank" ]

# The program takes the place of two functions of libc: src/program/waiting.hpp.
for name in connect sched_yield; do nm -D --defined-only "$prefix/bin/terrace" | grep -qE " T $name\$"; done

# Nothing of ours but the front door is installed, and nothing of it names the place where it was built.
if find "$prefix" -name '*.a' -not -path "*/lib/libterrace.a" -o -path '*/include/*' -name '*.hpp' -not -path '*/include/terrace/*' | grep .; then
  echo "that is no public file" >&2; exit 1
fi
if grep -rlE "$(realpath "$build")|$work/first" "$prefix/lib/cmake" "$prefix/lib/pkgconfig" "$prefix/include"; then
  echo "these name a folder of the build" >&2; exit 1
fi
if [ "$kind" = static ]; then
  [ "$(ls "$prefix/lib"/libterrace*)" = "$prefix/lib/libterrace.a" ]
  ours() { nm -gC --defined-only "$prefix/lib/libterrace.a" | grep -E '^[0-9a-f]+ '; }
else
  ours() { nm -DC --defined-only "$(ls "$prefix"/lib/libterrace.so.*.*.*)"; }
fi
ours | grep -qE ' T terrace_open$'
if [ "$kind" = static ]; then  # the names that the shared library has
  names() { nm "$@" --defined-only | awk 'NF == 3 {print $3}' | sort; }
  diff <(names -D "$build/libterrace.so") <(names -g "$prefix/lib/libterrace.a")
fi
if ours | grep -vE ' (terrace_|terrace::api::|(vtable|typeinfo|typeinfo name) for terrace::api::)'; then
  echo "these names are exported, and not ours" >&2; exit 1
fi

# Every public header, in C++17 and without the headers of other libraries but MPI.
for header in "$prefix"/include/terrace/*.h*; do echo "#include <terrace/$(basename "$header")>"; done >"$work/all.cpp"
TIMEFORMAT='%U %S'
mpi=$(mpicc --showme:compile)
seconds=$( { time g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" $mpi -fsyntax-only "$work/all.cpp" -H 2>"$work/included"; } 2>&1)
echo "headers: $seconds s of a processor"
awk -v seconds="$seconds" 'BEGIN {split(seconds, of); exit !(of[1] + of[2] < 2)}' || { echo "public headers compile slowly" >&2; exit 1; }
if grep -v 'include/terrace/' "$work/included" | grep -E '/(fmt|nlohmann|CLI|hdf5|nccl|cuda)'; then echo "public headers include these" >&2; exit 1; fi
printf '#include <terrace/%s.h>\n' c hdf5 >"$work/all.c"
gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -DTERRACE_WITHOUT_MPI -fsyntax-only "$work/all.c"

clean=(env -i PATH=/usr/local/bin:/usr/bin:/bin)  # nothing of this shell's helps
"${clean[@]}" cmake -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release -DEXAMPLES="$examples" \
  -DTERRACE_F90="$prefix/share/terrace/terrace.f90" >/dev/null
"${clean[@]}" cmake --build "$work/build" -j 2 >/dev/null
"${clean[@]}" "$work/build/invert" 50 | grep -F 'residual good'
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
if [ "$kind" = static ]; then flags=$(pkg-config --static --cflags --libs terrace); else flags="$(pkg-config --cflags --libs terrace) -Wl,-rpath,$prefix/lib"; fi
gcc -std=c99 "$examples/poisson.c" -o "$work/poisson" $flags
"${clean[@]}" "$work/poisson" 40 | tail -1 | grep -E '^converged after [0-9]+ iterations, middle [0-9.]+$'

one=$(mpiexec -n 1 "$work/build/invert" 300)
echo "$one"
for ranks in 2 3; do [ "$one" = "$(mpiexec -n $ranks "$work/build/invert" 300)" ]; done
heat=$(mpiexec -n 1 "$work/build/heat" 20 30 5)
echo "$heat"
for ranks in 2 3; do [ "$heat" = "$(mpiexec -n $ranks "$work/build/heat" 20 30 5)" ]; done
for program in heat_c heat_f; do
  if [ -x "$work/build/$program" ]; then [ "$heat" = "$(mpiexec -n 3 "$work/build/$program" 20 30 5)" ]; fi
done
jumps=$(mpiexec -n 1 "$work/build/jumps" 150 5)
echo "$jumps" | grep -F 'after 5 steps: probability 1.000000000, drift '
for ranks in 2 3; do [ "$jumps" = "$(mpiexec -n $ranks "$work/build/jumps" 150 5)" ]; done
if [ "$kind" = static ]; then  # Python needs the .so
  for program in invert heat_c subgroup; do
    if ldd "$work/build/$program" | grep libterrace; then echo "$program takes a shared library of ours" >&2; exit 1; fi
  done
else
  export PYTHONPATH=$source/../../src/api/python TERRACE_LIBRARY=$prefix/lib/libterrace.so PYTHONDONTWRITEBYTECODE=1
  python=/usr/bin/python3  # with the packages of setup.sh
  [ "$heat" = "$($python "$examples/heat.py" 20 30 5)" ]
  if $python -c 'import mpi4py' 2>/dev/null; then [ "$heat" = "$(mpiexec -n 3 $python "$examples/heat.py" 20 30 5)" ]; fi
  for again in no yes; do [ "$jumps" = "$($python "$examples/jumps.py" 150 5 "$work/jumps.h5")" ]; done  # the second by the file
  $python "$examples/ldpc.py" 120 | grep -E '^rate 0.9: 12 checks, rank (9|10|11), '
  $python "$examples/beam.py" 40 | grep -F 'load at 1.00: tip moves 0.333333, by the formula 0.333333'
  $python "$examples/poisson.py" 30 | grep -E '^ +ic: [0-9]+ iterations, residual [0-9.]+e-1[0-9]'
fi
"$work/build/code_rank" 300 500 | grep -E '^rank [23][0-9]+, dimension [0-9]+, certified 1, weight of the first word [1-9]'
[ "$(mpiexec -n 4 "$work/build/subgroup")" = "singular in column 1
sum of the solution 0.995024876, of the other rank 7.485471" ]
operator=$(mpiexec -n 1 "$work/build/operator" 60)
echo "$operator" | grep -E '^converged after [0-9]+ iterations, sum [0-9.]+$'
for ranks in 2 3; do [ "${operator#*,}" = "$(mpiexec -n $ranks "$work/build/operator" 60 | sed 's/.*,//')" ]; done
if [ -x "$work/build/device" ]; then "$work/build/device" 200 | grep -xE 'inverted twice: the same matrix|there is no GPU here'; fi
# The library's page shows this very program; tests/pages.py compares that of README.md.
awk '/^```cpp$/{on=1; next} /^```$/{on=0} on' "$source/../../src/api/README.md" | diff - "$examples/invert.cpp"
