#!/bin/sh
# The reduced form of terrace has the bits of M4RI's: same_bits.sh MPIEXEC TERRACE M4RI_BENCH
mpiexec=$1 terrace=$2 rival=$3
for n in 1 64 65 1000 2050; do
  for kind in full half; do
    flag=; [ $kind = half ] && flag=--half-rank
    ours=$("$mpiexec" -n 3 "$terrace" bench gf2 --n $n --repeat 1 --seed 7 --backend cpu --checksum \
      $flag --progress never | grep '^rank') || exit 1
    theirs=$("$rival" $n 7 $kind | sed 's/^seconds [^ ]* threads [^ ]* //; s/ joules .*//')
    [ "$ours" = "$theirs" ] || { echo "n = $n, $kind: $ours; M4RI: $theirs"; exit 1; }
  done
done
ours=$("$mpiexec" -n 3 "$terrace" bench gf2 --n 300 --columns 700 --density 0.02 --rank 170 --repeat 1 --seed 7 \
  --backend cpu --checksum --progress never | grep '^rank') || exit 1
theirs=$("$rival" 300 7 full m4ri 700 0.02 170 rref | sed 's/^seconds [^ ]* threads [^ ]* //; s/ joules .*//')
[ "$ours" = "$theirs" ] || { echo "300 x 700, sparse, rank 170: $ours; M4RI: $theirs"; exit 1; }
echo "all bits agree"
