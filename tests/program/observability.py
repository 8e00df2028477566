#!/usr/bin/env python3
"""What a run tells of itself: terrace info, --report rank by rank, progress on a terminal and in a file.

observability.py TERRACE     Needs h5py; runs in a temporary folder.
"""
import fcntl
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import termios

import h5py

from terrace import JOBS, Program, read_json

test = Program(sys.argv[1])
check = test.check


def run(arguments, n=2, env=None):
    return test.run(arguments, n, env=env)


def on_terminal(arguments, env, ranks=1, width=80):
    """What is shown on a terminal that controls the program, or its launcher, and the exit code."""
    child, ours = pty.fork()
    if child == 0:
        fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        words = test.words(arguments, ranks)
        os.execvpe(words[0], words, test.env({**env, "TERM": "xterm"}))
    text = b""
    while True:
        try:
            if not select.select([ours], [], [], 120)[0]:
                break
            piece = os.read(ours, 4096)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    return text.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


LEFT = r"(?:\d+ h )?(?:\d+ min ?)?(?:\d+ s )?left"


families = {  # arguments, bytes of the input's datasets, whether the method has stages, ms a step is held up
    "gf2 rref gf2.h5": (1200 * 19 * 8, True, 200),
    "band solve band.h5:/A --rhs :/b": (5 * 5000 * 8 + 5000 * 8, True, 20),
    "dense invert dense.h5 --block 32": (300 * 300 * 8, True, 100),
    "cg cg.h5:/A --rhs :/b": (0, False, 20),
}
for arguments in ("generate gf2-random --rows 1200 --columns 1200 --seed 1 -o gf2.h5",
                  "generate band-spd --n 5000 --half-bandwidth 4 --rhs 1 --seed 2 -o band.h5",
                  "generate dense-random --n 300 --seed 3 -o dense.h5",
                  "generate csr-laplace --dim 2 --points 40 --rhs 1 --seed 4 -o cg.h5"):
    code, out, err = run(arguments + " --quiet")
    check(arguments, code == 0, err)

# info: versions, and a line and one object per rank
code, out, err = run("info --report info.json", n=3)
report = read_json("info.json")["result"]
check("info", code == 0, err)
for library in ("MPI", "HDF5", "BLAS", "topology", "fmt", "CLI11", "nlohmann-json"):
    check("info names " + library, library in report["versions"] and re.search(r"^" + library + r" +\S", out, re.M), out)
    check("a version of " + library, library == "topology" or re.search(r"\d+\.\d+", report["versions"][library]), str(report["versions"]))
hdf5 = re.match(r"(\S+) parallel \(header (\S+)\)", report["versions"]["HDF5"])
check("HDF5: header and library agree", hdf5 and hdf5[1] == hdf5[2] and "mismatch" not in report, str(report["versions"]))
check("info: a line a rank", len(re.findall(r"^rank \d+ ", out, re.M)) == 3, out)
host = socket.gethostname()
check("info: the map", [r["rank"] for r in report["map"]] == [0, 1, 2] and [r["local_rank"] for r in report["map"]] == [0, 1, 2] and
      all(r["host"] == host and r["cores"] and r["nodes"] >= 1 for r in report["map"]), json.dumps(report["map"]))
real = sorted({c for k in ("infiniband", "net") if os.path.isdir("/sys/class/" + k) for c in os.listdir("/sys/class/" + k)
               if os.path.exists(f"/sys/class/{k}/{c}/device")})
check("info: network cards", [c["name"] for c in report["map"][0]["cards"]] == real, f"{report['map'][0]['cards']} {real}")

# cores: what the launcher bound stays; ranks that see the same cores share them
available = sorted(os.sched_getaffinity(0))
no_threads = {k: v for k, v in os.environ.items() if k != "TERRACE_THREADS"}
for name in ("no_bind", "one core"):
    command = ["taskset", "-c", str(available[-1])] + test.words("info --report info.json" + " --no-bind" * (name == "no_bind"))
    done = subprocess.run(command, capture_output=True, text=True, env=no_threads, timeout=60)
    rank = read_json("info.json")["result"]["map"][0]
    check(f"cores of taskset stay ({name})", done.returncode == 0 and rank["cores"] == str(available[-1]) and rank["threads"] == 1, str(rank))

