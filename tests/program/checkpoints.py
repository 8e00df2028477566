#!/usr/bin/env python3
"""Checkpoints of every family: stopped on a signal, started again, the same bits: checkpoints.py TERRACE [BACKEND]

Needs h5py, numpy and SciPy; runs in a temporary folder.
"""
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import scipy.sparse as sparse

from terrace import Program, left_over, read_json

test = Program(sys.argv[1])
check = test.check
backend = sys.argv[2] if len(sys.argv) > 2 else "cpu"
rng = np.random.default_rng(11)
skipped = False


def start(command, ranks, **environment):
    return subprocess.Popen(test.words(f"{command} --backend {backend}", ranks), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=test.env(environment))


def run(command, ranks, code=0, **environment):
    done = test.run(f"{command} --backend {backend}", ranks, code, environment)
    return done.out, done.err


def remove(*names):
    for pattern in names:
        for name in glob.glob(pattern):
            os.remove(name)


def appeared(name, process):
    end = time.time() + 60
    while time.time() < end and process.poll() is None:
        if os.path.exists(name):
            return True
        time.sleep(0.002)
    return False


def heard(process, ranks=1):
    """Waits until every rank catches signals."""
    end = time.time() + 60
    while time.time() < end and process.poll() is None:
        pids = [process.pid] + [int(p) for p in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True,
                                                               text=True).stdout.split()]
        catching = 0
        for pid in pids:
            try:
                with open(f"/proc/{pid}/status") as f:
                    lines = dict(x.split(":", 1) for x in f if ":" in x)
            except OSError:
                continue
            if lines["Name"].strip() == "terrace" and int(lines["SigCgt"], 16) >> (signal.SIGUSR2 - 1) & 1:
                catching += 1
        if catching >= ranks:
            return
        time.sleep(0.005)


