#!/usr/bin/env python3
"""What a machine with GPUs is needed for: faults on two ranks, restarts, and --guard, on CUDA.

gpu.py TERRACE [--only alone,faults,checkpoints,guard,places] [--backend cuda] [--ranks 1|2] [--seconds 600]

Needs h5py and numpy, and a build with tests. Ends with 77 where no GPU is seen. With --backend cpu the cases themselves
can be tried anywhere.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import time

import h5py
import numpy as np

from given import growth
from terrace import Program, read_json, remove
from terrace import gpus as seen_gpus

parser = argparse.ArgumentParser()
parser.add_argument("terrace")
parser.add_argument("--only", default="alone,faults,checkpoints,guard,places")
parser.add_argument("--backend", default="cuda")
parser.add_argument("--ranks", type=int, choices=(1, 2), help="of the restarts; default both, two where there are two GPUs")
parser.add_argument("--seconds", type=float, default=600, help="no case begins later")
options = parser.parse_args()
gpus = seen_gpus()
if options.backend == "cuda" and gpus == 0:
    print("no GPU is seen: nothing was tried")
    sys.exit(77)
test = Program(options.terrace)
began = time.time()
INPUTS = {
    "dense.h5": "dense-random --n 3000 --rhs 1",
    "bits.h5": "gf2-random --rows 12000 --columns 12000",
    "more.h5": "gf2-random --rows 12000 --columns 12000 --seed 2",
    "band.h5": "band-spd --n 20000 --half-bandwidth 150 --rhs 2",
    "laplace.h5": "band-laplace --points 100 --rhs 4",
    "csr.h5": "csr-laplace --dim 3 --points 40 --rhs 1",
    "spd.h5": "dense-spd --n 1500 --rhs 1",
}


def run(command, ranks=1, limit=90, **environment):
    """Exit code, this program's lines on standard error, seconds."""
    start = time.time()
    try:
        done = subprocess.run(["timeout", "-k", "2", str(limit)] + test.words(command, ranks), capture_output=True, text=True,
                              timeout=limit + 20, env=test.env(environment))
        code, err = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        code, err = "hung", ""
    return code, [x for x in err.splitlines() if x.startswith("terrace: ")], time.time() - start


def report(what, good, detail):
    if test.check(what, good, detail):
        print(f"good    {what}: {detail}", flush=True)


def late():
    return time.time() - began > options.seconds


def solve(command, output, ranks=1, **environment):
    return run(f"{command} -o {output} --backend {options.backend} --force --quiet", ranks, **environment)


def data(file, name):
    with h5py.File(file) as f:
        return f[name][()].tobytes()


for name, what in INPUTS.items():
    code, said, _ = run(f"generate {what} -o {name} --quiet")
    if code != 0:
        sys.exit(f"cannot generate {name}: {code} {said}")

# ---- faults: each ends the job within ten seconds, and says which rank failed and where --------------------------------
FAMILIES = {
    "dense": "dense solve dense.h5:/A --rhs :/b --block 128",
    "gf2": "gf2 rref bits.h5:/A --block 512",
    "band": "band solve band.h5:/A --rhs :/b --method tile-columns",
    "cg": "cg csr.h5:/A --rhs :/b",
}
EXPECTED = {"throw": {70, 6}, "gpu": {6}, "stuck": {6}, "kill": {6, 137}, "stop": {6, 137, -9}, "exit": {6, 1}}  # -9: an mpirun that cannot end


def faults():
    starts = {}
    for family, command in FAMILIES.items():
        code, said, starts[family] = solve(command, "out.h5", 2)
        report(f"{family} on two ranks", code == 0, f"exit {code}, {starts[family]:.1f} s {' '.join(said)[:200]}")
        remove("out.h5")
    with h5py.File("singular.h5", "w") as f:
        a = np.random.default_rng(1).normal(size=(1500, 1500))
        a[:, 700] = 0
        f["A"], f["b"] = a, np.ones(1500)
    code, said, seconds = solve("dense solve singular.h5:/A --rhs :/b", "out.h5", 2)
    report("an agreed error", code == 4 and len(said) == 1 and "700" in said[0], f"exit {code}, {seconds:.1f} s {said}")
    for kind in EXPECTED:
        if kind == "gpu" and options.backend != "cuda":
            continue
        for family, command in FAMILIES.items():
            rank = len(family) % 2
            if late():
                return
            fault = f"{rank}:solve:3:{kind}"
            code, said, seconds = solve(command, "out.h5", 2, TERRACE_TEST_FAULT=fault)
            spent = seconds - starts[family]
            named = [x for x in said if re.search(rf"\brank {rank} on ", x) and "phase solve" in x]
            left = glob.glob("out.h5*") + glob.glob("*.tmp") + glob.glob(".*terrace*")
            good = code in EXPECTED[kind] and bool(named) and spent < 15 and not left
            report(f"{family} {fault}", good, f"exit {code}, {spent:+.1f} s beside a whole run, left {left}, {(named or said)[:1]}")
            remove(*left)


