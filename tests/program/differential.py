#!/usr/bin/env python3
"""Random commands, sizes, matrices, options, forms, ranks, restarts and damage against NumPy, SciPy and plain Python.

differential.py TERRACE [--seed 1] [--count 60] [--first 0] [--only N] [--jobs 2] [--backend cpu|cuda|auto] [--seconds S] [--stop]
                [--without NAME,...] [--family gf2|band|dense|cg|generate|convert]

Case N of a seed is the same whenever it is drawn. A failure is one line, which reproduces it. --without leaves out forms of
differential_forms.py, options (that say what a file does not), sparse, twists (restart, damage, alter, ranks) and zero, growth, norm, scale, pipelined.
"""
import argparse
import concurrent.futures
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")  # a killed job's last process may still hold a file that is read here

import differential_forms
import h5py
import numpy as np

import differential_solvers
from terrace import launcher_folder

warnings.simplefilter("ignore")
FAMILIES = ["gf2"] * 6 + ["band"] * 4 + ["dense"] * 5 + ["cg"] * 5 + ["generate", "convert"]
CODES = {0: "done", 2: "usage", 3: "input", 4: "outcome", 5: "resources", 6: "fault", 75: "stopped"}
FIELDS = {"command", "ranks", "backend", "status", "exit_code", "seconds", "result"}


