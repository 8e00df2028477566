#!/usr/bin/env python3
"""The first hour of a new user: help, mistakes, scripts and what a run prints: first_hour.py TERRACE

Each row is a command, its exit code and its first line. All commands and options are walked through: what a help shows is
taken, and every other option is refused by its name.
"""
import json
import os
import re
import subprocess
import sys
import time
import warnings

import h5py
import numpy as np
import scipy.linalg
import scipy.sparse

import schema
from given import bits
from terrace import ALL, ROOT, Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"


def row(command, code, said=None, printed=None, ranks=1, env=None, has=()):
    """`said`: the whole message; `printed`: the first line on standard output, where ~ is a number."""
    done = test.run(command, ranks, code, env)
    if said is not None:
        check(command, done.said == ["terrace: " + said], f"{done.said}, not {said!r}")
    if printed is not None:
        pattern = re.escape(printed).replace(re.escape("~"), NUMBER)
        check(command, re.fullmatch(pattern, (done.out.splitlines() or [""])[0]), f"{done.out[:200]!r}, not {printed!r}")
    for words in has:
        check(command, words in done.out + done.err, f"no {words!r} in {done.out[:2000]}{done.err}")
    return done


# --- help and usage errors -----------------------------------------------------------------------
known = re.findall(r"^  ([a-z]\w*)  ", test.run("--help", code=0).out, flags=re.M)
check("--help", {"gf2", "band", "dense", "cg", "generate", "convert", "verify", "bench", "info"} <= set(known), str(known))
row("", 2, f"no command is named; terrace; use {', '.join(known[:-1])} or {known[-1]}", "Commands", has=("rref, rank",))
row("gf2", 2, "no command is named; terrace gf2; use rref, rank, solve, kernel, inverse, determinant or multiply", "Commands of terrace gf2", has=("Basis of",))
row("gf2 rerf", 2, "unknown command 'rerf'; terrace gf2; did you mean rref? See terrace gf2 --help")
row("gf2 rerf A.h5 --quiet", 2, "unknown command 'rerf'; terrace gf2; did you mean rref? See terrace gf2 --help")
row("gtf2 rank", 2, "unknown command 'gtf2'; terrace; did you mean gf2? See terrace --help")
row("rank A.h5", 2, "unknown command 'rank'; terrace; did you mean gf2 rank? See terrace --help")
row("version", 2, "unknown command 'version'; terrace; did you mean --version? See terrace --help")
row("dens invert", 2, "unknown command 'dens'; terrace; did you mean dense? See terrace --help")
row("dense invert A.h5 -o x.h5 --precison fp64", 2, "unknown option '--precison'; terrace dense invert; did you mean --precision?")
row("dense invert A.h5 -o x.h5 --precison=fp64", 2, "unknown option '--precison'; terrace dense invert; did you mean --precision?")
row("dense solve A.h5 --rhs :/b -o x.h5 --precision mixde", 2, "'mixde' is not a value of --precision; terrace dense solve; did you mean mixed? use fp64, emulated or mixed")
row("gf2 rref A.h5 -o x.h5 --precision fp64", 2, "gf2 rref would not obey --precision; on the command line; leave it out, see terrace gf2 rref --help")
row("dense invert A.h5 -o x.h5 --precision fp46", 2, "'fp46' is not a value of --precision; terrace dense invert; did you mean fp64? use fp64 or emulated")
row("--quiet gf2 rank A.h5", 2, "options of gf2 rank go after its name; --quiet; as in terrace gf2 rank ... --quiet")
row("gf2 solve A.h5 -o x.h5", 2, "--rhs is missing; terrace gf2 solve; see terrace gf2 solve --help")
row("gf2 rerf", 2, "unknown command 'rerf'; terrace gf2; did you mean rref? See terrace gf2 --help", ranks=2)
row("gf2 help", 2, "unknown command 'help'; terrace gf2; did you mean --help? See terrace gf2 --help")
row("gf2 rank A.h5 more", 2, "'more' is one word too many; terrace gf2 rank; see terrace gf2 rank --help")
row("gf2 rank A.h5 --block", 2, "--block needs a value; terrace gf2 rank; see terrace gf2 rank --help")
row("gf2 rank A.h5 --block 1.5", 2, "'1.5' is not a value of --block; terrace gf2 rank; give a whole number")
row("cg A.h5 --rhs :/b -o x.h5 --rtol x", 2, "'x' is not a value of --rtol; terrace cg; give a number")
row("dense invert A.h5 --plan --ranks 0", 2, "'0' is not a value of --ranks; terrace dense invert; use 1 to 65536")
row("dense invert A.h5", 2, "no output is named; on the command line; add -o FILE.h5")
row("generate dense-condition --n 9 -o x.h5", 2, "--condition is missing; terrace generate dense-condition; see terrace generate dense-condition --help")
row("generate dense-random --n 0 -o x.h5", 2, "--n: 0 is not more than zero; on the command line; see terrace generate dense-random --help")
row("convert A.txt B.txt", 2, "neither file is HDF5; A.txt and B.txt; convert in two steps, by a file such as between.h5")
row("convert A.h5:/A B.h5", 2, "both files are HDF5; A.h5:/A and B.h5; name one of another form, such as .mtx or .npy")
for command in ("--help", "-h", "--help --quiet"):
    row(command, 0, printed="Terrace reduces, factors, inverts and solves big matrices from HDF5 on many GPUs.", has=("Commands", "Example", "Exit codes"))