def interrupted(command, ranks, number=signal.SIGUSR2, interval="0.001s", wait="c.h5.old"):
    """Runs until there are two checkpoints, then sends the signal."""
    remove("c.h5*", "out.h5", "r.json")
    # Slowed down, so that the signal comes before the end on any machine.
    delay = "300" if command.startswith("gf2 multiply") and backend == "cuda" else "5"
    process = start(f"{command} -o out.h5 --checkpoint c.h5 --checkpoint-every {interval} --report r.json", ranks, TERRACE_TEST_STEP_DELAY_MS=delay)
    there = appeared(wait, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    check(command, there, f"{ranks} ranks: no checkpoint: exit {process.returncode}, {err[:400]}")
    return process.returncode, out, err


def same(what, reference, ignore=()):
    with h5py.File(reference) as a, h5py.File("out.h5") as b:
        names = [k for k in a if isinstance(a[k], h5py.Dataset)]
        check(what, names == [k for k in b if isinstance(b[k], h5py.Dataset)], "other datasets")
        for name in names:
            if name not in ignore:
                check(what, a[name][...].tobytes() == b[name][...].tobytes(), f"{name} differs")
            for key in ("determinant_sign", "log_abs_determinant"):
                check(what, a[name].attrs.get(key) == b[name].attrs.get(key), f"{key} of {name} differs")


# --- matrices ------------------------------------------------------------------------------------
n = 1000
points = 40
line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(points, points))
grid = (sparse.kron(line, sparse.eye(points)) + sparse.kron(sparse.eye(points), line)).tocsr()
size, m = grid.shape[0], points
dense = grid.toarray()[:700, :700]
with h5py.File("in.h5", "w") as f:
    f["A"] = rng.normal(size=(n, n))
    f["B"] = rng.normal(size=(n, 3))
    f["signed"] = f["A"][:] + 9 * n * np.diag(np.where(np.arange(n) == 0, -1.0, 1.0))  # the first pivot alone is negative
    bits = rng.integers(0, 2, size=(3000, 3100), dtype=np.uint8)
    bits[1000:1700] = bits[:700] ^ bits[700:1400]  # of lower rank
    f["bits"] = bits
    f["square"] = (np.tril(rng.integers(0, 2, (2500, 2500), dtype=np.uint8), -1) + np.eye(2500, dtype=np.uint8))[::-1]
    f["right"] = (bits.astype(np.float32) @ rng.integers(0, 2, (3100, 5)).astype(np.float32) % 2).astype(np.uint8)
    f["factor"] = rng.integers(0, 2, (3100, 2500), dtype=np.uint8)
    inner = 200000 if backend == "cuda" else 60000  # seven steps of 32,768 there
    f["wide"] = rng.integers(0, 2, (300, inner), dtype=np.uint8)
    f["tall"] = rng.integers(0, 2, (inner, 300), dtype=np.uint8)
    ab = rng.normal(size=(61, 3000)) * 0.01
    ab[0] = 10
    f["band"] = ab
    f["band"].attrs["format"] = "band"
    f["b"] = rng.normal(size=(3000, 2))
    f["band2"] = ab + 0.001
    f["band2"].attrs["format"] = "band"
    long = rng.normal(size=(17, 30000)) * 0.01
    long[0] = 10
    f["long_b"] = rng.normal(size=(30000, 3))
    for name, bad in (("long", None), ("bad", 19000)):  # not positive definite by a leading minor in the second half
        if bad:
            long[0, bad] = -1
        f[name] = long
        f[name].attrs["format"] = "band"
    soon = np.delete(long, np.s_[3000:], axis=1)
    soon[0, 1500] = -1
    f["soon"], f["soon_b"] = soon, f["long_b"][:3000]
    f["soon"].attrs["format"] = "band"
    g = f.create_group("csr")
    g["data"], g["indices"], g["indptr"] = grid.data, grid.indices, grid.indptr
    g.attrs["shape"] = grid.shape
    f["grid_b"] = rng.normal(size=size)
    f["grid_b12"] = rng.normal(size=(size, 12))
    f["grid_b3"] = rng.normal(size=(size, 3))
    f["A_b"] = f["B"][:, 0]
    f["spd"], f["late"], f["late_b"] = dense, dense[:300, :300], rng.normal(size=300)
    f["late"][270, 270] = -1
    f["spd_b"] = rng.normal(size=700)
    diagonals = np.zeros((m + 1, size))
    for d in range(m + 1):
        diagonals[d, : size - d] = grid.diagonal(-d)
    f["grid_band"] = diagonals
    f["grid_band"].attrs["format"] = "band"
    f["other"] = rng.normal(size=(n, n))

