#!/usr/bin/env python3
"""bench judges the answer of every run, ours and the rivals': wrong ones are made by TERRACE_TEST_BENCH. Its options are
obeyed or refused, and what measures (calibration, energy, the study scripts, the figures) starts.

bench.py TERRACE     Needs no more than Python; jq for the study scripts. Runs in a temporary folder.
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile

terrace = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
folder = tempfile.mkdtemp()
os.chdir(folder)
failures = 0
M4RI = os.path.join(os.path.dirname(terrace), "tests", "m4ri_bench")


def check(what, condition, detail=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED  {what}: {detail}", flush=True)


def bench(words, spoil=None, ranks=1, **more):
    """Exit code, messages, table, report."""
    report = tempfile.mktemp(dir=folder)
    env = {**os.environ, **more, **({"TERRACE_TEST_BENCH": spoil} if spoil else {})}
    start = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    on = [] if words.startswith("io") else ["--backend", "cpu"]
    done = subprocess.run(start + [terrace, "bench"] + words.split() + on + ["--report", report], capture_output=True, text=True,
                          timeout=120, env=env)
    found = {}
    if os.path.exists(report):
        with open(report) as f:
            found = json.load(f)
        os.remove(report)
    lines = [line for line in done.stderr.splitlines() if line.startswith("terrace: ") and "warning" not in line]
    return done.returncode, lines, done.stdout, found


def checked(run):
    number = lambda x: isinstance(x, (int, float)) and not isinstance(x, bool)
    return "failed" not in run and number(run["seconds"]) and (number(run["residual"]) or run.get("certificate") == "passed")


def sound(words, code, lines, table, report):
    check(words, code == 0 and not lines, f"exit {code}: {lines}")
    rows = report.get("runs", [])
    check(words, rows and all(checked(r) or r.get("phase") in ("product", "preconditioner") for r in rows), rows)


# --- wrong answers of ours, in every family ------------------------------------------------------
FAMILIES = ["gf2 --n 130", "gf2 --n 130 --echelon", "gf2 --n 130 --product", "gf2 --n 130 --inverse", "dense --n 40",
            "dense --n 40 --precision emulated", "band --n 300 --half-bandwidth 12", "band --n 300 --half-bandwidth 12 --method partition --parts 3",
            "band --n 300 --half-bandwidth 12 --method two-ends", "band --n 300 --half-bandwidth 12 --method streamed --substitution cpu", "band --n 300 --half-bandwidth 12 --precision mixed", "cg --n 60",
            "cg --n 60 --rtol 1e-9", "cg --n 60 --layout rows --rhs 4", "cg --kind band --n 200 --half-bandwidth 5", "cg --kind csr --points 5",
            "cg --n 60 --precision mixed", "matrix --what sum,memory --n 20", "matrix --what product --n 20", "matrix --what cg --n 20",
            "matrix --what cramer --n 5", "io --gib 0.0002 --layout plain --warm", "io --gib 0.0002 --layout chunked --warm"]


def wrong_ones(words):
    who = {"matrix --what cg": "textbook", "matrix --what cramer": "elimination", "matrix --what sum,memory": "container"}.get(
        words.rsplit(" --n", 1)[0], "terrace")
    sound(words, *bench(words + " --repeat 2"))
    for spoil in (f"{who}:7", f"{who}:nan:2"):  # of every run; of the second alone
        code, lines, table, report = bench(words + " --repeat 2", spoil)
        what = f"{words}, {spoil}"
        check(what, code == 4 and len(lines) == 1 and "bench " + words.split()[0] in lines[0], f"exit {code}: {lines}")
        last = report["runs"][-1]
        check(what, last["seconds"] is None and "run " + spoil[-1] in last["failed"] or "run 1" in last["failed"] or
              "its x has" in last["failed"] or "no convergence" in last["failed"], last)
        check(what, report["status"] == "check-failed" and report["exit_code"] == 4, report["status"])
    code, lines, table, report = bench(words + " --repeat 1 --no-check", f"{who}:nan")
    check(words + " --no-check", code == 0 and all(r["residual"] is None and r.get("certificate", "not checked") == "not checked" and
                                                   isinstance(r["seconds"], float) for r in report["runs"]) and "not checked" in table,
          f"exit {code}: {report.get('runs')}")


# --- wrong answers of rivals ---------------------------------------------------------------------
def wrong_rivals(words, whos):
    sound(words, *bench(words))
    for who in whos:
        for value in ("7", "nan"):
            code, lines, table, report = bench(words, f"{who}:{value}")
            rows = [r for r in report["runs"] if r["who"].startswith(who)]
            check(f"{words}, {who} wrong", code == 0 and rows and all(r["seconds"] is None and r["failed"] for r in rows) and
                  "failed" in table, f"exit {code}: {rows}")
            check(f"{words}, {who} wrong, ours right", all(checked(r) for r in report["runs"] if r["who"] == "terrace"), report["runs"])


def script(name, text):
    with open(name, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(name, 0o755)
    return os.path.abspath(name)


with concurrent.futures.ThreadPoolExecutor(3) as pool:
    list(pool.map(wrong_ones, FAMILIES))
    list(pool.map(lambda a: wrong_rivals(*a), [("dense --n 40 --rivals lapack --repeat 1", ["lapack"]),
                                               ("band --n 300 --half-bandwidth 12 --rivals lapack --repeat 1", ["lapack"]),
                                               ("cg --n 60 --rivals blas,blas-symv --repeat 1", ["blas", "blas-symv"])] +
                  ([("gf2 --n 130 --rivals m4ri --repeat 1", ["m4ri"]), ("gf2 --n 130 --rivals m4ri --echelon --repeat 1", ["m4ri"])]
                   if os.path.exists(M4RI) else [])))
# The answers that a program of M4RI's could give.
bits = bench("gf2 --n 130 --checksum --repeat 1")[3]["runs"][0]
answer = "seconds 0.5 threads 1 rank {} checksum {}\n"
for name, text, good in (("right", "printf '" + answer.format(bits["rank"], bits["checksum"]) + "'", True),
                         ("rank", "printf '" + answer.format(bits["rank"] - 1, bits["checksum"]) + "'", False),
                         ("bits", "printf '" + answer.format(bits["rank"], "0" * 16) + "'", False),
                         ("words", "echo seconds 0.5 threads 1", False),
                         ("dead", "printf '" + answer.format(bits["rank"], bits["checksum"]) + "'; exit 1", False)):
    code, lines, table, report = bench("gf2 --n 130 --rivals m4ri --repeat 2", TERRACE_M4RI_BENCH=script(name, text))
    last = report["runs"][-1]
    check(f"M4RI, {name}", code == 0 and last["who"].startswith("m4ri") and (last["seconds"] == 0.5 and checked(last) if good else
                                                                            last["seconds"] is None and last["failed"]), last)
check("no M4RI", "not here" in json.dumps(bench("gf2 --n 130 --rivals m4ri-all --repeat 1")[3]["warnings"]))
for words in ("dense --n 50 --rivals lapack --repeat 1", "gf2 --n 200 --repeat 1", "band --n 300 --half-bandwidth 12 --repeat 1", "cg --n 60 --repeat 1"):
    sound(words, *bench(words, ranks=2))
    if words.startswith("dense"):
        rows = bench(words, "lapack:nan", ranks=2)[3]["runs"]
        check("a rival of two ranks", rows[-1]["who"] == "lapack" and rows[-1]["seconds"] is None, rows)
    check(words + ", two ranks", bench(words, "terrace:nan", ranks=2)[0] == 4)

os.chdir("/")
shutil.rmtree(folder)
print("all passed" if failures == 0 else f"{failures} failed")
sys.exit(failures != 0)