row("gf2 --help", 0, printed="Dense matrices over GF(2)", has=("determinant",))
for command in ("--version", "-V"):
    row(command, 0, printed="terrace ~", has=("\ncommit ", "\nbuild ", "\nMPI ", "\nHDF5 ", "\nCUDA "))
broken = {"OMPI_MCA_pml": "nosuch"}
for command in ("--help", "gf2 --help", "--version", "gf2 rref --help"):
    row(command, 0, env=broken)
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        test.run(command, env=broken)
        spent.append(time.perf_counter() - start)
    print(f"terrace {command}: {min(spent):.3f} s")


# --- each command: what its help shows, and what is refused --------------------------------------
def commands_of(words=""):
    text = test.run(words + " --help").out
    names = re.findall(r"^  (\S+)", text.split("Commands", 1)[1].split("\n\n")[0].split("\n", 1)[1], flags=re.M) if "Commands" in text else []
    return [one for name in names for one in commands_of((words + " " + name).strip())] if names else [words]


def help_of(command):
    """Options of a command, and their values; the groups; the text."""
    text = test.run(command + " --help", code=0).out
    options = {}
    for names in re.findall(r"^  (-.*?)(?:   .*)?$", text, flags=re.M):
        options[re.search(r"--[\w-]+", names).group()] = names.split()[-1] if not names.split()[-1].startswith("-") else ""
    return options, re.findall(r"^([A-Z]\w+)$", text.split("\n", 1)[1], flags=re.M), text


commands = commands_of()
check("commands", len(commands) >= 30 and "gf2 determinant" in commands and "generate band-spd" in commands, str(commands))
helps = {command: help_of(command) for command in commands}
everything = {option for options, _, _ in helps.values() for option in options}
refused = set()
for number, (command, (options, groups, text)) in enumerate(helps.items()):
    check(command, "Example" in groups and f"terrace {command}" in text.split("Example")[1], text)
    check(command, all(len(line) <= 100 for line in text.splitlines()), "lines of the help are too long")
    known = set(groups) <= {"Input", "Problem", "Method", "Output", "Cluster", "Help", "Example"}
    check(command, known, str(groups))
    check(command, all(len(line) <= 79 for line in text.splitlines() if line.startswith("  ") and "terrace" not in line), "lines of options are too long")
    named = "-o FILE.h5[:/group]" in text.split("\n\nUsage: ")[1].split("\n")[0]  # an output that must be there
    check(command, named == ("--output" in options and command not in ("gf2 rank", "gf2 determinant")), text)
    missing = sorted(everything - set(options) - {"--help", "--version", "--completion"})
    # Refused by its name, whatever else is wrong: each option by the first command without it, and by one in sixteen of the others.
    for option in [one for k, one in enumerate(missing) if ALL or one not in refused or (k + number) % 16 == 0]:
        refused.add(option)
        done = test.run(f"{command} {option}")
        check(f"{command} {option}", done.code == 2 and len(done.said) == 1 and option in done.said[0], f"{done.code} {done.said}")
for command in ("generate", "gf2", "band", "dense", "bench"):
    row(f"{command} --help", 0, has=("Each command has its own help: terrace " + command + " ",))
for command, words in (("cg", "Rows of a block of block-jacobi (default 32)"), ("cg", "dense, band or sparse matrix"), ("band solve", "--diagonal gpu|cpu"),
                       ("generate band-spd", "Where to compute: on the CPU"), ("dense invert", "there are any (default auto)"), ("dense solve", "(default general)"),
                       ("gf2 rref", "(default 10m)"), ("bench cg", "comma-separated (default 100)"), ("generate dense-spd", "(default 100)")):
    check(command, words in " ".join(helps[command][2].split()), f"no {words!r} in {helps[command][2]}")
for command in ("gf2 multiply", "generate band-spd", "band solve"):  # what is named alone, then what is required
    section = re.split(r"\n(?:Input|Problem)\n", helps[command][2])[1].split("\n\n")[0]
    names = re.findall(r"^  (\S.*?)(?:   .*)?$", section, flags=re.M)
    said = [0 if not name.startswith("-") else 1 if "(required)" in section.split(name, 1)[1].split("\n  -")[0] else 2 for name in names]
    check(command, said == sorted(said), f"{names} {said}")
check("gf2 rref", not {"--precision"} & set(helps["gf2 rref"][0]), str(helps["gf2 rref"][0]))
check("generate csr-laplace", not {"--checkpoint", "--restart", "--guard", "--precision", "--method", "--block"} & set(helps["generate csr-laplace"][0]))

# A method that there is not: the message names those of the help.
made = {"gf2": "generate gf2-rank --rows 70 --columns 70 --rank 70 --rhs 1 -o gf2.h5", "band": "generate band-spd --n 300 --half-bandwidth 5 --rhs 1 -o band.h5",
        "dense": "generate dense-random --n 30 --rhs 1 -o dense.h5", "cg": "generate csr-laplace --dim 2 --points 20 --rhs 1 -o cg.h5"}
for command in made.values():
    test.run(command, 1, 0)
inputs = {}
for command in helps:
    family = command.split()[0]
    if family in made:
        inputs[command] = f"{command} {family}.h5:/A" + (" :/A" if command == "gf2 multiply" else "") + (" --rhs :/b" if "--rhs" in helps[command][0] else "")
