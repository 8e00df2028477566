#!/usr/bin/env python3
"""Wall seconds of whole runs of terrace, from the prompt to the file, and their phases.

whole_runs.py TERRACE [--backend cuda] [--only gf2,dense,band,cg,start] [--scale 1] [--repeat 3] [--ranks 1]
              [--memory /dev/shm] [--disk FOLDER] [--output FILE.json] [--compare OTHER_TERRACE] [--rivals]

Each problem is generated once, into memory; the first run is left out, medians of the others are shown. The input lies in the
page cache, the output goes to --memory, and with --disk there too. With --compare both programs take turns. Pages of memory are
touched first: some virtual machines get them one by one. --scale 0.1 for small machines. --rivals: what one would write in Python
for the same file (jobs/whole_rivals.py), as a whole process, too.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("--backend", default="cuda")
parser.add_argument("--only", default="start,gf2,dense,band,cg")
parser.add_argument("--scale", type=float, default=1, help="of the orders")
parser.add_argument("--repeat", type=int, default=3)
parser.add_argument("--ranks", type=int, default=1)
parser.add_argument("--memory", default="/dev/shm")
parser.add_argument("--disk")
parser.add_argument("--output", help="a JSON file with every figure")
parser.add_argument("--compare", type=os.path.abspath)
parser.add_argument("--rivals", action="store_true")
parser.add_argument("--limit", type=float, default=1e9, help="no new problem after so many seconds")
options = parser.parse_args()
begin = time.monotonic()


def n(order, least=64):
    return max(least, int(order * options.scale))


points = max(8, int(200 * options.scale ** 0.67))
PROBLEMS = [
    ("start", "--version", None, "--version"),
    ("start", "gf2 rank 1,000", "gf2-random --rows 1000", "gf2 rank in.h5:/A"),
    ("gf2", f"gf2 rank {n(20000)}", f"gf2-random --rows {n(20000)}", "gf2 rank in.h5:/A"),
    ("gf2", f"gf2 rref {n(70000)}", f"gf2-random --rows {n(70000)}", "gf2 rref in.h5:/A -o OUT"),
    ("gf2", f"gf2 rref {n(131072)}", f"gf2-random --rows {n(131072)}", "gf2 rref in.h5:/A -o OUT"),
    ("dense", f"dense invert {n(3000)}", f"dense-random --n {n(3000)}", "dense invert in.h5:/A -o OUT"),
    ("dense", f"dense invert {n(11000)}", f"dense-random --n {n(11000)}", "dense invert in.h5:/A -o OUT"),
    ("dense", f"dense invert {n(20000)}", f"dense-random --n {n(20000)}", "dense invert in.h5:/A -o OUT"),
    ("dense", f"dense solve {n(12000)}", f"dense-random --n {n(12000)} --rhs 1", "dense solve in.h5:/A --rhs :/b -o OUT"),
    ("band", f"band solve {n(200000)} x 300", f"band-spd --n {n(200000, 700)} --half-bandwidth 300 --rhs 1",
     "band solve in.h5:/A --rhs :/b -o OUT"),
    ("band", f"band solve {n(1000000)} x 300", f"band-spd --n {n(1000000, 700)} --half-bandwidth 300 --rhs 1",
     "band solve in.h5:/A --rhs :/b -o OUT"),
    ("cg", f"cg CSR {points}^3", f"csr-laplace --dim 3 --points {points} --rhs 1",
     "cg in.h5:/A --rhs :/b --preconditioner jacobi --max-iterations 10000 -o OUT"),
    ("cg", f"cg band {n(4000000)} x 100", f"band-spd --n {n(4000000)} --half-bandwidth 100 --rhs 1",
     "cg in.h5:/A --rhs :/b -o OUT"),
    ("cg", f"cg dense {n(30000)}", f"dense-spd --n {n(30000)} --rhs 1", "cg in.h5:/A --rhs :/b -o OUT"),
]
RIVALS = {"dense invert": "inv", "dense solve": "solve", "band solve": "banded", "cg CSR": "cg-csr", "cg dense": "cg-dense"}
PHASES = ["read", "solve", "check", "write", "total"]


def touch_memory(gigabytes):
    subprocess.run([sys.executable, "-c", f"b = bytearray({int(gigabytes * 2**30)}); b[::4096] = bytes(len(b[::4096]))"], check=True)


def one(program, command, folder, target):
    """Wall seconds and seconds by phase of one run."""
    report = os.path.join(tempfile.gettempdir(), f"terrace-whole-{os.getpid()}.json")
    for old in (report, target):
        if os.path.exists(old):
            os.remove(old)
    words = [program] + command.replace("OUT", target).split()
    if command != "--version":
        words += ["--report", report, "--backend", options.backend, "--quiet"]
    if options.ranks > 1:
        words = ["mpirun", "--oversubscribe", "-n", str(options.ranks)] + words
    start = time.monotonic()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    wall = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{command}: exit {done.returncode}: {done.stderr}")
    seconds = {}
    if os.path.exists(report):
        with open(report) as file:
            told = json.load(file)
        seconds = told["seconds"]
        if told.get("residual", 0) is None:
            sys.exit(f"{command}: residual is null")
        os.remove(report)
    return {"wall": wall, "start": wall - seconds.get("total", wall), **{p: seconds.get(p, 0.0) for p in PHASES}}


def rows(programs, command, folder, target):
    """Medians of each program's runs, taken in turns; the first is left out."""
    runs = [[] for _ in programs]
    for turn in range(options.repeat + 1):
        for k, program in enumerate(programs):
            told = one(program, command, folder, target)
            if turn > 0:
                runs[k].append(told)
    if os.path.exists(target):
        os.remove(target)
    return [{key: statistics.median(r[key] for r in mine) for key in mine[0]} for mine in runs]


