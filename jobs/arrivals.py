#!/usr/bin/env python3
"""Arrivals that may pass loads: kernels in which a thread arrives at a barrier in shared memory, or orders a bulk copy,
while its own loads from shared memory are still under way. Where the copies that follow fill the place of those loads,
a number is now and then one of the next tile: jobs/results/band.md, "A substitution that was wrong once in 200".
Each line found is to be looked at; give_back() of kernels/base/cuda/barriers.cuh is the cure.

arrivals.py OBJECT...     Object files or programs with code of compute capability 9; needs cuobjdump.
"""
import re
import subprocess
import sys

CODE = re.compile(r"\s+/\*([0-9a-f]+)\*/\s+(.*?);\s+/\* 0x[0-9a-f]+ \*/")
LOAD = re.compile(r"\b(LDS|LDSM|ATOMS)\b")
ARRIVAL = re.compile(r"\b(SYNCS\.ARRIVE|UBLKCP)\b")
ENDS = re.compile(r"(EXIT|RET|BRA 0x)")


def instructions(lines):
    """(address, text, scoreboard that says it is done or 7, mask of scoreboards waited for), from a kernel's lines."""
    for line, below in zip(lines, lines[1:]):
        if found := CODE.match(line):
            control = int(re.search(r"0x([0-9a-f]+)", below)[1], 16) >> 41
            yield found[1], found[2], control >> 5 & 7, control >> 11 & 63


def arrivals(lines):
    under_way, found = {}, []
    for address, text, board, waits in instructions(lines):
        under_way = {b: loads for b, loads in under_way.items() if not waits >> b & 1}
        if "MEMBAR" in text or ENDS.match(text.strip()):
            under_way = {}
        if LOAD.search(text) and board < 6:
            under_way.setdefault(board, []).append(address)
        if ARRIVAL.search(text) and under_way:
            found.append((address, text.strip(), sum(under_way.values(), [])))
    return found


def main():
    for path in sys.argv[1:]:
        listing = subprocess.run(["cuobjdump", "-sass", path], capture_output=True, text=True, check=True).stdout
        for kernel in listing.split("Function : ")[1:]:
            lines = kernel.split("\n")
            for address, text, loads in arrivals(lines):
                name = subprocess.run(["c++filt", lines[0].strip()], capture_output=True, text=True, check=True).stdout
                print(f"{path}: {name.strip()[:100]}\n  {address} {text} before loads {' '.join(loads)}")


if __name__ == "__main__":
    main()