for command, line in inputs.items():
    if command == "dense factor":
        continue  # LU alone
    names = helps[command][0].get("--method", "").split("|")
    check(command, len(names) > 1, "no methods in the help")
    done = test.run(f"{line} --method nonsense -o x.h5", code=2)
    for name in names:
        check(command, done.said and name in done.said[0], f"{name}: {done.said}")

# Each option in a help is taken, with a value that means something; those that say what a file does not, below.
VALUES = {"--output": "x.h5", "--report": "r.json", "--method": "", "--block": "64", "--seed": "3", "--checkpoint": "c.h5", "--checkpoint-every": "1h --checkpoint c.h5",
          "--k": "4", "--candidates": "2", "--levels": "0", "--rhs": ":/b", "--x0": ":/x_true", "--scratch-dir": ". --method streamed", "--parts": "1 --method streamed",
          "--diagonal": "cpu", "--substitution": "cpu", "--rtol": "1e-8", "--atol": "1e-8", "--max-iterations": "900", "--condition": "50 --plan",
          "--ranks": "2 --plan", "--gpu": None, "--degree": "3 --preconditioner chebyshev", "--near-null-space": None, "--moduli": "14", "--at-once": "2", "--monitor": "5", "--factor": "factor.h5", "--grid": None, "--threads": None, "--restart": None,
          "--format": None, "--uplo": None, "--order": None, "--columns": None, "--bitorder": None, "--shape": None, "--help": "", "--layout": None, "--block-jacobi": None}
test.run("band factor band.h5:/A -o factor.h5", 1, 0)
test.run("dense factor dense.h5:/A -o dense_factor.h5", 1, 0)
taken = set()  # by the first command of each family that has it, and by one in eight of the others
for number, (command, line) in enumerate(inputs.items()):
    for k, (option, value) in enumerate(helps[command][0].items()):
        if not (ALL or (command.split()[0], option) not in taken or (k + number) % 8 == 0):
            continue
        taken.add((command.split()[0], option))
        words = "dense_factor.h5" if command == "dense solve" and option == "--factor" else VALUES.get(option, value)
        if words is None or option in ("--method",) or (command == "cg" and option == "--block"):
            continue
        if "|" in words:
            words = words.split("|")[1 if option in ("--progress", "--check") else 0]
        remove("x.h5", "c.h5")
        tail = "" if option == "--output" else " -o x.h5"
        done = test.run(f"{line.split(' --rhs')[0] if option == '--rhs' else line} {option} {words}{tail}")
        check(f"{command} {option} {words}", done.code == 0, f"exit {done.code}: {done.said}")
# What the command line says of a file: each value that a help shows is taken with some file that does not say it.
with h5py.File("gf2.h5") as f:
    G, right = bits(f["A"]), f["b"][...]
    solution = {"gf2": dict(f["b"].attrs)}
words = np.packbits(np.pad(G, ((0, 0), (0, 58))), axis=1, bitorder="little").view("u8")
M = scipy.sparse.diags([np.full(29, -1.0), np.full(30, 4.0), np.full(29, -1.0)], [-1, 0, 1], format="csr")


def sparse(f, name, matrix, how, shape=True):
    g = f.create_group(name)
    if how == "coo":
        o = matrix.tocoo()
        g["data"], g["row"], g["col"] = o.data, o.row, o.col
    else:
        o = matrix.asformat(how)
        g["data"], g["indices"], g["indptr"] = o.data, o.indices, o.indptr
    if shape:
        g.attrs["shape"] = matrix.shape


with h5py.File("say.h5", "w") as f:
    f["words"], f["little"], f["big"], f["plain"], f["turned"] = words, np.packbits(G, axis=1, bitorder="little"), np.packbits(G, axis=1), G, np.ascontiguousarray(G.T)
    f["words_said"], f["right"] = words, right
    f["words_said"].attrs["columns"] = f["little"].attrs["columns"] = f["big"].attrs["columns"] = 70
    f["right"].attrs.update({**solution["gf2"], "order": "row-major"})
    for how in ("csr", "csc", "coo"):
        sparse(f, "bits_" + how, scipy.sparse.csr_matrix(G), how)
        sparse(f, how, M, how)
    sparse(f, "bits_bare", scipy.sparse.csr_matrix(G), "csr", shape=False)
    square = scipy.sparse.csr_matrix(G @ G.T % 2)
    for uplo, part in (("lower", scipy.sparse.tril), ("upper", scipy.sparse.triu)):
        sparse(f, "bits_" + uplo, part(square, format="csr"), "csr")
        sparse(f, uplo, part(M, format="csr"), "csr")
    sparse(f, "bare", M, "csr", shape=False)
    f["dense"], f["column-major"], f["b"] = M.toarray(), np.ascontiguousarray(M.toarray().T), np.ones(30)
    f["band"], f["band_upper"] = np.vstack([np.full(30, 4.0), np.full(30, -1.0)]), np.vstack([np.full(30, -1.0), np.full(30, 4.0)])
    f["band_turned"] = np.ascontiguousarray(f["band"][...].T)