# ---- a process alone starts one GPU: the first that it may see ----------------------------------------------------------
def alone():
    if gpus < 2 or options.backend != "cuda":
        return
    done = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    uuids = [line.strip().removeprefix("GPU-").replace("-", "") for line in done.stdout.splitlines()]
    for seen, wanted in ((None, 0), ("0", 0), ("1", 1), ("1,0", 1), ("0,1", 0)):
        settings = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **({} if seen is None else {"CUDA_VISIBLE_DEVICES": seen})}
        code, said, seconds = run("gf2 rank bits.h5:/A --backend cuda --quiet --report r.json", **settings)
        found = read_json("r.json")["ranks_detail"][0]["device"]["uuid"] if code == 0 else said
        report(f"alone, CUDA_VISIBLE_DEVICES {seen}", found == uuids[wanted], f"exit {code}, {seconds:.2f} s, {found}")
        remove("r.json")
    code, said, _ = run("gf2 rank bits.h5:/A --backend cuda --quiet", CUDA_VISIBLE_DEVICES="-1")
    report("alone, no GPU is seen", code == 5 and "no CUDA device" in said[0], f"exit {code} {said}")


# ---- checkpoints: restarted runs have the bits of one that wrote checkpoints too ---------------------------------------
RESTARTS = [
    ("x", "dense solve dense.h5:/A --rhs :/b --block 128"),
    ("inverse", "dense invert dense.h5:/A --block 128"),
    ("inverse", "dense invert dense.h5:/A --block 128 --precision emulated --moduli 12"),
    ("rref", "gf2 rref bits.h5:/A --block 512"),
    ("product", "gf2 multiply bits.h5:/A more.h5:/A --levels 2"),
    ("product", "gf2 multiply bits.h5:/A more.h5:/A --levels 0 --block 1024"),
    ("x", "band solve band.h5:/A --rhs :/b --method tile-columns"),
    ("x", "band solve band.h5:/A --rhs :/b --method one-end"),
    ("x", "band solve band.h5:/A --rhs :/b --method two-ends"),
    ("x", "band solve band.h5:/A --rhs :/b --method partition --parts 6"),
    ("x", "band solve band.h5:/A --rhs :/b --method streamed --parts 1"),
    ("x", "band solve band.h5:/A --rhs :/b --method streamed --parts 2"),
    ("x", "band solve laplace.h5:/A --rhs :/b --precision mixed"),
    ("x", "cg csr.h5:/A --rhs :/b"),
    ("x", "cg spd.h5:/A --rhs :/b"),
]


ON_TWO_RANKS = ["dense solve", "gf2 rref", "--method streamed --parts 1", "gf2 multiply bits.h5:/A more.h5:/A --levels 0", "--method tile-columns", "--method two-ends",
                "--method partition", "cg csr"]


def checkpoints():
    cases = [(name, command, 1) for name, command in RESTARTS] if options.ranks != 2 else []
    if options.ranks != 1 and (gpus > 1 or options.backend == "cpu"):
        cases += [(name, command, 2) for name, command in RESTARTS if any(x in command for x in ON_TWO_RANKS)]
    for name, command, ranks in cases:
        if late():
            return
        remove(*glob.glob("c.h5*"))
        notes = []

        def step(what, options_, reference, ranks=ranks):
            code, said, _ = solve(f"{command} {options_}", "out.h5", ranks)
            if code != 0:
                notes.append(f"{what}: exit {code} {said}")
                return None
            bits = data("out.h5", name)
            if reference is not None and bits != reference:
                notes.append(f"{what}: other bits")
            return bits

        first = step("unwritten", "--checkpoint c.h5 --checkpoint-every 1h", None)
        step("written", "--checkpoint c.h5 --checkpoint-every 0.0001s", first)
        if not os.path.exists("c.h5"):
            notes.append("no checkpoint")
        else:
            step("restarted", "--restart c.h5", first)
            if ranks > 1 and name == "rref":
                step("restarted on one rank", "--restart c.h5", first, 1)
            if os.path.exists("c.h5.old"):
                os.rename("c.h5.old", "e.h5")
                step("restarted from the one before", "--restart e.h5", first)
                os.remove("e.h5")
        report(f"restarts of {command}" + (" on two ranks" if ranks > 1 else ""), not notes, "; ".join(notes) or "the same bits")