jobs = [
    # command, ranks before and after
    ("dense invert in.h5:/A", 2, 3),
    ("dense invert in.h5:/A", 3, 1),
    ("dense invert in.h5:/signed", 2, 1),
    ("dense solve in.h5:/A --rhs :/B --block 32 --method gauss-jordan", 2, 1),
    ("dense solve in.h5:/A --rhs :/B --block 24 --pivoting tournament", 3, 2),
    ("dense solve in.h5:/A --rhs :/B --block 32", 1, 2),
    ("dense factor in.h5:/A --block 32", 2, 3),
    ("dense factor in.h5:/spd --assume spd --block 16", 2, 3),
    ("dense solve in.h5:/spd --rhs :/spd_b --assume spd --block 16", 3, 1),
    ("dense solve in.h5:/late --rhs :/late_b --assume spd --block 16", 2, 3),  # stopped in Cholesky's method, which gives up later
    ("gf2 rref in.h5:/bits --block 64", 2, 3),
    ("gf2 rref in.h5:/bits --echelon --block 64", 2, 2),
    ("gf2 rank in.h5:/bits --block 128", 3, 1),
    ("gf2 rref in.h5:/bits --method columns", 0, 0),
    ("gf2 inverse in.h5:/square --method columns", 0, 0),
    ("gf2 solve in.h5:/bits --rhs :/right --block 64", 1, 2),
    ("gf2 kernel in.h5:/bits --block 64", 2, 1),
    ("gf2 inverse in.h5:/square --block 64", 3, 2),
    ("gf2 multiply in.h5:/bits :/factor --block 64", 0, 2),
    ("gf2 multiply in.h5:/bits :/factor --levels 2", 0, 0),
    ("gf2 multiply in.h5:/wide :/tall", 2, 3),
    ("band factor in.h5:/band", 2, 1),
    ("band solve in.h5:/band --rhs :/b --method tile-columns", 1, 3),
    ("band factor in.h5:/band --method streamed", 0, 0),
    ("band solve in.h5:/band --rhs :/b --method streamed --scratch-dir .", 0, 0),
    ("band solve in.h5:/band --rhs :/b --method streamed --parts 2", 0, 0),
    ("band factor in.h5:/band --method streamed --scratch-dir .", 2, 3),
    ("band solve in.h5:/band --rhs :/b --method streamed --scratch-dir .", 3, 2),
    ("band solve in.h5:/band --rhs :/b --method streamed --diagonal cpu --block 40", 2, 1),
    ("band solve in.h5:/band --rhs :/b --method streamed --diagonal cpu --scratch-dir .", 0, 2),
    ("band solve in.h5:/long --rhs :/long_b --method one-end", 0, 2),
    ("band solve in.h5:/long --rhs :/long_b --method two-ends", 0, 2),
    ("band solve in.h5:/long --rhs :/long_b --method partition --parts 5", 2, 3),
    ("band solve in.h5:/grid_band --rhs :/grid_b12 --precision mixed", 0, 0),
    ("cg in.h5:/csr --rhs :/grid_b", 2, 2),
    ("cg in.h5:/csr --rhs :/grid_b --method single-reduction --preconditioner jacobi", 1, 1),
    ("cg in.h5:/csr --rhs :/grid_b3 --method pipelined", 2, 2),
    ("cg in.h5:/csr --rhs :/grid_b3 --preconditioner block-jacobi", 3, 3),
    ("cg in.h5:/csr --rhs :/grid_b3 --preconditioner amg", 2, 2),
    ("cg in.h5:/csr --rhs :/grid_b3", 2, 2),
    ("cg in.h5:/csr --rhs :/grid_b3 --reorder", 2, 2),
    ("cg in.h5:/spd --rhs :/spd_b", 2, 2),
    ("cg in.h5:/spd --rhs :/spd_b --precision mixed --rtol 1e-12", 3, 3),
    ("cg in.h5:/spd --rhs :/spd_b --layout rows", 2, 2),
    ("cg in.h5:/csr --rhs :/grid_b --precision mixed --rtol 1e-12", 2, 2),
    ("cg in.h5:/grid_band --rhs :/grid_b --precision mixed --rtol 1e-12", 1, 1),
    ("cg in.h5:/grid_band --rhs :/grid_b", 2, 2),
]
if backend != "cpu":  # same bits there over GF(2), and for conjugate gradients
    jobs = [j for j in jobs if (j[0].split()[0] in ("gf2", "cg") and "/spd" not in j[0]) or j[0].startswith("band solve")]
    jobs.append(("dense invert in.h5:/A", 2, 2))
for command, before, after in test.part(jobs) if backend == "cpu" else jobs:
    remove("ref.h5", "u.h5")
    # A GPU adds in another order where a factorization in one launch is cut for checkpoints.
    run(command + " -o ref.h5" + ("" if backend == "cpu" else " --checkpoint u.h5 --checkpoint-every 1h"), after)
    code, out, err = interrupted(command, before)
    check(command, code == 75, f"exit {code}, not 75: {err[:400]}")
    lines = [x for x in err.splitlines() if x.startswith("terrace: ")]
    check(command, len(lines) == 1 and "SIGUSR2" in lines[0] and "--restart c.h5" in lines[0], str(lines))
    check(command, not os.path.exists("out.h5") and not left_over(), str(os.listdir(".")))
    report = read_json()
    check(command, report["exit_code"] == 75 and report["checkpoints"]["written"] >= 2, str(report.get("checkpoints")))
    step = report["checkpoints"]["step"]
    small = {"TERRACE_IO_PIECE_BYTES": "65536"} if "scratch" in command else {}  # several pieces per rank
    out, err = run(command + " -o out.h5 --restart c.h5 --report r.json", after, **small)
    report = read_json()
    check(command, report.get("restart", {}).get("step") == step > 0, f"{report.get('restart')} after step {step}")
    same(command, "ref.h5")