def rival(name, folder):
    """Median wall seconds of the same problem in Python, the first run left out; none where there is no such script."""
    what = next((script for begin, script in RIVALS.items() if name.startswith(begin)), None)
    if what is None:
        return None
    target = os.path.join(folder, "rival-out.h5")
    words = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "whole_rivals.py"), what, "in.h5", target]
    walls = []
    for _ in range(options.repeat + 1):
        if os.path.exists(target):
            os.remove(target)
        start = time.monotonic()
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        walls.append(time.monotonic() - start)
        if done.returncode != 0:
            print(f"| {name} | Python | failed: {done.stderr.strip().splitlines()[-1:]} |", flush=True)
            return None
    os.remove(target)
    return statistics.median(walls[1:])


def main():
    programs = [options.terrace] + ([options.compare] if options.compare else [])
    places = [options.memory] + ([options.disk] if options.disk else [])
    touch_memory(min(24, 24 * options.scale))
    table = []
    print("| run | program | output in | start | read | solve | check | write | rest | wall |\n|---|---|---|---|---|---|---|---|---|---|")
    for family, name, generate, command in PROBLEMS:
        if family not in options.only.split(",") or time.monotonic() - begin > options.limit:
            continue
        folder = tempfile.mkdtemp(prefix="terrace-whole-", dir=options.memory)
        try:
            if generate:
                subprocess.run([options.terrace, "generate"] + generate.split() + ["-o", os.path.join(folder, "in.h5"), "--quiet"],
                               check=True, stdout=subprocess.DEVNULL)
            for place in places if "OUT" in command else places[:1]:
                target = os.path.join(folder if place == options.memory else place, "terrace-whole-out.h5")
                for k, told in enumerate(rows(programs, command, folder, target)):
                    rest = told["total"] - sum(told[p] for p in PHASES[:4])
                    print(f"| {name} | {'ab'[k]} | {place} | {told['start']:.3f} | " +
                          " | ".join(f"{told[p]:.3f}" for p in PHASES[:4]) + f" | {rest:.3f} | **{told['wall']:.3f}** |", flush=True)
                    table.append({"run": name, "program": "ab"[k], "place": place, "ranks": options.ranks, **told})
            if options.rivals and (wall := rival(name, folder)) is not None:
                print(f"| {name} | Python | {options.memory} | " + "| " * 6 + f"| **{wall:.3f}** |", flush=True)
                table.append({"run": name, "program": "python", "place": options.memory, "wall": wall})
        finally:
            shutil.rmtree(folder)
    if options.output:
        with open(options.output, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
