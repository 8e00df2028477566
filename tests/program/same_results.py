#!/usr/bin/env python3
"""Two builds of the program, the same commands: every bit, count and message must be the same.

same_results.py OLD NEW [--family cg] [--seed 1] [--count 100] [--first 0] [--only N] [--jobs 2] [--seconds S] [--stop] [--without NAME,...]

For refactors that may change no result. Commands are those that differential.py draws; case N of a seed is the same whenever it is drawn.
Each runs with both programs on the same inputs and ranks. Compared are exit code, output lines, report and every dataset and attribute of
the output, bit by bit, without times. Some cases keep checkpoints and then continue, with both programs, from those of either, on other
ranks where that is allowed. Other files that a run leaves are compared too: a library that counts calls (LD_PRELOAD) may write counts.*.
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import differential
import differential_solvers
import h5py
import numpy as np
from terrace import launcher_folder

TIMES = {"seconds", "rate", "imbalance", "start_time", "version", "plan", "written", "read", "step", "inputs", "stages", "terrace_hash", "command_line", "reading_within_solve", "timeline"}
NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
TIMED = re.compile(rf"{NUMBER}(?= (s|iterations/s|ms|min|h|GB/s|MB/s|GB|Tbit/s|[GT]?bit-MAC/s|[GTM]?[Ff][Ll][Oo][Pp]/s)\b)")


def lines(text, folder, start=""):
    """Output without times and places; bars of progress left out."""
    text = text.replace(folder, "FOLDER")
    return [TIMED.sub("N", x) for x in text.splitlines() if x.startswith(start) and "%" not in x]


def timeless(value, where=""):
    """A report without what the clock and the machine say."""
    if isinstance(value, dict):
        return {k: timeless(v, k) for k, v in value.items() if k not in TIMES}
    if isinstance(value, list):
        return [timeless(v, where) for v in value]
    return value


def attributes(thing, folder):
    result = {}
    for key in sorted(thing.attrs):
        value = thing.attrs[key]
        text = value if isinstance(value, str) else np.asarray(value).tobytes().hex() if np.asarray(value).dtype != object else str(value)
        if key not in TIMES and "time" not in key and "second" not in key:
            result[key] = text.replace(folder, "FOLDER")
    return result


def contents(path, folder):
    """Every dataset and attribute, by its path."""
    found = {}

    def take(name, thing):
        found[name] = attributes(thing, folder)
        if isinstance(thing, h5py.Dataset):
            data = thing[...]
            found[name + " data"] = (thing.shape, thing.dtype.str, data.tobytes() if data.dtype != object else str(data))

    with h5py.File(path) as f:
        take("/", f)
        f.visititems(take)
    return found


class Run:
    def __init__(self, program, folder, words, ranks, limit):
        report = os.path.join(folder, "report.json")
        launch = [] if ranks == 1 else ["mpirun", "-n", str(ranks)]
        before = set(os.listdir(folder))
        done = subprocess.run(launch + [program] + words + ["--report", "report.json"], cwd=folder, env={**os.environ, **launcher_folder()}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=limit)
        self.code, self.out, self.err = done.returncode, lines(done.stdout, folder), lines(done.stderr, folder, "terrace: ")
        self.report, self.files, self.other = None, {}, {}
        if os.path.exists(report):
            with open(report) as f:
                self.report = timeless(json.load(f))
                self.report = json.loads(json.dumps(self.report).replace(folder, "FOLDER"))
            os.remove(report)
        for name in sorted(set(os.listdir(folder)) - before):
            path = os.path.join(folder, name)
            if name in ("c.h5", "c.h5.old"):
                continue  # when one is written is a matter of time
            if name.endswith(".h5"):
                self.files[name] = contents(path, folder)
            elif name.startswith("counts"):
                with open(path) as f:
                    self.other[name] = f.read()
            if name != "report.json":
                os.remove(path)


def difference(a, b, where):
    """What differs first, in words; nothing where all is the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b), key=str):
            if key not in a or key not in b:
                return f"{where}: {key} only with the {'new' if key in b else 'old'} program"
            if text := difference(a[key], b[key], f"{where} {key}"):
                return text
        return ""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return ""
    return "" if a == b else f"{where}: {str(a)[:150]} and {str(b)[:150]}"