# Reordered rows: another number of ranks goes on in the order that the checkpoint's vectors have.
for before, after in ((2, 3), (3, 1), (1, 2)):
    remove("c.h5*", "out.h5", "r.json")
    command = "cg in.h5:/csr --rhs :/grid_b3 --reorder --at-once 2 -o out.h5 --report r.json"
    run(command + " --checkpoint c.h5 --checkpoint-every 0.01s", before)
    step = read_json()["checkpoints"]["step"]
    remove("out.h5")
    run(command + " --restart c.h5", after)
    report = read_json()
    check("reordered", report["restart"]["step"] == step > 0 and report["partition"]["parts"] == before, str(report))
    with h5py.File("out.h5") as f, h5py.File("in.h5") as g:
        residual = np.linalg.norm(g["grid_b3"][:] - grid @ f["x"][:], axis=0) / np.linalg.norm(g["grid_b3"][:], axis=0)
    check("reordered", residual.max() <= 1.02e-10, f"{before} to {after} ranks: {residual}")
remove("c.h5*", "out.h5", "ref.h5")

# A rank without rows has its part in a checkpoint, too.
run("generate band-spd --n 5 --half-bandwidth 1 --rhs 1 -o few.h5", 1)
run("cg few.h5:/A --rhs :/b -o out.h5 --rtol 0 --checkpoint c.h5 --checkpoint-every 0.0001s --report r.json", 4, code=4)
check("a rank without rows", read_json()["checkpoints"]["written"] >= 1, read_json().get("checkpoints"))
remove("c.h5*", "out.h5", "few.h5")


# --- the last checkpoint of a run that came to its end: of its last phase ---------------------------
def to_the_end(command, before, after, code=0, interval="0.0001s", **environment):
    """As far as the last checkpoint was, 0 to 1, and what the last run said."""
    remove("ref.h5", "c.h5*", "out.h5", "r.json")
    run(command + " -o ref.h5 --report r.json", after, code)
    minor = read_json().get("result", {}).get("failed_minor")
    far = step = 0
    for options, ranks in ((f"--checkpoint c.h5 --checkpoint-every {interval}", before), ("--restart c.h5", after)):
        remove("out.h5")
        out, err = run(f"{command} -o out.h5 {options} --report r.json", ranks, code, **environment)
        report = read_json()
        if code == 0:
            same(command, "ref.h5")
        else:
            check(command, report["result"].get("failed_minor") == minor, f"{report['result']}, not {minor}")
        if "checkpoints" in report:
            step = report["checkpoints"].get("step", 0)
        else:
            check(command, report.get("restart", {}).get("step") == step > 0, f"{report.get('restart')} after step {step}")
            words = next((x for x in out.splitlines() if x.startswith("restart ")), "of 1,").split()
            far = step / int(words[words.index("of") + 1].rstrip(","))
    return far, out