class Draw:
    def __init__(self, seed, number):
        self.rng = np.random.default_rng([seed, number])

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def chance(self, p):
        return bool(self.rng.random() < p)

    def whole(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def order(self, n):
        return [int(k) for k in self.rng.permutation(n)]


class Done:
    """One run of the program."""

    def __init__(self, case, words, ranks, code, out, err, files, report):
        self.words, self.ranks, self.code, self.out, self.err, self.new, self.report = words, ranks, code, out, err, files, report
        self.lines = [x for x in err.splitlines() if x.startswith("terrace: ") and not x.startswith("terrace: warning: ")]
        self.message = self.lines[0] if self.lines else ""


class Case:
    def __init__(self, options, number):
        self.o, self.number = options, number
        self.draw = Draw(options.seed, number)
        self.folder = tempfile.mkdtemp(prefix=f"differential-{number}-")
        self.forms = differential_forms.Forms(self.draw, self.folder, options.without)
        self.failures, self.runs, self.last = [], 0, ""

    def fail(self, what):
        self.failures.append(" ".join(str(what).split())[:400])

    def check(self, condition, what):
        if not condition:
            self.fail(what() if callable(what) else what)
        return bool(condition)

    # --- running -----------------------------------------------------------------------------------
    def run(self, command, ranks=1, extra=(), left=(), environment=None, meanwhile=None, backend=True, killed=False):
        """command: text or words. `left`: files besides the named ones that may stay. Checks what every run promises."""
        words = (command.split() if isinstance(command, str) else list(command)) + list(extra)
        if backend and words[0] in ("gf2", "band", "dense", "cg"):
            words += ["--backend", self.o.backend]
        report = None
        if "--report" not in words and (words[0] != "verify" or self.draw.chance(0.3)):
            report = f"report{self.runs}.json"
            words += ["--report", report]
        self.runs += 1
        env = {**os.environ, **launcher_folder(), **(environment or {})}
        launch = [] if ranks == 1 else ["mpirun", "-n", str(ranks)]
        self.last = (f"mpirun -n {ranks} " if ranks > 1 else "") + "terrace " + shlex.join(words)
        before = set(os.listdir(self.folder))
        process = subprocess.Popen(launch + [self.o.terrace] + words, cwd=self.folder, env=env, text=True, errors="replace",
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if meanwhile:
            meanwhile(process)
        try:
            out, err = process.communicate(timeout=self.o.limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            self.fail(f"did not end in {self.o.limit:.0f} s: {self.last}")
            return Done(self, words, ranks, -1, "", "", set(), None)
        code, text = process.returncode, None
        files = set(os.listdir(self.folder)) - before
        if report is not None and report in files:
            try:
                with open(os.path.join(self.folder, report)) as f:
                    text = json.load(f, parse_constant=lambda x: self.fail(f"{x} in the report: {self.last}"))
            except ValueError as e:
                self.fail(f"the report is no JSON ({e}): {self.last}")
            files.discard(report)
        done = Done(self, words, ranks, code, out, err, files, text)
        if killed:
            return done
        if code not in CODES:
            self.fail(f"exit {code}: {self.last}: {err[:300]}")
            return done
        if code not in (0, 75):
            self.check(len(done.lines) == 1, lambda: f"exit {code} with {len(done.lines)} messages: {self.last}: {err[:300]}")
            self.check(done.message.count("; ") >= 2, lambda: f"a message of too few parts: {self.last}: {done.message}")
            self.check(all(31 < ord(c) != 127 for c in done.message), lambda: f"control characters in a message: {self.last}")
        elif code == 0:
            self.check(not done.lines, lambda: f"exit 0 with a message: {self.last}: {err[:300]}")
        if report is not None and code != 2:
            if self.check(isinstance(text, dict), lambda: f"no report: {self.last}"):
                self.check(FIELDS <= set(text), lambda: f"the report lacks {sorted(FIELDS - set(text))}: {self.last}")
                self.check(text.get("exit_code") == code, lambda: f"the report says exit {text.get('exit_code')}, not {code}: {self.last}")
        may_stay = set(left)
        if "-o" in words and (code == 0 or (words[0] == "cg" and code == 4)):
            name = words[words.index("-o") + 1].split(":")[0]
            may_stay.add(name)
            self.check(os.path.exists(os.path.join(self.folder, name)), lambda: f"no output: {self.last}")
        for option in ("--checkpoint",):
            if option in words:
                may_stay |= {words[words.index(option) + 1], words[words.index(option) + 1] + ".old"}
        if words[0] == "convert" and code == 0:
            may_stay.add(words[2].split(":")[0])
        self.check(files <= may_stay, lambda: f"left behind {sorted(files - may_stay)}: {self.last}")
        return done

    def path(self, name):
        return os.path.join(self.folder, name)

    def verify(self, name, expected, why=""):
        done = self.run(["verify", name], self.draw.pick([1, 1, 1, 2]))
        word = done.out.split()[0] if done.out.split() else ""
        good = (done.code, word) == ((0, "PASS") if expected else (4, "FAIL"))
        if not expected and done.code == 3 and done.message:
            good = True  # no longer readable
        self.check(good, lambda: f"verify says {done.out.strip()[:200]!r} (exit {done.code}), wanted {'PASS' if expected else 'FAIL'} {why}")
        return done


# --- twists: what is done with a problem after its plain run -----------------------------------------
def twist_alter(case, p, done):
    """An altered result must not verify; nor a result beside an altered input that it does not solve."""
    name = done.words[done.words.index("-o") + 1].split(":")[0]
    with h5py.File(case.path(name), "r+") as f:
        names = [k for k in f if isinstance(f[k], h5py.Dataset) and f[k].size and k != "residuals"]
        if not names:
            return
        d = f[case.draw.pick(names)]
        at = tuple(case.draw.whole(0, s - 1) for s in d.shape)
        value = d[at]
        word = np.array(value).view(np.uint64) ^ np.uint64(1 << case.draw.whole(0, 63))
        d[at] = word.view(d.dtype)
        what = f"{d.name}{at}"
    case.verify(name, False, f"({what} altered: {' '.join(done.words)})")


def twist_ranks(case, p, done):
    """The same bits on another number of ranks (cg: on the same one). Real numbers on GPUs: no promise."""
    allowed = p.same_bits_on(done.ranks)
    if not allowed or case.o.backend != "cpu" and not p.exact:
        return
    ranks = case.draw.pick(allowed)
    extra = [] if p.same_ranks_only or p.exact else p.fixed(done)
    if extra is None:
        return
    words = [w for w in p.words if w not in ("-o", "out.h5")] + ["-o", "again.h5"] + extra
    again = case.run(words, ranks)
    if case.check(again.code == 0, lambda: f"exit {again.code} on {ranks} ranks, 0 on {done.ranks}: {case.last}: {again.message}"):
        same_bits(case, "out.h5", "again.h5", f"on {done.ranks} and {ranks} ranks ({' '.join(words)})")


def same_bits(case, first, second, what):
    with h5py.File(case.path(first)) as a, h5py.File(case.path(second)) as b:
        for name in (k for k in a if isinstance(a[k], h5py.Dataset)):
            case.check(name in b and a[name].shape == b[name].shape and a[name][...].tobytes() == b[name][...].tobytes(), f"{name} differs {what}")


def twist_restart(case, p, done):
    """Killed, stopped or not, with checkpoints; continued on other ranks."""
    draw = case.draw
    ranks = done.ranks
    words = [w for w in p.words if w not in ("-o", "out.h5")]
    how = draw.pick(["kill", "stop", "stop", "whole"])
    step, victim = draw.whole(0, 6), draw.whole(0, ranks - 1)
    command = words + ["-o", "part.h5", "--checkpoint", "c.h5", "--checkpoint-every", "0.0001s"]
    environment, meanwhile, stamp = {}, None, case.path("stamp")
    if how != "whole":
        environment = {"TERRACE_TEST_FAULT": f"{victim}:solve:{step}:{'kill' if how == 'kill' else 'wait'}", "TERRACE_TEST_STAMP": stamp,
                       "TERRACE_TEST_WAIT": "0.3", "TERRACE_HEARTBEAT_SECONDS": "0" if ranks == 1 else "5"}
    if how == "stop":
        def meanwhile(process):
            end = time.time() + case.o.limit
            while time.time() < end and process.poll() is None:
                if os.path.exists(stamp):
                    process.send_signal(signal.SIGUSR2)
                    return
                time.sleep(0.005)
    first = case.run(command, ranks, left=["stamp"], environment=environment, meanwhile=meanwhile, killed=how == "kill")
    for name in os.listdir(case.folder):
        if name == "stamp" or (how == "kill" and name.startswith(".part.h5")):
            os.remove(case.path(name))
    if how != "kill":
        case.check(first.code in (0, 75), lambda: f"exit {first.code} with checkpoints, 0 without: {case.last}: {first.message}")
    if first.code == 75:
        case.check(os.path.exists(case.path("c.h5")), lambda: f"exit 75 without a checkpoint: {case.last}")
    if not os.path.exists(case.path("c.h5")):
        return
    other = draw.pick(p.continues_on(ranks))
    continued = words + ["-o", "resumed.h5", "--restart", "c.h5"]
    again = case.run(continued, other)
    if case.check(again.code == 0, lambda: f"restart ({how} at step {step} of rank {victim}, {ranks} ranks): exit {again.code}: {case.last}: {again.message}"):
        p.judge(again, "resumed.h5")
        if p.restart_bits and (case.o.backend == "cpu" or p.exact):
            same_bits(case, "out.h5", "resumed.h5", f"after a restart ({how} at step {step}, {ranks} then {other} ranks: {' '.join(continued)})")
        case.verify("resumed.h5", True, f"({case.last})")


def twist_damage(case, p, done):
    """Bytes of an input changed or cut off: an exit code of the contract and never a wrong answer."""
    name = case.draw.pick(sorted(x for x in os.listdir(case.folder) if not x.startswith(("out", "report", "again", "resumed", "c.h5"))))
    with open(case.path(name), "rb") as f:
        data = bytearray(f.read())
    if not data:
        return
    how, flips = case.draw.pick(["cut", "flip", "flip", "flip", "zero"]), 0
    at = case.draw.whole(0, len(data) - 1)
    if how == "cut":
        data = data[:at]
    elif how == "zero":
        data[at:at + case.draw.pick([1, 4, 64, 512])] = bytes(min(len(data) - at, case.draw.pick([1, 4, 64])))
    else:
        flips = case.draw.pick([1, 1, 2, 8])
        for _ in range(flips):
            at = case.draw.pick([case.draw.whole(0, len(data) - 1), case.draw.whole(0, min(len(data) - 1, 3000))])
            data[at] ^= 1 << case.draw.whole(0, 7)
    with open(case.path(name), "wb") as f:
        f.write(data)
    words = [w for w in p.words if w not in ("-o", "out.h5")] + ["-o", "damaged.h5"]
    again = case.run(words, done.ranks)
    if again.code == 0 and not differs(p.seen, snapshot(case), how == "cut" or flips == 1):
        before = len(case.failures)
        p.judge(again, "damaged.h5")
        case.failures[before:] = [f"a damaged input ({how} of {name} at {at}): wrong answer: {x}" for x in case.failures[before:]]


def snapshot(case):
    """{part: hash} of all that h5py reads in the inputs, None for a part that it cannot read, by a process of its own; {} if it died."""
    done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "differential_forms.py"), case.folder],
                          capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def differs(before, now, lone):
    """Whether numbers or attributes may have changed. One flip, or a cut, that hides a part from h5py leaves the part's own bytes as before."""
    if any(now[part] not in (before.get(part), None) for part in now):
        return True
    return not lone and any(now.get(part) is None for part in before)


def run_case(options, number):
    case = Case(options, number)
    try:
        family = case.draw.pick([x for x in FAMILIES if options.family in (None, x)])
        problem = getattr(differential_solvers, family)(case)
        if problem is not None:
            solve(case, problem)
    except Exception as e:  # of this test
        import traceback
        case.fail(f"the test failed: {traceback.format_exc() if options.only is not None else repr(e)} after {case.last}")
    if options.only is None:
        shutil.rmtree(case.folder, ignore_errors=True)
    return number, case.failures, case.runs, case.last, case.forms.tags, case.folder


def solve(case, p):
    draw = case.draw
    ranks = p.ranks if p.ranks else draw.pick([1, 1, 1, 2, 3, 4])
    done = case.run(p.words, ranks)
    if done.code == 2 and p.may_refuse:
        named = [w for w in done.words if w.startswith("--") and w in done.message]
        case.check(named, lambda: f"refused without naming an option: {case.last}: {done.message}")
        return
    if not case.check(done.code in p.codes, lambda: f"exit {done.code}, wanted {sorted(p.codes)} ({p.what}): {case.last}: {done.message}"):
        return
    if done.code != 0:
        p.judge_outcome(done)
        return
    p.judge(done, "out.h5")
    if "-o" not in done.words or not p.verifies:
        return
    case.verify("out.h5", True, f"({case.last})")
    twists = [t for t in ("restart", "alter", "ranks", "damage", "none", "none") if t not in case.o.without]
    twist = draw.pick(twists)
    if case.failures or twist == "none" or (twist == "restart" and not p.restarts):
        return
    if twist == "damage":
        p.seen = snapshot(case)
    globals()["twist_" + twist](case, p, done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("terrace", type=os.path.abspath)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="where a run that was ended goes on")
    parser.add_argument("--only", type=int, help="this case alone, its files kept")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", choices=["cpu", "cuda", "auto"], default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins after these")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run")
    parser.add_argument("--without", type=lambda x: x.split(","), default=[])
    parser.add_argument("--stop", action="store_true", help="at the first failure")
    parser.add_argument("--family", choices=sorted(set(FAMILIES)))
    options = parser.parse_args()
    if not os.access(options.terrace, os.X_OK):
        sys.exit(f"no such program: {options.terrace}")
    begin, bad, runs, cases = time.time(), 0, 0, 0
    numbers = [options.only] if options.only is not None else range(options.first, options.first + options.count)
    again = f"{sys.argv[0]} {options.terrace} --seed {options.seed}"
    for name, value in (("--backend", options.backend if options.backend != "cpu" else ""), ("--without", ",".join(options.without)),
                        ("--family", options.family)):
        if value:
            again += f" {name} {value}"

    def one(number):
        return run_case(options, number) if time.time() - begin < options.seconds and not (bad and options.stop) else None

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(one, numbers):
            if result is None:
                continue
            number, failures, count, last, tags, folder = result
            runs, cases = runs + count, cases + 1
            if failures:
                bad += 1
                print(f"{again} --only {number}   # {failures[0]} [{' '.join(tags)}]", flush=True)
            if options.only is not None:
                print("\n".join([f"files: {folder}", f"last: {last}"] + failures))
    print(f"{cases} cases, {runs} runs, {bad} failed, {time.time() - begin:.0f} s")
    return 1 if bad else 0


for key, value in (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                   ("OMPI_MCA_hwloc_base_binding_policy", "none"), ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
                   ("OMPI_MCA_odls_base_sigkill_timeout", "0"), ("OMPI_MCA_mpi_yield_when_idle", "1"), ("TERRACE_OVERSUBSCRIBE", "1"),
                   ("OMPI_MCA_pml", "ob1"), ("TERRACE_THREADS", "1")):
    os.environ.setdefault(key, value)
if __name__ == "__main__":
    sys.exit(main())