# ---- guard: no alarm without a flip and the same bits; a flip is reported, or changes nothing that counts --------------
GUARDS = [
    ("x", "dense solve dense.h5:/A --rhs :/b --block 128", ["0:5:8000007", "0:15:40000006"]),
    ("inverse", "dense invert dense.h5:/A --block 128", ["0:5:8000007", "0:20:40000006"]),
    ("rref", "gf2 rref bits.h5:/A --block 512", ["0:3:4000001", "0:12:9000003"]),
    ("x", "band solve band.h5:/A --rhs :/b --method tile-columns", ["0:20:3000006", "0:60:12000006"]),
    ("x", "band solve band.h5:/A --rhs :/b --method two-ends", ["0:1:3000006", "0:2:1000006"]),
    ("x", "band solve band.h5:/A --rhs :/b --method partition --parts 6", ["0:1:1000006", "0:2:1000006"]),
    ("x", "cg csr.h5:/A --rhs :/b", ["0:3:1000007", "0:20:2000001"]),
    ("x", "cg spd.h5:/A --rhs :/b", ["0:3:8000006"]),
]


def alike(file, other, name):
    """The same answer: every bit over GF(2), all digits but the last of real numbers."""
    with h5py.File(file) as f, h5py.File(other) as g:
        right, got = f[name][()], g[name][()]
    return np.array_equal(right, got) if right.dtype.kind in "iu" else np.allclose(got, right, rtol=1e-7, atol=1e-9 * np.abs(right).max())


def places():
    """Who factors the diagonal blocks and who substitutes: as asked for, said in the report, with a right answer."""
    for diagonal in ("gpu", "cpu"):
        for substitution in ("gpu", "cpu"):
            code, said, _ = solve(f"{FAMILIES['band']} --diagonal {diagonal} --substitution {substitution} --report places.json", "out.h5")
            found = read_json("places.json")
            report(f"--diagonal {diagonal} --substitution {substitution}", code == 0 and found["residual"] < 30 and
                   found["places"] == {"diagonal": diagonal, "substitution": substitution}, f"exit {code} {found.get('places')} {' '.join(said)[:140]}")


def guard():
    for n in (15, 31, 47, 63):  # pivots grow by 2 a column: rounding, not the memory
        with h5py.File("growth.h5", "w") as f:
            f["A"] = growth(n)
        for more in ("", " --block 24", " --precision emulated" if options.backend == "cuda" else " --pivoting tournament"):
            code, said, _ = solve(f"dense invert growth.h5:/A --guard{more}", "out.h5")
            report(f"growth, n = {n}{more}", code in (0, 4) and not any("memory" in x for x in said), f"exit {code} {' '.join(said)[:140]}")
    for name, command, flips in GUARDS:
        if late():
            return
        code, said, _ = solve(command, "plain.h5")
        again, told, _ = solve(command + " --guard", "out.h5")
        same = code == 0 and again == 0 and data("plain.h5", name) == data("out.h5", name)
        report(f"{command} --guard", same, f"exit {code}, {again} {' '.join(said + told)[:200]}" if not same else "no alarm, the same bits")
        caught = 0
        for flip in flips:
            code, said, _ = solve(command + " --guard", "out.h5", TERRACE_TEST_FLIP=flip)
            reported = code == 6 and any("memory error" in x for x in said)
            caught += reported
            harmless = code == 0 and alike("plain.h5", "out.h5", name)
            report(f"    flip {flip}", reported or harmless, f"exit {code} {' '.join(said)[:140]}" + (", another answer" if code == 0 and not harmless else ""))
        report("    one of them at least is reported", caught > 0, f"{caught} of {len(flips)}")


for part in options.only.split(","):
    {"alone": alone, "faults": faults, "checkpoints": checkpoints, "guard": guard, "places": places}[part]()
print(f"{gpus} GPUs, {options.backend}, {time.time() - began:.0f} s" + (" (stopped for time)" if late() else ""))
test.finish()