def compare(old, new, with_report=True):
    parts = [("exit code", old.code, new.code), ("stdout", old.out, new.out), ("stderr", old.err, new.err), ("files", old.files, new.files)]
    if with_report:
        parts += [("report", old.report, new.report), ("counts", old.other, new.other)]
    return next((text for name, a, b in parts if (text := difference(a, b, name))), "")


def link(inputs, folder):
    """Inputs with the same times of change."""
    os.mkdir(folder)
    for name in os.listdir(inputs):
        if name.endswith(".h5"):
            os.link(os.path.join(inputs, name), os.path.join(folder, name))
    return folder


def run_case(options, number):
    case = differential.Case(options, number)
    text, runs, code, words = "", 0, None, []
    try:
        family = case.draw.pick([x for x in ("gf2", "band", "dense", "cg") if options.family in (None, x)])
        problem = getattr(differential_solvers, family)(case)
        if problem is None:  # a run that comes first said so
            return number, "; ".join(case.failures), case.runs, None, case.last, case.folder
        draw = case.draw
        ranks = problem.ranks if problem.ranks else draw.pick([1, 1, 2, 3, 4])
        kept, other = draw.chance(options.checkpoints), draw.pick([ranks, ranks, 1, 2, 3, 4])
        if other not in problem.continues_on(ranks):
            other = ranks
        words = problem.words + ["--backend", options.backend]
        folders = [link(case.folder, os.path.join(case.folder, name)) for name in ("x", "y")]
        programs = [options.old, options.new]
        old, new = (Run(p, f, words, ranks, options.limit) for p, f in zip(programs, folders))
        runs, code = 2, old.code
        text = compare(old, new)
        if not text and kept and problem.restarts and code in (0, 4):
            for maker, folder in zip(programs, folders):
                first = Run(maker, folder, words + ["--checkpoint", "c.h5", "--checkpoint-every", "0.0001s"], ranks, options.limit)
                runs += 1
                text = text or difference(old.files, first.files, "with checkpoints") if options.backend == "cpu" else text
                again = []
                if os.path.exists(os.path.join(folder, "c.h5")):
                    again = [Run(p, folder, words + ["--restart", "c.h5"], other, options.limit) for p in programs]
                    runs += 2
                    text = text or compare(*again, False)
                if text:
                    text += f" (checkpoint of the {'old' if maker == options.old else 'new'} program, {ranks} then {other} ranks)"
                    break
    except Exception as e:  # of this test
        text = f"the test failed: {e!r}"
    if options.only is None:
        shutil.rmtree(case.folder, ignore_errors=True)
    return number, text, runs, code, f"mpirun -n {ranks if words else '?'} terrace {shlex.join(words)}", case.folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=os.path.abspath)
    parser.add_argument("new", type=os.path.abspath)
    parser.add_argument("--family", choices=["gf2", "band", "dense", "cg"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, help="this case alone, its files kept")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", choices=["cpu", "cuda", "auto"], default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins after these")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a run")
    parser.add_argument("--checkpoints", type=float, default=0.2, help="share of the cases that keep checkpoints and continue")
    parser.add_argument("--without", type=lambda x: x.split(","), default=[])
    parser.add_argument("--stop", action="store_true", help="at the first difference")
    options = parser.parse_args()
    for program in (options.old, options.new):
        if not os.access(program, os.X_OK):
            sys.exit(f"no such program: {program}")
    options.terrace = options.old  # what differential.Case runs, where a family does
    begin, bad, runs, cases, codes = time.time(), 0, 0, 0, {}
    numbers = [options.only] if options.only is not None else range(options.first, options.first + options.count)

    def one(number):
        return run_case(options, number) if time.time() - begin < options.seconds and not (bad and options.stop) else None

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(one, numbers):
            if result is None:
                continue
            number, text, count, code, command, folder = result
            runs, cases, codes[code] = runs + count, cases + 1, codes.get(code, 0) + 1
            if text:
                bad += 1
                print(f"case {number} of seed {options.seed}: {text}; {command}", flush=True)
            if options.only is not None:
                print(f"files: {folder}\n{command}")
    print(f"{cases} cases, {runs} runs, exit codes {dict(sorted(codes.items(), key=str))}, {bad} differ, {time.time() - begin:.0f} s")
    return 1 if bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
