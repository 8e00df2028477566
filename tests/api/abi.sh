#!/usr/bin/env bash
# Whether programs linked to an earlier build of this version of the library still run with this one.
#   abi.sh LIBRARY HEADERS VERSION            compares with terrace-VERSION.abi.xz beside this file
#   abi.sh LIBRARY HEADERS VERSION --store    makes that file; the name of the library changes with VERSION
# Needs abidiff (Debian: abigail-tools), and a library with -g, as builds with tests have.
set -euo pipefail
library=$1 headers=$2 baseline=$(dirname "$0")/terrace-$3.abi.xz
command -v abidw >/dev/null && command -v abidiff >/dev/null || { echo "skipped: abidiff is not here (abigail-tools)"; exit 77; }
describe() {
  abidw --drop-private-types --headers-dir "$headers" --no-show-locs --no-corpus-path --no-comp-dir-path --exported-interfaces-only \
    --no-parameter-names "$library"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
describe >"$work/now.abi"
if [ "${4-}" = --store ]; then xz -9 <"$work/now.abi" >"$baseline"; exit; fi
[ -f "$baseline" ] || { echo "skipped: there is no $baseline yet; make it with --store once $3 is released"; exit 77; }
xz -dc "$baseline" >"$work/then.abi"
found=0
abidiff --no-added-syms "$work/then.abi" "$work/now.abi" || found=$?
if [ $((found & 12)) -ne 0 ]; then
  echo "programs linked to $3 would break: undo the change, or raise the version in CMakeLists.txt" >&2; exit 1
fi
[ "$found" -eq 0 ]