if backend == "cpu":
    run("band factor in.h5:/band --method streamed -o factor.h5", 0)
    ends = [
        ("band solve in.h5:/band --rhs :/b --method streamed", 0, 0, 0.9),
        ("band solve in.h5:/band --rhs :/b --method streamed --parts 2 --scratch-dir .", 0, 0, 0.9),
        ("band solve in.h5:/band --rhs :/b --method streamed --factor factor.h5:/factor", 0, 0, 0.9),
        ("band solve in.h5:/band --rhs :/b --method streamed --scratch-dir .", 2, 3, 0.5),
        ("band solve in.h5:/grid_band --rhs :/grid_b12 --precision mixed", 0, 0, 0.01),
        ("band solve in.h5:/grid_band --rhs :/grid_b12 --precision mixed", 2, 3, 0.01),
        ("band solve in.h5:/long --rhs :/long_b --method partition --parts 6", 0, 3, 0.9),
        ("dense solve in.h5:/late --rhs :/late_b --assume spd --block 16", 2, 3, 0.5),  # Cholesky has been given up
        ("dense solve in.h5:/A --rhs :/B --assume auto", 1, 2, 0.5),
        ("dense solve in.h5:/A --rhs :/A_b --order column-major", 2, 1, 0.5),
        ("cg in.h5:/grid_band --rhs :/grid_b --uplo lower", 2, 2, 0.001),
        ("gf2 multiply in.h5:/bits :/factor --levels 2", 2, 2, 0.1),
    ]
    for command, before, after, least in test.part(ends[:-1]) + ends[-1:]:
        far, out = to_the_end(command, before, after)
        if "dense" in command:
            report = read_json()
            check(command, report["method"] == "lu" and bool(report["warnings"]) == ("spd" in command), f"{report['method']}, {report['warnings']}")
        for option in (" --order column-major", " --uplo lower"):
            if option in command:
                out, err = run(command.replace(option, "") + " -o u.h5 --restart c.h5", after, 3)
                check(command, "settings differs" in err and not os.path.exists("u.h5"), err)
        check(command, far > least, f"the last checkpoint at {far}")
        if "partition" in command or "--parts 2" in command:
            other = command.replace("--parts 6", "--parts 7").replace("--parts 2", "--parts 1")
            for what, why in ((other, "settings"), (command.replace(":/long ", ":/bad ").replace("/band ", "/band2 "), "input")):
                out, err = run(what + " -o u.h5 --restart c.h5", 0, 3)
                check("refused: " + what, why + " differs" in err and not os.path.exists("u.h5"), err)
    # Inside a panel the halves are those of the ranks' rows.
    out, err = run("gf2 multiply in.h5:/bits :/factor -o u.h5 --restart c.h5", 1, 3)
    check("another number of ranks", "2 ranks with 2 levels" in err, err)
    # Slabs of one rank are for one rank.
    to_the_end("band solve in.h5:/band --rhs :/b --method streamed", 0, 0)
    out, err = run("band solve in.h5:/band --rhs :/b --method streamed -o u.h5 --restart c.h5", 2, 3)
    check("slabs on two ranks", "slabs" in err and "--restart" in err and not os.path.exists("u.h5"), err)
    # Given up for the leading minor's sake: the checkpoints are of what goes on instead.
    for method, before, after in (("streamed --parts 2", 0, 0), ("two-ends", 0, 0), ("auto --precision mixed", 0, 0), ("streamed", 2, 3)):
        far, out = to_the_end(f"band solve in.h5:/bad --rhs :/long_b --method {method}", before, after, 4, "0.001s")
        check(method, "not positive definite" not in out, out)  # it is not tried once more
    # A tile column has failed, and the loop has not looked at that yet: steps are slow, so that each has a checkpoint.
    to_the_end("band solve in.h5:/soon --rhs :/soon_b --method tile-columns", 0, 0, 4, TERRACE_TEST_STEP_DELAY_MS="3")

if backend != "cpu":  # the rest does not depend on it
    test.finish()

# --- signals -------------------------------------------------------------------------------------
command = "dense invert in.h5:/A"
run(command + " -o ref.h5 --force", 2)
# SIGUSR1: one checkpoint, then on to the end. Sent early: it is honoured at the next step.
remove("c.h5*", "out.h5")
process = start(command + " -o out.h5 --block 8 --checkpoint c.h5 --checkpoint-every 1h --report r.json", 2)
heard(process, 2)
end = time.time() + 60
while not os.path.exists("c.h5") and process.poll() is None and time.time() < end:
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.05)
out, err = process.communicate(timeout=120)
report = read_json()
check("SIGUSR1", process.returncode == 0 and report["checkpoints"]["written"] >= 1 and os.path.exists("out.h5"),
      f"exit {process.returncode} {report.get('checkpoints')} {err[:300]}")