SAID = {"gf2": {"--format bits": "words_said", "--format dense": "plain", "--format csr": "bits_csr", "--format csc": "bits_csc", "--format coo": "bits_coo", "--uplo lower": "bits_lower",
                "--uplo upper": "bits_upper", "--order row-major": "plain", "--order column-major": "turned", "--columns 70": "words", "--bitorder little": "little", "--bitorder big": "big",
                "--shape 70x70": "bits_bare"},
        "band": {"--format band": "band", "--uplo lower": "band --format band", "--uplo upper": "band_upper --format band", "--order row-major": "band --format band",
                 "--order column-major": "band_turned --format band", "--shape 30x30": "band --format band"},
        "dense": {"--format dense": "dense", "--order row-major": "dense", "--order column-major": "column-major", "--shape 30x30": "dense"},
        "cg": {"--format dense": "dense", "--format band": "band", "--format csr": "csr", "--format csc": "csc", "--format coo": "coo", "--uplo lower": "lower", "--uplo upper": "upper",
               "--order row-major": "dense", "--order column-major": "column-major", "--shape 30x30": "bare"}}
for number, command in enumerate(inputs):
    family = command.split()[0]
    known = helps[command][0]
    offered = {f"{o} {v}" for o in ("--format", "--uplo", "--order", "--bitorder") if o in known for v in known[o].split("|")}
    offered |= {one for one in SAID[family] if one.split()[0] in ("--columns", "--shape") and one.split()[0] in known}
    check(command, offered == set(SAID[family]), f"the help offers {sorted(offered ^ set(SAID[family]))}, and no file needs it")
    for k, (option, dataset) in enumerate(SAID[family].items()):
        if not (ALL or (family, option) not in taken or (k + number) % 8 == 0):
            continue
        taken.add((family, option))
        right = (" :/" + dataset.split()[0] if command == "gf2 multiply" else " --rhs :/" + ("right" if family == "gf2" else "b") if "--rhs" in known else "")
        if command == "gf2 multiply" and option.startswith(("--columns", "--format", "--uplo", "--shape")):
            right = " :/plain"
        done = test.run(f"{command} say.h5:/{dataset} {option}{right} -o x.h5 --force")
        check(f"{command} {option}", done.code == 0, f"exit {done.code}: {done.said}")
for command, option in (("cg", "--block 4"), ("cg", "--layout rows"), ("cg", "--degree 4"), ("dense solve", "--grid 8"), ("bench io", "--seed 3"), ("bench matrix", "--block 4"), ("generate dense-spd", "--density 0.5"),
                        ("gf2 multiply", "--panels host"), ("gf2 rref", "--levels 1")):
    done = test.run(f"{inputs[command]} -o x.h5 {option}" if command in inputs else f"{command} {option}")
    check(f"{command} {option}", done.code == 2 and len(done.said) == 1 and option.split()[0] in done.said[0], f"{done.code} {done.said}")
for option in ("--block 8", "--pivoting partial", "--precision emulated", "--checkpoint c.h5", "--guard"):
    done = test.run(f"dense solve dense.h5:/A --rhs :/b -o x.h5 --method cramer {option}")
    check(f"cramer {option}", done.code == 2 and option.split()[0] in done.said[0], f"{done.code} {done.said}")

# --- what a run prints ---------------------------------------------------------------------------
remove("x.h5")
shown = {
    "gf2 rref gf2.h5:/A -o x.h5": ("70 x 70 bits; tables on the CPU, ~ rank", "rank ~, reduced row echelon form", "certificate passed: 64 random vectors"),
    "gf2 rank gf2.h5:/A": ("70 x 70 bits; tables on the CPU, ~ rank", "rank ~", "certificate passed: 64 random vectors"),
    "gf2 solve gf2.h5:/A --rhs :/b -o x.h5": ("70 x 70 bits, 1 right-hand side; tables on the CPU, ~ rank", "rank ~, x", "certificate passed: 64 random vectors"),
    "band solve band.h5:/A --rhs :/b -o x.h5": ("band matrix, n = 300, half-bandwidth 5, 1 right-hand side; tile-columns on the CPU, ~ rank", "x, log-determinant ~",
                                                "residual ~ (scaled; below 30 is good)"),
    "band factor band.h5:/A -o x.h5": ("band matrix, n = 300, half-bandwidth 5; tile-columns on the CPU, ~ rank", "Cholesky factor, log-determinant ~",
                                       "residual ~ (scaled; below 30 is good)"),
    "dense invert dense.h5:/A -o x.h5": ("dense matrix, n = 30; gauss-jordan on the CPU, ~ rank", "inverse, condition ~, log |determinant| ~, sign *",
                                         "residual ~ (scaled; below 30 is good)"),
    "cg cg.h5:/A --rhs :/b -o x.h5": ("sparse matrix, n = 400, 1 right-hand side; conjugate-gradients (classic) on the CPU, ~ rank",
                                      "x, converged (rtol) after ~ iterations, ~ iterations/s", "relative residual ~ (rtol ~)"),
}
for command, (problem, answer, checked) in shown.items():
    for ranks in (1, 2):
        done = test.run(command + " --force --backend cpu", ranks, 0)
        lines = {line[:9].strip(): line[10:] for line in done.out.splitlines() if not line.startswith(" ")}
        for name, expected in (("problem", problem + ("s" if ranks > 1 else "")), ("answer", answer), ("check", checked)):
            pattern = re.escape(expected).replace(re.escape("~"), NUMBER).replace(re.escape("*"), "[-+]")
            check(f"{command} on {ranks}", re.fullmatch(pattern, lines.get(name, "")), f"{name}: {lines.get(name)!r}, not {expected!r}")
        check(f"{command} on {ranks}", re.match(r"\d+\.\d+ s: read \d+\.\d+ s, solve ", lines.get("time", "")), str(lines))
        check(f"{command} on {ranks}", lines.get("output", "x.h5" if "-o" not in command else "") == "x.h5", str(lines))
        check(f"{command} on {ranks}", not re.search(r"\d\.\d{10}", done.out.replace(lines.get("answer", " "), "")), done.out)