for arguments, (size, stages, delay) in families.items():
    code, out, err = run(f"{arguments} -o out.h5 --force --backend cpu --report r.json", n=3)
    check(arguments, code == 0, err)
    report = read_json()
    ranks = report.get("ranks_detail", [])
    check(f"{arguments}: one object per rank", [r["rank"] for r in ranks] == [0, 1, 2] and all(r["host"] == host for r in ranks), str(ranks)[:300])
    if len(ranks) != 3:
        continue
    for phase in ("read", "solve", "write"):
        slowest = max(r["seconds"][phase] for r in ranks)
        told = report["seconds"][phase]  # a sum of maxima where a phase has several parts
        check(f"{arguments}: the slowest rank's {phase}", 0 < slowest <= told + 1e-9 and told < 1.2 * slowest + 0.1, f"{slowest} {told}")
    mean = sum(r["seconds"]["solve"] for r in ranks) / 3
    check(f"{arguments}: imbalance", abs(report["imbalance"]["solve"] - max(r["seconds"]["solve"] for r in ranks) / mean) < 1e-6,
          str(report["imbalance"]))
    check(f"{arguments}: bytes", all(r["bytes"]["received"] > 0 for r in ranks) and sum(r["bytes"]["sent"] for r in ranks) > 0,
          str([r["bytes"] for r in ranks]))
    got = sum(r["bytes"]["read"] for r in ranks)
    check(f"{arguments}: bytes read", got >= size and got > 0, f"{got} < {size}")
    with h5py.File("out.h5") as f:
        written = sum(f[k].size * f[k].dtype.itemsize for k in f if isinstance(f[k], h5py.Dataset))
    total = sum(r["bytes"]["written"] for r in ranks)
    check(f"{arguments}: bytes written", written * 0.9 <= total <= written * 1.5 + 4096, f"{total} of {written}")
    for r in ranks:  # phases one after the other, as long as they are told; what is beside them within them
        spans = r["timeline"]
        phases = [span for span in spans if span[0] == "run"]
        order = [what for _, what, _, _ in phases]
        check(f"{arguments}: phases of rank {r['rank']}", order[0] == "start" and order[1] == "read" and order[-1] == "write" and
              all(a[3] <= b[2] + 1e-3 for a, b in zip(phases, phases[1:])), str(phases))
        for phase in ("read", "solve", "write"):
            drawn = sum(end - start for lane, what, start, end in phases if what == phase)
            check(f"{arguments}: the timeline's {phase}", abs(drawn - r["seconds"][phase]) < 0.01, f"{drawn} {r['seconds'][phase]}")
        check(f"{arguments}: reading and writing in the timeline", {"read", "take"} <= {what for lane, what, _, _ in spans if lane != "run"}, str(spans))
    check(f"{arguments}: overlapped", 0 <= report["seconds"]["overlapped"] <= report["seconds"]["total"] + 1, str(report["seconds"]))
    if stages:
        for r in ranks:
            s = r["stages"]
            lanes = s["panel"] + s["share"] + s["widen"] + s["update"]
            check(f"{arguments}: stages of rank {r['rank']}", s["panels"] > 0 and s["update"] > 0 and
                  0 < lanes <= 2.05 * s["loop"] and s["loop"] <= r["seconds"]["solve"] * 1.001, str(s))
        check(f"{arguments}: imbalance of a stage", report["imbalance"]["update"] >= 1, str(report["imbalance"]))

    # progress: a bar on a terminal; lines in a file; nothing where it is not wanted
    held = {"TERRACE_TEST_STEP_DELAY_MS": str(delay)}
    shown, code = on_terminal(f"{arguments} -o out.h5 --force --backend cpu", {**held, "TERRACE_PROGRESS_SECONDS": "0.1"})
    bars = re.findall(rf"\r\[([#.]+)\] (\w[\w ]*?) +(\d+\.\d) %.*?{LEFT}", shown)
    names = [name for _, name, _ in bars]
    bars = [bar for bar in bars if bar[1] == max(names, key=names.count)]  # a slow machine also draws reading
    check(f"{arguments}: a bar on a terminal", code == 0 and len(bars) >= 2, f"{code} {shown[-300:]!r}")
    parts = [float(p) for _, _, p in bars]
    check(f"{arguments}: the bar only grows", all(0 <= p <= 100 for p in parts) and (parts == sorted(parts) or "band" in arguments), str(parts))
    check(f"{arguments}: the bar fills with the percentage", all(abs(b.count("#") / len(b) - float(p) / 100) <= 1.1 / len(b) for b, _, p in bars), str(bars))
    check(f"{arguments}: the bar is wiped", shown.endswith("\r"), repr(shown[-60:]))
    code, out, err = run(f"{arguments} -o out.h5 --force --backend cpu", env={**held, "TERRACE_PROGRESS_SECONDS": "0.2"})
    lines = [x for x in err.splitlines() if re.match(rf".+ +\d+\.\d %.*  {LEFT}$", x)]
    check(f"{arguments}: lines in a file", code == 0 and len(lines) >= 2 and "\r" not in err, repr(err[:300]))
    for option, env in (("--progress auto", held), ("--progress never", {"TERRACE_PROGRESS_SECONDS": "0.001"}),
                        ("--quiet", {"TERRACE_PROGRESS_SECONDS": "0.001"})):  # auto: no line before 30 s
        code, out, err = run(f"{arguments} -o out.h5 --force --backend cpu {option}", n=1, env=env)
        check(f"{arguments} {option}", code == 0 and " %" not in err, err)

