#!/usr/bin/env python3
"""bench judges the answer of every run, ours and the rivals': wrong ones are made by TERRACE_TEST_BENCH. Its options are
obeyed or refused, and what measures (calibration, energy, the study scripts, the figures) starts.

bench.py TERRACE     Needs no more than Python; jq for the study scripts. Runs in a temporary folder.
"""
import concurrent.futures
import json
import os
import re
import shutil
import sys
import tempfile

from terrace import JOBS, Program, drawn, gpus, read_json

test = Program(sys.argv[1])
check = test.check
M4RI = os.path.join(os.path.dirname(test.path), "tests", "m4ri_bench")


def bench(words, spoil=None, ranks=1, **more):
    """Exit code, messages, table, report."""
    report = tempfile.mktemp(dir=test.folder)
    if not words.startswith("io"):
        words += " --backend cpu"
    done = test.run(f"bench {words} --report {report}", ranks, env={**more, **({"TERRACE_TEST_BENCH": spoil} if spoil else {})})
    found = {}
    if os.path.exists(report):
        found = read_json(report)
        os.remove(report)
    return done.code, [line for line in done.said if "warning" not in line], done.out, found


def checked(run):
    number = lambda x: isinstance(x, (int, float)) and not isinstance(x, bool)
    return "failed" not in run and number(run["seconds"]) and (number(run["residual"]) or run.get("certificate") == "passed")


def sound(words, code, lines, table, report):
    check(words, code == 0 and not lines, f"exit {code}: {lines}")
    rows = report.get("runs", [])
    check(words, rows and all(checked(r) or r.get("phase") in ("product", "preconditioner", "prepare") for r in rows), rows)


# --- wrong answers of ours, in every family ------------------------------------------------------
FAMILIES = ["gf2 --n 130", "gf2 --n 130 --echelon", "gf2 --n 130 --product", "gf2 --n 130 --inverse", "dense --n 40", "dense --n 90 --solve --precision mixed",
            "band --n 300 --half-bandwidth 12", "band --n 300 --half-bandwidth 12 --method partition --parts 3",
            "band --n 300 --half-bandwidth 12 --method two-ends", "band --n 300 --half-bandwidth 12 --method streamed --substitution cpu", "band --n 300 --half-bandwidth 12 --precision mixed", "cg --n 60",
            "cg --n 60 --rtol 1e-9", "cg --n 60 --layout rows --rhs 4", "cg --kind band --n 200 --half-bandwidth 5", "cg --kind csr --points 5",
            "cg --n 60 --precision mixed", "cg --kind band --n 300 --half-bandwidth 5 --precision mixed", "cg --kind csr --points 5 --precision mixed", "matrix --what sum,memory --n 20", "matrix --what product --n 20", "matrix --what cg --n 20",
            "matrix --what cramer --n 5", "io --gib 0.0002 --layout plain --warm", "io --gib 0.0002 --layout chunked --warm"]


def wrong_ones(words):
    who = {"matrix --what cg": "textbook", "matrix --what cramer": "elimination", "matrix --what sum,memory": "container"}.get(
        words.rsplit(" --n", 1)[0], "terrace")
    sound(words, *bench(words + " --repeat 1"))
    for spoil in [f"{who}:nan:2"] + ([f"{who}:7"] if FAMILIES.index(words) % 2 else []):  # of the second run alone; of every run
        what = f"{words}, {spoil}"
        code, lines, table, report = bench(words + " --repeat 2", spoil)
        check(what, code == 4 and len(lines) == 1 and "bench " + words.split()[0] in lines[0], f"exit {code}: {lines}")
        last = report["runs"][-1]
        run = "run 2" if spoil.endswith(":2") else "run 1"
        said = last.get("failed", "")
        check(what, last["seconds"] is None and any(word in said for word in (run, "its x has", "no convergence")), last)
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


# The bounds as users have them, measured at sizes that fill the machine; here they are small (terrace.py).
done = test.run("bench band --n 300 --half-bandwidth 12 --repeat 1 --backend cpu --report r.json", code=0, wrapper=["env", "-u", "TERRACE_TEST_BOUNDS"])
check("bounds", all(r["fraction_of_bound"]["fraction"] > 0 for r in read_json()["runs"]), read_json()["runs"])