# --- for scripts ---------------------------------------------------------------------------------
rank = read_json("r.json") if test.run("gf2 rank gf2.h5:/A --report r.json", 1, 0) else {}
for ranks in (1, 2):
    done = test.run("gf2 rank gf2.h5:/A --quiet", ranks, 0)
    check("--quiet", done.out == f"{rank['result']['rank']}\n" and done.err == "", f"{done.out!r} {done.err!r}")
    done = test.run("gf2 determinant gf2.h5:/A --quiet", ranks, 0)
    check("--quiet", done.out in ("0\n", "1\n"), done.out)
check("--quiet", test.run("dense invert dense.h5:/A -o x.h5 --force --quiet", 1, 0).out == "", "a matrix is no number")
done = subprocess.run(f"r=$({test.path} gf2 rank gf2.h5:/A --quiet) && echo rank:$r", shell=True, capture_output=True, text=True)
check("a shell takes the rank", done.stdout == f"rank:{rank['result']['rank']}\n", done.stdout)
lines = {**inputs, "generate dense-random": "generate dense-random --n 5 -o y.h5 --force", "verify": "verify factor.h5", "info": "info",
         "bench dense": "bench dense --n 20 --repeat 1", "bench gf2": "bench gf2 --n 64 --repeat 1"}
for number, (command, line) in enumerate(lines.items()):
    output = " -o x.h5 --force" if command in inputs else ""
    for ranks in (1, 2) if ALL else (1 + number % 2,):
        done = test.run(f"{line}{output} --json", ranks, 0)
        report = json.loads(done.out)
        wrong = schema.faults(report) + schema.unknown(report)
        check(f"{command} --json on {ranks}", report["command"] == command and not wrong and done.err == "", f"{wrong} {done.err}")
    done = test.run(f"{line}{output} --report -", 1, 0)
    check(f"{command} --report -", json.loads(done.out)["command"] == command and done.err.strip() and not os.path.exists("-"), f"{done.out[:100]} {done.err[:200]}")
done = test.run("dense invert none.h5 -o x.h5 --json", 1, 3)
report = json.loads(done.out)
check("--json of a failure", report["exit_code"] == 3 and len(done.said) == 1 and not schema.faults(report), f"{report} {done.err}")
done = test.run("gf2 rank gf2.h5:/A --json --report both.json --quiet", 1, 0)
check("--json and --report", json.loads(done.out)["result"] == read_json("both.json")["result"], done.out[:200])
done = subprocess.run(f"{test.path} gf2 rank gf2.h5:/A --json | head -c 1", shell=True, capture_output=True, text=True)
check("a pipe that is closed", done.stdout == "{", done.stderr)
for command in shown:
    done = test.run(command + " --force --progress always", 1, 0, env={"NO_COLOR": "1", "TERRACE_PROGRESS_SECONDS": "0.001"})
    check("no colours", "\x1b" not in done.out + done.err, done.out + done.err)