# Under a launcher on a terminal: one line that fits the terminal, through all phases.
test.run("generate dense-random --n 1500 --seed 3 -o wide.h5", 1, 0)
for width in (60, 80, 120):
    shown, code = on_terminal("dense invert wide.h5 -o out.h5 --force --backend cpu", {"TERRACE_PROGRESS_SECONDS": "0.001"}, 2, width)
    drawn = [piece for piece in shown.split("\r") if piece.strip() and "\n" not in piece]
    check(f"{width} columns", code == 0 and len(drawn) > 10 and all(len(piece) <= width - 1 for piece in drawn), f"{code} {[len(p) for p in drawn][:20]} {shown[:300]!r}")
    for phase in ("reading", "elimination", "checking", "writing"):
        check(f"{width} columns: {phase}", any(phase in piece for piece in drawn), shown[-300:])
    check(f"{width} columns: bytes", any(re.search(r"reading +\d+\.\d %  [\d.e+]+ of 18 MB", piece) for piece in drawn), str([p for p in drawn if "reading" in p][:3]))
    check(f"{width} columns: moves", len(set(drawn)) > 5, str(set(drawn)))
    check(f"{width} columns: no line feed", "\n" not in shown.strip(), repr(shown[-200:]))
# The other commands that take their time: bytes of the whole file, and the time left.
for command, seen in (("verify out.h5", ["checking /inverse", "checking /A"]), ("generate dense-random --n 1500 -o again.h5 --force", ["writing"])):
    for ranks in (1, 2):
        # Small pieces: 18 MB are two of the usual ones, which a fast machine is through with before anything is drawn.
        shown, code = on_terminal(command, {"TERRACE_PROGRESS_SECONDS": "0.0005", "TERRACE_IO_PIECE_BYTES": "500000"}, ranks)
        for words in seen:
            check(f"{command} on {ranks}", code == 0 and re.search(rf"{words} +\d+\.\d %  [\d.e+]+ of 18 MB", shown), f"{code} {words} {shown[-300:]!r}")
# Without a terminal under a launcher: lines, as nobody can wipe a bar.
code, out, err = run("dense invert wide.h5 -o out.h5 --force --backend cpu --progress auto", env={"TERRACE_PROGRESS_SECONDS": "0.05", "TERRACE_TEST_STEP_DELAY_MS": "20"})
check("lines under a launcher", code == 0 and "\r" not in err and any("elimination" in line for line in err.splitlines()), repr(err[:200]))
# Nothing in the first second.
shown, code = on_terminal("dense invert dense.h5 -o out.h5 --force --backend cpu", {})
check("a short run shows nothing", code == 0 and "%" not in shown, repr(shown))

done = test.script(f"{JOBS}/timeline.py", "r.json", "-o", "t.svg")
check("jobs/timeline.py", done.code == 0 and ("not drawn" in done.out or "3 ranks" in done.out and os.path.getsize("t.svg") > 1000), done.out + done.err)

# a failure in the middle of a bar: its message has a line of its own
with h5py.File("singular.h5", "w") as f:
    f["A"] = [[float(i == j and i != 299) for j in range(300)] for i in range(300)]
shown, code = on_terminal("dense invert singular.h5 -o never.h5 --block 32 --backend cpu", {"TERRACE_TEST_STEP_DELAY_MS": "250"})
check("a message behind a bar", code == 4 and re.search(r"\r +\rterrace: ", shown), repr(shown[-200:]))
code, out, err = run("dense invert singular.h5 -o never.h5 --block 32 --backend cpu --report r.json")
check("ranks_detail of an outcome", code == 4 and len(read_json()["ranks_detail"]) == 2, err)

test.finish()