# SIGTERM to the program itself: as SIGUSR2.
code, out, err = interrupted(command, 0, signal.SIGTERM)
check("SIGTERM", code == 75 and "SIGTERM" in err, f"exit {code}: {err[:300]}")
out, err = run(command + " -o out.h5 --restart c.h5", 2)
same("SIGTERM", "ref.h5")
# The second one ends at once: the first is sent while a long panel keeps the loop from hearing of it. Where both wait, either comes first.
remove("c.h5*", "out.h5")
process = start(command + " -o out.h5 --block 1000 --checkpoint c.h5", 0)
heard(process)
process.send_signal(signal.SIGUSR2)
time.sleep(0.01)
process.send_signal(signal.SIGTERM)
out, err = process.communicate(timeout=60)
check("second signal", process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGUSR2, 0, -signal.SIGUSR2) and not left_over(), f"exit {process.returncode}")

# --- bad checkpoints -----------------------------------------------------------------------------
code, out, err = interrupted(command, 2)
shutil.copy("c.h5", "good.h5")
shutil.copy("c.h5.old", "older.h5")


def restart(code, where="c.h5", of=command, options=""):
    remove("out.h5")
    return run(f"{of} -o out.h5 --restart {where} {options}", 2, code)


def damaged(name, how):
    """The newest is damaged: the older one is used; both: exit 3, no output."""
    for both in (False, True):
        shutil.copy("good.h5", "c.h5")
        shutil.copy("older.h5", "c.h5.old")
        how("c.h5")
        if both:
            how("c.h5.old")
        out, err = restart(3 if both else 0)
        if both:
            check(name, not os.path.exists("out.h5") and "c.h5.old" in err, err[:300])
        else:
            check(name, "c.h5.old" in out and "refused" in out, out[:300])
            same(name, "ref.h5")


def truncate(name):
    os.truncate(name, os.path.getsize(name) // 2)


def flip(name):
    with h5py.File(name, "r+") as f:
        rows = f["rows"]
        rows[5, 7] = np.nextafter(rows[5, 7], 9)


def foreign(name):
    remove("f.h5*", "f_out.h5")
    process = start("dense invert in.h5:/other -o f_out.h5 --checkpoint f.h5 --checkpoint-every 0.001s", 2)
    appeared("f.h5", process)
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=60)
    shutil.copy("f.h5", name)


damaged("truncated", truncate)
damaged("one flipped bit", flip)
damaged("foreign", foreign)
damaged("removed", os.remove)
for text, where, of, options in (("of 'dense invert'", "good.h5", "dense solve in.h5:/A --rhs :/B", ""),
                                 ("not a checkpoint", "ref.h5", command, ""), ("settings", "good.h5", command, "--block 16"),
                                 ("nowhere.h5", "nowhere.h5", command, "")):
    remove("good.h5.old")
    out, err = restart(3, where, of, options)
    check("refused: " + text, text in err and not os.path.exists("out.h5"), err[:300])
for options in ("--checkpoint c.h5 --checkpoint-every 10x", "--checkpoint-every 10m", "--checkpoint c.h5 --checkpoint-every -1",
                "--checkpoint nowhere/c.h5"):
    run(f"{command} -o u.h5 {options}", 1, 2)

# --- a full disk under the checkpoint: a warning, and the result -----------------------------------
if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0:
    os.mkdir("small")
    remove("out.h5")
    script = (f"mount -t tmpfs -o size=2m none small && exec mpirun -n 2 {test.path} {command} -o out.h5 --backend {backend} "
              "--checkpoint small/c.h5 --checkpoint-every 0.001s --report r.json")
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=120)
    report = read_json()
    check("full disk", done.returncode == 0 and "warning: no checkpoint" in done.stderr and report["checkpoints"]["failed"] > 0,
          f"exit {done.returncode} {done.stderr[:300]}")
    same("full disk", "ref.h5")
else:
    skipped = test.skipped("no right to mount, the full disk was not tried; all else was")

check("nothing left behind", not left_over(), left_over())

test.finish(skipped)
