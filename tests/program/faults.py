#!/usr/bin/env python3
"""Faults at random places: each run ends within the limit, with a documented exit code, a line that names rank, host,
phase and step, no output, no temporary file and no process left.

faults.py TERRACE [--runs N] [--seed S] [--at-once K] [--only KIND]     Needs h5py and numpy, and a build with tests.
"""
import argparse
import concurrent.futures
import os
import random
import re
import shutil
import socket
import subprocess
import time

import h5py
import numpy as np

from terrace import Program, launcher_folder

options = argparse.ArgumentParser()
options.add_argument("terrace")
options.add_argument("--runs", type=int, default=24)
options.add_argument("--seed", type=int, default=int(time.time()))
options.add_argument("--at-once", type=int, default=2)
options.add_argument("--only", default="")
options = options.parse_args()
test, host = Program(options.terrace, TERRACE_THREADS="1"), socket.gethostname()
limit = 10.0  # TERRACE_HEARTBEAT_SECONDS' default
margin = 5.0  # for a busy machine
rng = np.random.default_rng(5)
n = 480
with h5py.File("in.h5", "w") as f:
    f["A"] = rng.normal(size=(n, n)) + n * np.eye(n)
    f["b"] = rng.normal(size=n)
    spd = rng.normal(size=(n, n))
    f["spd"] = spd @ spd.T + np.eye(n)
    f["bits"] = rng.integers(0, 2, (2000, 2000), dtype=np.uint8)
    band = np.full((65, 6000), 0.1)
    band[0] = 20
    f["band"] = band
    f["band"].attrs["format"] = "band"
    f["band_b"] = rng.normal(size=6000)
# family: command, the steps of the loop at which a fault may come (every rank passes them)
families = {
    "gf2": ("gf2 rref in.h5:/bits", 6),
    "band": ("band factor in.h5:/band", 20),
    "dense": ("dense solve in.h5:/A --rhs :/b --block 32", 10),
    "cg": ("cg in.h5:/spd --rhs :/b", 20),
}
kinds = ["throw", "kill", "stop", "exit", "hang", "full", "shrink", "stuck"]  # stuck: throws, and its clean-up never ends
# What mpirun may answer. It reports the code of the rank that it sees end first: that of the killed rank (128 + 9, or
# 1 for exit) or 6, with which the other ranks end.
expected = {"throw": {70}, "kill": {6, 137}, "stop": {6, 137}, "exit": {6, 1}, "hang": {6}, "full": {5}, "shrink": {3, 5},
            "stuck": {6}}


def ours(marker):
    """Processes that carry the marker in their environment: what this run has left."""
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                environment = f.read()
            with open(f"/proc/{pid}/stat") as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if marker.encode() in environment.split(b"\0") and state != "Z":
            left.append(int(pid))
    return left