with concurrent.futures.ThreadPoolExecutor(3) as pool:
    list(pool.map(wrong_ones, FAMILIES))
    list(pool.map(lambda a: wrong_rivals(*a), [("dense --n 40 --rivals lapack --repeat 1", ["lapack"]),
                                               ("dense --n 40 --solve --rhs 3 --rivals lapack --repeat 1", ["lapack"]),
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
for words in ("dense --n 50 --rivals lapack --repeat 1", "dense --n 50 --solve --repeat 1", "dense --n 50 --solve --method gauss-jordan --repeat 1", "gf2 --n 200 --repeat 1", "band --n 300 --half-bandwidth 12 --repeat 1", "band --n 300 --half-bandwidth 12 --rhs 1,3 --precision mixed --repeat 1", "cg --n 60 --repeat 1"):
    sound(words, *bench(words, ranks=2))
    if "lapack" in words and words.startswith("dense"):
        rows = bench(words, "lapack:nan", ranks=2)[3]["runs"]
        check("a rival of two ranks", rows[-1]["who"] == "lapack" and rows[-1]["seconds"] is None, rows)
    check(words + ", two ranks", bench(words, "terrace:nan", ranks=2)[0] == 4)
for words in ("dense --n 64 --solve --precision mixed", "band --n 300 --half-bandwidth 12 --method two-ends"):  # a rank has no rows
    sound(words + ", three ranks", *bench(words, ranks=3))


# --- every option of every command is obeyed, for the reason here, or refused by name -------------
start = test.run


ALWAYS = "--help --report --json --quiet --progress --oversubscribe --no-bind --seed --backend --precision --guard --check"  # of the frame, by its table
BENCH_REFUSED = {"--check": "exact", "--output": "x.h5", "--force": "", "--plan": "", "--checkpoint": "c.h5", "--checkpoint-every": "1s", "--restart": "c.h5"}
SOLVER = "--output --force --plan --no-check --method --block --checkpoint --checkpoint-every --restart"
GENERATE_REFUSED = {"--method": "foo", "--block": "8", "--precision": "mixed", "--no-check": "", "--check": "none", "--checkpoint": "c.h5", "--checkpoint-every": "1s",
                    "--restart": "c.h5", "--backend": "cuda"}
BITS = "--k --tables --panels"
TABLE = {  # command: (obeyed beside ALWAYS, refused here with these values)
    "bench gf2": ("--n --repeat --rivals --stages --energy --product --levels --inverse --columns --density --half-rank --rank --echelon --checksum "
                  "--calibrate --study --candidates --transfers --no-check --method --block " + BITS, BENCH_REFUSED),
    "bench band": ("--n --repeat --rivals --stages --half-bandwidth --rhs --parts --widths --diagonal --substitution --no-check --method --block", BENCH_REFUSED),
    "bench dense": ("--n --repeat --rivals --stages --solve --rhs --grid --threads --pivoting --no-check --method --block --moduli", BENCH_REFUSED),
    "bench cg": ("--n --repeat --rivals --kind --half-bandwidth --points --stencil --shuffle --iterations --preconditioner --layout --diagonal --rhs "
                 "--rtol --no-check --method", {**BENCH_REFUSED, "--block": "8"}),
    "bench matrix": ("--n --repeat --what --no-check --most-" + ("alternative" if gpus() else "serial"), {**BENCH_REFUSED, "--method": "foo", "--block": "8", "--rivals": "foo",
                                                                      "--most-serial" if gpus() else "--most-alternative": "9"}),
    "bench io": ("--gib --file-dir --layout --repeat --keep --warm --no-check",
                 {**BENCH_REFUSED, "--method": "foo", "--block": "8", "--backend": "cpu", "--seed": "2"}),
    "bench profile": ("--folder", {**BENCH_REFUSED, "--method": "foo", "--block": "8", "--no-check": "", "--check": "none", "--seed": "2"}),
    "generate gf2-random": ("--output --force --plan --rhs --rows --columns --density", GENERATE_REFUSED),
    "generate gf2-rank": ("--output --force --plan --rhs --rows --columns --rank", GENERATE_REFUSED),
    "generate band-spd": ("--output --force --plan --rhs --n --half-bandwidth --condition", GENERATE_REFUSED),
    "generate band-laplace": ("--output --force --plan --rhs --n --points --half-bandwidth", GENERATE_REFUSED),
    "generate dense-random": ("--output --force --plan --rhs --n", GENERATE_REFUSED),
    "generate dense-condition": ("--output --force --plan --rhs --n --condition", GENERATE_REFUSED),
    "generate dense-spd": ("--output --force --plan --rhs --n --condition", GENERATE_REFUSED),
    "generate csr-laplace": ("--output --force --plan --rhs --dim --points", GENERATE_REFUSED),
    "cg": (SOLVER + " --ranks --gpu --rhs --rtol --atol --norm --max-iterations --x0 --preconditioner --layout --reorder --at-once --monitor --format --uplo --order --columns --bitorder --shape",
           {"--block": "8", "--degree": "3", "--near-null-space": ":/V", "--condition": "4"}),
}
NEEDED = {"generate gf2-random": "--rows 4", "generate gf2-rank": "--rows 4 --rank 2", "generate band-spd": "--n 4 --half-bandwidth 1",
          "generate band-laplace": "--points 3", "generate dense-random": "--n 4", "generate dense-condition": "--n 4 --condition 9",
          "generate dense-spd": "--n 4", "generate csr-laplace": "--points 3", "cg": "none.h5 --rhs :/b -o x.h5"}


def options_of(text):
    listed = set()
    for line in text.splitlines():
        if line.startswith("  -"):
            listed |= {word.rstrip(",:").split("{")[0] for word in line.split("   ")[0].replace(",", " ").split() if word.startswith("--")}
    return listed


def options(command):
    obeyed, refused = TABLE[command]
    text = start(command + " --help").out
    listed = options_of(text)
    known = set(ALWAYS.split()) | set(obeyed.split()) | set(refused)
    check(command, listed <= known, f"neither obeyed nor refused here: {sorted(listed - known)}")
    out = " -o never.h5" if command.startswith("generate") else ""
    for option in re.findall(r"^  (--[a-z0-9-]+) N\b", text, re.MULTILINE):
        if option == "--seed":  # any number will do
            continue
        words = f"{command} {re.sub(option + ' [^ ]+', '', NEEDED.get(command, ''))} {option}=-1{out}"
        done = start(words)
        check(words, done.code == 2 and len(done.said) == 1 and option in done.said[0], f"exit {done.code}: {done.said}")
    for option, value in refused.items():
        words = f"{command} {NEEDED.get(command, '')} {option} {value}{out}"
        done = start(words)
        check(words, done.code == 2 and len(done.said) == 1 and option in done.said[0], f"exit {done.code}: {done.said}")


REFUSED = [  # what the other options of a line leave without a meaning
    ("bench band --n 50 --backend cpu --rivals foo", "foo"), ("bench cg --n 50 --backend cpu --rivals foo", "foo"),
    ("bench dense --n 50 --backend cpu --rivals foo", "foo"), ("bench dense --n 50 --precision mixed", "--precision"),
    ("bench dense --n 50 --moduli 12", "--moduli"), ("bench dense --n 50 --solve --precision mixed --moduli 13", "--moduli"),
    ("bench dense --n 50 --solve --method gauss-jordan --precision mixed", "--precision"), ("bench dense --n 50 --backend cpu --rivals cusolver", "cusolver"),
    ("bench gf2 --n 50 --rivals foo", "foo"), ("bench cg --kind band --rivals blas", "blas"), ("bench cg --kind csr --n 50", "--n"),
    ("bench cg --kind csr --layout rows", "--layout"), ("bench cg --points 4", "--points"), ("bench cg --half-bandwidth 4", "--half-bandwidth"),
    ("bench cg --rtol 1e-3 --iterations 4", "--iterations"), ("bench gf2 --product --rivals m4ri", "--rivals"),
    ("bench gf2 --inverse --rivals m4ri", "--rivals"), ("bench gf2 --echelon --checksum", "--checksum"), ("bench gf2 --calibrate --n 50", "--n"),
    ("bench gf2 --calibrate --rivals m4ri", "--rivals"), ("bench gf2 --calibrate --k 4", "--k"), ("bench gf2 --study --energy", "--energy"),
    ("bench gf2 --study --backend cpu", "--study"), ("bench gf2 --transfers --backend cpu --n 64", "--transfers"),
    ("bench band --precision mixed --rivals lapack", "--rivals"), ("bench band --precision mixed --diagonal cpu", "--diagonal"),
    ("bench band --n 500 --half-bandwidth 9 --method partition --stages --backend cpu", "--stages"),
    ("bench -o x.h5 gf2 --n 64", "--output"), ("bench --backend cpu gf2 --n 64", "--backend"), ("bench --profile -o x.h5", "--output"),
    ("cg csr.h5 --rhs :/b -o x.h5 --layout rows", "--layout"), ("cg csr.h5 --rhs :/b -o x.h5 --preconditioner jacobi --block 8", "--block"),
    ("cg csr.h5 --rhs :/b -o x.h5 --preconditioner ic --degree 8", "--degree"), ("bench matrix --n 9 --method foo", "--method")]


def refused(line):
    words, named = line
    done = start(words)
    said = done.said
    check(words, done.code == 2 and len(said) == 1 and named in said[0] and said[0].count(";") >= 2, f"exit {done.code}: {said}")


start("generate csr-laplace --dim 2 --points 4 --rhs 1 -o csr.h5")
before = sorted(os.listdir("."))
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    list(pool.map(options, TABLE))
    list(pool.map(refused, REFUSED))
check("files", before == sorted(os.listdir(".")), set(os.listdir(".")) - set(before))

# --- what measures starts ------------------------------------------------------------------------
profile = os.path.abspath("profile.json")
code, lines, table, report = bench("gf2 --calibrate", TERRACE_PROFILE=profile)
check("--calibrate", code == 0 and not lines and len(report["profile"]["gf2"]["shapes"]) >= 10, lines)
shapes = report["profile"]["gf2"]["shapes"]
check("--calibrate, best first", [s["rate"] for s in shapes] == sorted((s["rate"] for s in shapes), reverse=True) and
      {"k", "tables", "rows", "threads"} <= set(shapes[0]) and report["profile"]["gf2"]["panels"][0][0] == 0, shapes[:2])
check("--calibrate, stored", report["profile"]["gf2"] in [device.get("gf2") for device in read_json(profile).values()])
code, lines, table, report = bench("gf2 --n 256 --repeat 1 --energy")
energy = report["runs"][0]["energy"]
check("--energy", code == 0 and (energy["joules_per_solve"] >= 0 if energy else bool(report["runs"][0]["energy_reason"])), report["runs"])
# --- who does what is done, and said; --plan knows what changes the time -------------------------
start("generate band-spd --n 300 --half-bandwidth 12 --rhs 1 -o band.h5")
start("generate gf2-random --rows 4096 -o bits.h5")
for words in ("--diagonal cpu --substitution cpu", "--diagonal cpu", "--substitution cpu"):
    done = start(f"band solve band.h5:/A --rhs :/b --backend cpu {words} -o x.h5 --force --report r.json")
    found = read_json()
    check(words, done.code == 0 and found["places"] == {"diagonal": "cpu", "substitution": "cpu"} and found["method"] == "tile-columns" and
          found["residual"] < 30, found)
for words in ("--diagonal gpu", "--substitution gpu"):
    done = start(f"band solve band.h5:/A --rhs :/b --backend cpu {words} -o never.h5")
    check(words, done.code == 2 and words.split()[0] in done.err, done.err)


def planned(words):
    start(f"gf2 rref bits.h5 -o never.h5 --backend cpu --plan --report plan.json {words}", env={"TERRACE_PROFILE": "none.json"})
    return read_json("plan.json")["result"]["plan"]["seconds"]["solve"]


plain = planned("--k 8")
check("--plan --k", planned("--k 1") > 2 * plain and planned("--k 4") > plain, (plain, planned("--k 1")))

skipped = not shutil.which("jq")
if skipped:
    test.skipped("jq is not here, the study scripts were not tried; all else was")
else:
    small = {"BACKEND": "cpu", "BACKENDS": "cpu", "REPEAT": "2", "N": "300", "HALF_BANDWIDTHS": "20", "WIDTHS": "16",
             "SIZES": "20,30", "SIZES_CPU": "4 16", "MEMORY_CPU": "20", "LIMIT": "60", **({"TERRACE_M4RI_BENCH": M4RI} if os.path.exists(M4RI) else {})}

    def study(name, *arguments, wrong=None):
        return test.script(f"{JOBS}/{name}_seed.sh", name + ("-wrong" if wrong else ""), *arguments, **small,
                           **({"TERRACE_TEST_BENCH": wrong} if wrong else {}))

    for name, arguments in (("gf2", ("6", "7")), ("band", ())):  # those of dense and cg: textbook.py, matrices.py
        done = study(name, *arguments)
        made = done.code == 0 and all(os.path.getsize(f"{name}.{kind}") > 100 for kind in ("csv", "md")) and drawn(f"{name}.svg", done) != {}
        check(f"{name}_seed.sh", done.code == 0 and made and "failed" not in open(f"{name}.csv").read(), done.err[-300:])
    # Wrong answers: said, in no table, and the script fails.
    for name, arguments, who in (("band", (), "terrace"), ("dense", (), "lapack")):
        done = study(name, *arguments, wrong=who + ":nan")
        text = open(f"{name}-wrong.csv").read()
        rows = [line for line in text.splitlines()[1:] if not line.startswith("#")]
        check(f"{name}_seed.sh, wrong", done.code != 0 and "# failed" in text and "failed" in done.err and
              not any(line.startswith(who) for line in rows), text + done.err[-300:])
    if os.path.exists(M4RI):
        liar = script("liar", "echo seconds 0.5 threads 1 rank 3 checksum 0")
        small["TERRACE_M4RI_BENCH"] = liar
        done = study("gf2", "6", "6", wrong="nobody:1")
        text = open("gf2-wrong.csv").read()
        check("gf2_seed.sh, M4RI wrong", done.code != 0 and "another rank" in text and "measured,M4RI" not in text, text)
    done = test.script("bash", "-c", f"source {JOBS}/setup.sh; for l in '3 1' '5' '4 1 9' '8 2 4 6'; do printf '%s\\n' $l | terrace_median; done")
    check("medians of the scripts", done.out.split() == ["2", "5", "4", "5"], done.out + done.err)

test.finish(skipped)