plain = {k: v for k, v in os.environ.items() if k not in ("TERRACE_THREADS", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK")}
for given, expected, by in (({"OMP_NUM_THREADS": "1"}, 1, "OMP_NUM_THREADS"), ({"SLURM_CPUS_PER_TASK": "3"}, 3, "SLURM_CPUS_PER_TASK"),
                            ({"OMP_NUM_THREADS": "2", "SLURM_CPUS_PER_TASK": "3"}, 2, "OMP_NUM_THREADS"), ({"TERRACE_THREADS": "4", "OMP_NUM_THREADS": "1"}, 4, "TERRACE_THREADS"),
                            ({"OMP_NUM_THREADS": "2,1"}, 2, "OMP_NUM_THREADS"), ({"OMP_NUM_THREADS": "none"}, None, "cores")):
    done = subprocess.run(test.words("info --json"), capture_output=True, text=True, env={**plain, **given})
    result = json.loads(done.stdout)["result"]
    check(f"threads {given}", result["threads_by"] == by and expected in (None, result["map"][0]["threads"]), str(result)[:300])
done = subprocess.run(test.words("info"), capture_output=True, text=True, env={**plain, "OMP_NUM_THREADS": "1"})
check("info", "1 per rank, by OMP_NUM_THREADS (the first of TERRACE_THREADS, OMP_NUM_THREADS, SLURM_CPUS_PER_TASK, cores)" in done.stdout, done.stdout)

# --- traps ---------------------------------------------------------------------------------------
with h5py.File("ill.h5", "w") as f:
    f["H"] = 1.0 / (np.arange(12)[:, None] + np.arange(12)[None] + 1)
    f["b"] = np.ones(12)
    f["empty"] = np.zeros((0, 0))
    for n in range(8, 15):
        f[f"H{n}"] = scipy.linalg.hilbert(n)
    A = np.random.default_rng(5).standard_normal((12, 12))
    d = f.create_dataset("matlab", data=A.T)  # MATLAB's save -v7.3: by columns, and a class
    d.attrs["MATLAB_class"] = np.bytes_("double")
    f["A"] = A
for command in ("dense invert ill.h5:/H -o x.h5 --force", "dense solve ill.h5:/H --rhs :/b -o x.h5 --force"):
    for ranks in (1, 2):
        done, report = test.run(command + " --report r.json", ranks, 0), read_json("r.json")
        check(command, len(done.said) == 1 and done.said[0].startswith("terrace: warning: the reciprocal condition is") and len(report["warnings"]) == 1, done.err)
        with h5py.File("x.h5") as f:
            check(command, f["terrace"].attrs["warnings"].startswith("the reciprocal condition is"), "no warning in the file")
for n in range(8, 15):  # where LAPACK's estimate is below n eps, and wherever SciPy warns
    H = scipy.linalg.hilbert(n)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        scipy.linalg.solve(H, np.ones(n))
    rcond, _ = scipy.linalg.lapack.dgecon(scipy.linalg.lapack.dgetrf(H)[0], np.linalg.norm(H, 1))
    done = test.run(f"dense invert ill.h5:/H{n} -o x.h5 --force", 1, 0)
    check(f"Hilbert {n}", bool(done.said) == (rcond < n * 2.2e-16) and (not said or done.said), f"{done.err!r}; LAPACK says {rcond}, SciPy {[str(w.message) for w in said]}")
for ranks in (1, 2):
    done = test.run("dense solve ill.h5:/matlab --rhs :/b -o x.h5 --force", ranks, 0)
    with h5py.File("x.h5") as f:
        check("a MATLAB matrix", np.allclose(A @ f["x"][:], 1) and len(done.said) == 1 and "column-major" in done.said[0], done.err)
done = test.run("convert ill.h5:/A A.txt --force", 1, 0)
check("digits", len(done.said) == 1 and "digits were lost" in done.said[0] and "--digits 17" in done.said[0], done.err)
check("digits", test.run("convert ill.h5:/A A.txt --digits 17 --force", 1, 0).err == "" and np.array_equal(np.array(open("A.txt").read().split()[1:], float), A.ravel()), "not the same")
row("dense invert ill.h5:/empty -o x.h5 --force", 0)
row("verify x.h5", 0, has=("PASS",))
row("dense invert ill.h5:/A -o x.h5 --force --pivoting nonsense", 2, "'nonsense' is not a value of --pivoting; terrace dense invert; use auto, partial or tournament")

# --- what users store and had refused: each row of users.md 1.3 is solved or named with the cure; input_forms.py has more ----------
H = (np.random.default_rng(2).random((12, 20)) < 0.3).astype("u1")
H[:, :12] |= np.eye(12, dtype="u1")
full = scipy.sparse.csr_matrix(H)
K = M[:9, :9].tocsr()
with h5py.File("have.h5", "w") as f:
    f["complex"], f["text"], f["b"] = np.eye(3) * 1j, np.array([b"a", b"b"]), np.ones(9)
    f["band"], f["upper"] = np.vstack([np.full(9, 4.0), np.full(9, -1.0)]), np.vstack([np.r_[0, np.full(8, -1.0)], np.full(9, 4.0)])
    f["upper"].attrs["format"] = "band"
    for kind in ("i8", "i4", "u2", "f8"):
        f["bits_" + kind] = H.astype(kind)
    sparse(f, "parity", full, "csr")
    f["parity"].attrs["encoding-type"] = "csr_matrix"  # as AnnData writes it
    for how in ("csc", "coo"):
        sparse(f, how, K, how)
    f["csc"].attrs["encoding-type"] = "csc_matrix"
    L = scipy.sparse.tril(K, format="csr")
    sparse(f, "lower", L, "csr")
    g = f.create_group("matlab")
    c = K.tocsc()
    g["data"], g["ir"], g["jc"] = c.data, c.indices.astype("u8"), c.indptr.astype("u8")
    g.attrs["MATLAB_sparse"] = np.uint64(9)
    g = f.create_group("shape_dataset")
    g["data"], g["indices"], g["indptr"], g["shape"] = K.data, K.indices, K.indptr, np.array(K.shape)
    g = f.create_group("one")
    g["data"], g["indices"], g["indptr"] = K.data, K.indices + 1, K.indptr + 1
    g.attrs["shape"] = K.shape
with open("H.mtx", "w") as f:
    o = full.tocoo()
    f.write(f"%%MatrixMarket matrix coordinate pattern general\n12 20 {o.nnz}\n" + "".join(f"{i + 1} {j + 1}\n" for i, j in zip(o.row, o.col)))
with open("H.sms", "w") as f:
    f.write("12 20 M\n" + "".join(f"{i + 1} {j + 1} 1\n" for i, j in zip(o.row, o.col)) + "0 0 0\n")
with open("H.alist", "w") as f:
    lists = [[np.flatnonzero(row) + 1 for row in X] for X in (H.T, H)]
    weights = [[len(x) for x in part] for part in lists]
    f.write("20 12\n%d %d\n" % tuple(max(w) for w in weights) + "".join(" ".join(map(str, w)) + "\n" for w in weights))
    f.write("".join(" ".join(map(str, x)) + "\n" for part in lists for x in part))
scipy.sparse.save_npz("H.npz", full)
np.savetxt("H.csv", H, fmt="%d", delimiter=",")
np.savetxt("K.txt", K.toarray())
expected = test.run("gf2 rank have.h5:/bits_u2 --quiet", 1, 0).out.strip()
for kind in ("i8", "i4", "f8"):
    row(f"gf2 rank have.h5:/bits_{kind} --quiet", 0, printed=expected)
row("gf2 rank have.h5:/parity --quiet", 0, printed=expected)
for file in ("H.mtx", "H.sms", "H.alist", "H.npz", "H.csv"):
    row(f"gf2 rank {file}", 3, f"not an HDF5 file, or a damaged one; {file}; convert it first: terrace convert {file} H.h5")
    row(f"convert {file} H.h5 --force", 0, printed=f"converted {file} to H.h5 in ~ s")
    row("gf2 rank H.h5 --quiet", 0, printed=expected)
for name, said in (("csc", ""), ("coo", ""), ("lower", "--uplo lower"), ("matlab", ""), ("shape_dataset", "")):
    row(f"cg have.h5:/{name} --rhs :/b -o z.h5 --force {said}", 0, printed="problem   sparse matrix, n = 9, 1 right-hand side; conjugate-gradients (classic) on the CPU, 1 rank")
row("cg have.h5:/lower --rhs :/b -o z.h5 --force", 3, "the matrix is not symmetric: A[0, 1] = 0, A[1, 0] = -1; have.h5:/lower; store a symmetric matrix, or say --uplo lower or upper of one triangle")
row("cg have.h5:/one --rhs :/b -o z.h5 --force", 0, "warning: pointers and indices that count from one recognised; have.h5:/one; subtract one from all of them, so that the file says what others expect")
row("dense invert have.h5:/complex -o z.h5 --force", 3, "wrong type: not real numbers (complex ones are not supported); have.h5:/complex; store float64, float32 or integers")
row("cg have.h5:/complex --rhs :/b -o z.h5 --force", 3, "wrong type: not real numbers (complex ones are not supported); have.h5:/complex; store float64, float32 or integers")
row("dense invert have.h5:/text -o z.h5 --force", 3, has=("wrong type",))
row("band factor have.h5:/band -o z.h5 --force", 3, "attribute format is missing; have.h5:/band; store format = \"band\", or add --format band")
row("band factor have.h5:/band -o z.h5 --format band --force", 0)
row("cg have.h5:/band --rhs :/b -o z.h5 --force", 3, "the matrix is 2 x 9, not square; have.h5:/band; conjugate gradients need a symmetric matrix (of a band, add --format band)")
row("cg have.h5:/band --rhs :/b -o z.h5 --force --format band", 0)
row("band solve have.h5:/upper --rhs :/b -o z.h5 --force", 0,
    "warning: SciPy's upper form recognised: the first column begins with zeros; have.h5:/upper; set the attribute uplo = \"upper\" (or \"lower\"), or add --uplo")
row("band solve have.h5:/csc --rhs :/b -o z.h5 --force", 3, "a sparse matrix, which only cg, gf2 and convert read; have.h5:/csc; name a dataset that holds a band matrix")
row("dense invert have.h5:bits_i8 -o z2.h5", 3, "cannot open the file: No such file or directory; have.h5:bits_i8; did you mean have.h5:/bits_i8")
row("dense invert have.xyz -o z2.h5", 3, has=("check its name",))
row("convert have.mat z2.h5", 2, "a MATLAB file is not converted; have.mat; save it with -v7.3: such files are read as they are, as in FILE.mat:/A")
row("convert have.xyz z2.h5", 2, "unknown extension '.xyz'; have.xyz; use .txt, .dat, .csv, .mtx, .sms, .alist, .npy, .npz, .h5 or .hdf5")
row("convert K.txt K.h5", 0, printed="converted K.txt to K.h5 in ~ s")
with h5py.File("K.h5") as f:
    check("np.savetxt", np.array_equal(f["A"][:], K.toarray()), "not the same numbers")
with h5py.File("several.h5", "w") as f:  # of several the square one, then that of the usual name
    f["A"], f["B"], f["spd"], f["b"] = M.toarray(), np.ones((30, 3)), M.toarray() + np.eye(30), np.ones(30)
row("dense solve several.h5 --rhs :/b -o z.h5 --force", 0)
with h5py.File("z.h5") as f:
    check("/A is preferred", f["terrace"].attrs["input"].endswith("several.h5:/A"), f["terrace"].attrs["input"])
row("cg several.h5:/A --rhs :/b -o c_A.h5", 0)
row("cg several.h5:/A --rhs :/b --x0 c_A.h5 -o z.h5 --force", 0, has=("converged (rtol) after 0 iterations\n", "x0") [:1])  # its own output: x
plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
plist.set_chunk((9, 9))
plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
with h5py.File("packed.h5", "w") as f:
    h5py.h5d.create(f.id, b"A", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((9, 9)), plist).write_direct_chunk((0, 0), b"x" * 100)
row("dense invert packed.h5:/A -o z.h5 --force", 3, has=("32015", "HDF5_PLUGIN_PATH"))

# --- plans: the same words in the same column --------------------------------------------------------------
for command, problem in (("gf2 rank gf2.h5:/A", "70 x 70 bits"), ("band factor band.h5:/A", "band matrix, n = 300, half-bandwidth 5"),
                         ("dense invert dense.h5:/A", "dense matrix, n = 30"), ("dense factor several.h5:/spd --assume spd", "symmetric positive definite matrix, n = 30"),
                         ("cg cg.h5:/A --rhs :/b", "sparse matrix, n = 400, 1 right-hand side"), ("cg band.h5:/A --rhs :/b", "band matrix, n = 300, 1 right-hand side"),
                         ("band solve band.h5:/A --rhs :/b --method two-ends", "band matrix, n = 300, half-bandwidth 5, 1 right-hand side"),
                         ("band solve band.h5:/A --rhs :/b --method streamed", "band matrix, n = 300, half-bandwidth 5, 1 right-hand side")):
    for ranks in (1, 2):
        if "streamed" in command and ranks > 1:
            continue
        done = row(f"{command} --plan", 0, printed="problem    " + problem, ranks=ranks)
        wrong = [line for line in done.out.splitlines() if not re.match(r"(?:[a-z]{2,9} +| {11})\S", line) or line[10] != " " or line[11] == " "]
        check(f"{command} --plan on {ranks}", not wrong and "memory     " in done.out and "\nmethod     " in done.out, f"{wrong}\n{done.out}")
        check(f"{command} --plan on {ranks}", not re.search(r"\b1 (?:ranks|threads|hosts|right-hand sides)|at condition \de-|\b0 right-hand", done.out), done.out)

# --- plans and reports of generate -----------------------------------------------------------------------
row("generate dense-random --n 1000 --plan", 0, printed="generate dense-random of order 1000: ~ MiB on disk; made in pieces of at most ~ MiB per rank")

# --- pages and scripts of the shells -------------------------------------------------------------
os.mkdir("pages")
row("--pages pages", 0)
pages = set(os.listdir("pages"))
check("pages", {"terrace.1", "terrace-gf2-rref.1", "terrace-cg.1", "terrace", "_terrace"} <= pages and len(pages) == len(commands) + len({c.split()[0] for c in commands if " " in c}) + 1 + 2, str(pages))
if os.path.exists("/usr/bin/man"):
    for page in sorted(pages):
        if page.endswith(".1"):
            done = subprocess.run(["man", "--warnings", "-l", "pages/" + page], capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            check(page, done.returncode == 0 and "SYNOPSIS" in done.stdout and not done.stderr, done.stderr)


def completed(*words):
    script = f'source pages/terrace; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _terrace; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True).stdout.split()


check("bash", completed("terrace", "g") == ["gf2", "generate"], str(completed("terrace", "g")))
check("bash", completed("terrace", "gf2", "r") == ["rref", "rank"], str(completed("terrace", "gf2", "r")))
check("bash", completed("terrace", "dense", "invert", "A.h5", "--prec") == ["--precision"], str(completed("terrace", "dense", "invert", "A.h5", "--prec")))
check("bash", completed("terrace", "dense", "invert", "A.h5", "--precision", "") == ["fp64", "emulated"], str(completed("terrace", "dense", "invert", "A.h5", "--precision", "")))
check("bash", completed("terrace", "band", "solve", "--method", "t") == ["tile-columns", "two-ends"], str(completed("terrace", "band", "solve", "--method", "t")))
check("zsh", row("--completion zsh", 0, printed="#compdef terrace").out == open("pages/_terrace").read())

# --- the front page ------------------------------------------------------------------------------
with open(os.path.join(ROOT, "README.md")) as f:
    front = f.read()
with open(os.path.join(ROOT, "jobs/quickstart.sh")) as f:
    check("jobs/quickstart.sh", "export PATH=$build" in f.read().split("row \"cg")[1], "it does not name the path")
plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PRTE_", "PMIX_"))}
if os.geteuid() == 0:  # in a container
    done = subprocess.run(test.words("info", 2), capture_output=True, text=True, env=plain)
    check("mpirun as root", done.returncode != 0 and "root" in done.stderr, done.stderr)
    plain.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
ranks = os.cpu_count() + 2
for option, good in ((["--oversubscribe"], True), ([], False)):
    done = subprocess.run(["mpirun", *option, *test.words("gf2 rank gf2.h5:/A", ranks)[1:]], capture_output=True, text=True, env=plain)
    check(f"mpirun {option} -n {ranks}", (done.returncode == 0) == good and ("rank 70" in done.stdout) == good, done.stderr[:300])
for option, lines in (["-q"], 1), ([], 5):
    done = subprocess.run(["mpirun", *option, *test.words("gf2 rank none.h5", 2)[1:]], capture_output=True, text=True, env=plain)
    written = [line for line in done.stderr.splitlines() if line.strip()]
    check(f"mpirun {option}", done.returncode == 3 and (len(written) == 1 if lines == 1 else len(written) >= lines) and written[0].startswith("terrace: cannot open"), done.stderr[:600])
for words in ("export PATH=", "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "--oversubscribe", "mpirun -q"):
    check("README.md", words in front, f"no {words}")
check("README.md", front.count("\n") < 150 and all(len(line) <= 160 for line in front.splitlines() if not line.startswith(("|", "["))), "too long")

print(f"{test.runs} runs")
test.finish()