def attempt(number):
    random_ = random.Random(options.seed * 100003 + number)
    kind = options.only or random_.choice(kinds)
    family = random_.choice(list(families))
    command, steps = families[family]
    ranks = random_.randint(2, 4)
    rank = random_.randrange(ranks)
    phase = {"full": "write", "shrink": "read"}.get(kind) or random_.choice(["read", "solve", "solve", "solve", "check", "write"])
    if phase == "check" and family in ("band", "cg"):  # these have no phase of that name
        phase = "write"
    step = random_.randint(1, steps) if phase == "solve" and random_.random() < 0.8 else None
    fault = f"{rank}:{phase}" + (f":{step}" if step is not None else "") + f":{kind}"
    what = f"run {number}: {family}, {ranks} ranks, {fault}"
    place = f"run{number}"
    os.mkdir(place)
    shutil.copy("in.h5", place)
    marker = f"TERRACE_FAULT_RUN={os.getpid()}-{number}"
    name, value = marker.split("=")
    environment = test.env({**launcher_folder(), name: value, "TERRACE_TEST_FAULT": fault, "TERRACE_TEST_FILE": "in.h5", "TERRACE_TEST_STAMP": "stamp"})
    if kind == "hang":
        environment["TERRACE_STALL_SECONDS"] = "4"
    # Each rank's own exit code, by a shell that outlives mpirun's SIGTERM.
    script = 'trap : TERM; "$@"; echo $? > code.$OMPI_COMM_WORLD_RANK; exit $(cat code.$OMPI_COMM_WORLD_RANK)'
    start = time.time()
    try:
        done = subprocess.run(["timeout", "-k", "1", "60", "mpirun", "-n", str(ranks), "bash", "-c", script, "terrace",
                               test.path] + command.split() + ["-o", "out.h5"],
                              cwd=place, env=environment, capture_output=True, text=True, timeout=90)
        code, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        code, said = "hung", ""
    end = time.time()
    wrong = []
    try:
        start = os.stat(f"{place}/stamp").st_mtime  # the moment of the fault
        os.unlink(f"{place}/stamp")
    except OSError:
        wrong.append("the fault did not come")
    seconds = end - start
    if seconds > limit + margin:
        wrong.append(f"{seconds:.1f} s")
    if code not in expected[kind]:
        wrong.append(f"exit code {code}")
    lines = [x for x in said.splitlines() if x.startswith("terrace: ")]
    if kind in ("full", "shrink"):
        if len(lines) != 1:
            wrong.append(f"{len(lines)} lines")
    else:
        # Where the work was: the rank that tells it may be a step or a phase further on than the lost one.
        named = [x for x in lines if re.search(rf"\branks? .*\b{rank} on (host )?{re.escape(host)}\b", x) or
                 kind == "hang" and "made no progress" in x]
        if not named:
            wrong.append("the rank is not named")
        elif not re.search(r"phase (start|read|solve|check|write)", named[0]):
            wrong.append("no phase is named")
        elif step is not None and kind != "throw" and not re.search(r"phase solve, step \d+|phase (check|write)", named[0]):
            wrong.append("no step is named")
        elif step is not None and kind == "throw" and f"phase solve, step {step}" not in named[0]:
            wrong.append("not the step")
    own = {}
    for r in range(ranks):
        try:
            own[r] = int(open(f"{place}/code.{r}").read())
        except (OSError, ValueError):
            own[r] = None  # mpirun killed its shell
    others = {r: c for r, c in own.items() if r != rank}
    if kind in ("kill", "stop", "exit", "hang", "stuck") and any(c not in (6, None) for c in others.values()):
        wrong.append(f"the ranks' own codes {own}")
    if os.path.exists(f"{place}/out.h5"):
        wrong.append("an output appeared")
    left = [x for x in os.listdir(place) if x not in ("in.h5",) and not x.startswith("code.")]
    if left:
        wrong.append(f"left {left}")
    deadline = time.time() + 4  # who looks after a hung launcher sleeps for 2.5 s
    processes = ours(marker)
    while processes and time.time() < deadline:
        time.sleep(0.2)
        processes = ours(marker)
    if processes:
        wrong.append(f"processes left {processes}")
        for pid in processes:
            try:
                os.kill(pid, 9)
            except OSError:
                pass
    shutil.rmtree(place, ignore_errors=True)
    test.check(what, not wrong, f"{'; '.join(wrong)}; said {lines or said[-400:]}")
    return kind, code, not wrong, seconds


print(f"seed {options.seed}, {options.runs} runs", flush=True)
tally = {}
with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
    for kind, code, good, seconds in pool.map(attempt, range(options.runs)):
        entry = tally.setdefault(kind, {"good": 0, "bad": 0, "codes": {}, "slowest": 0.0})
        entry["good" if good else "bad"] += 1
        entry["codes"][code] = entry["codes"].get(code, 0) + 1
        entry["slowest"] = max(entry["slowest"], seconds)
for kind, entry in sorted(tally.items()):
    print(f"{kind:7} {entry['good']:4} good {entry['bad']:3} bad, mpirun's exit codes {entry['codes']}, "
          f"slowest {entry['slowest']:.1f} s")
if test.failures:
    print(f"again with --seed {options.seed}")
test.finish()
