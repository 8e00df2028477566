#!/usr/bin/env python3
"""The model behind --plan: held against every measured point on one, two and four GPUs, then asked for 8, 64 and 512.

scaling_model.py TERRACE [--gpu h200] [--output results/scaling.md] [--plot results/scaling.svg]

Needs no GPU, but a terrace that was built with CUDA: the model is the program's own (src/program/schedule.cpp, predict.cpp),
its constants those of src/program/machines.cpp. Needs h5py; drawing needs matplotlib.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace

import h5py

import plot


@dataclass
class Problem:
    """What terrace is asked to plan; `part`: the figure of its plan that benchmarks measure."""
    family: str
    name: str
    shape: dict  # of the files
    words: str
    part: str = "solve"


def bits(what, n, columns=0):
    words = {"rref": "gf2 rref in.h5:/A", "echelon form": "gf2 rref in.h5:/A --echelon", "inverse": "gf2 inverse in.h5:/A"}[what]
    name = f"{what}, {n:,}" + (f" x {columns:,}" if columns else "")
    return Problem("GF(2)", name, {"bits": (n, columns or n)}, words)


def inverse(n, more="", part="solve"):
    return Problem("dense inverse", f"inverse, n = {n:,}", {"dense": n}, f"dense invert in.h5:/A {more}", part)


def emulated(n, moduli=14):
    return replace(inverse(n, f"--precision emulated --moduli {moduli}"), name=f"emulated inverse, {moduli} moduli, n = {n:,}")


def lu(n, method="lu", part="solve"):
    return Problem("dense solve", f"{'LU' if method == 'lu' else 'Gauss-Jordan'} solve, n = {n:,}", {"dense": n},
                   f"dense solve in.h5:/A --rhs :/b --method {method}", part)


def mixed(n):
    return replace(lu(n, "lu --precision mixed"), name=f"LU solve, mixed, n = {n:,}")


def band(n, m, method="auto", more=""):
    return Problem("band", f"{'factor' if method == 'auto' else method}, n = {n:,}, m = {m:,}", {"band": (n, m)},
                   f"band solve in.h5:/A --rhs :/b --method {method} {more}", "elimination")


def cg_dense(n):
    return Problem("cg", f"dense, n = {n:,}", {"dense": n}, "cg in.h5:/A --rhs :/b", "iteration")


def cg_band(n, m):
    return Problem("cg", f"band, n = {n:,}, m = {m}", {"band": (n, m)}, "cg in.h5:/A --rhs :/b", "iteration")


def cg_csr(points, stencil):
    return Problem("cg", f"CSR, {stencil}-point, {points}^3", {"csr": (points**3, stencil * points**3)}, "cg in.h5:/A --rhs :/b", "iteration")


LATE, EMULATED, TODAY, AGAIN, OLDER, BAND, DENSE, CG, HOUR, PEERS, FOUR = (
    "dense.md, a column late", "dense.md, emulated", "gf2.md, several GPUs", "gf2.md, dense.md, four GPUs", "gf2.md, panels of before", "band.md", "dense.md", "cg.md", "one hour, two GPUs", "messages.md", "messages.md, four")
# (problem, where it was measured, {GPUs: seconds}). "one hour": one and two GPUs of one host, 2026-11-23, build c13fe00. Peer memory: PEERS
# and FOUR; before, several GPUs went by NCCL. OLDER: of before a panel was one launch; the update binds there.
MEASURED = [
    (bits("rref", 4096), TODAY, {1: 0.00122, 2: 0.00139}), (bits("rref", 8192), TODAY, {1: 0.00171, 2: 0.00190}),
    (bits("rref", 16384), TODAY, {1: 0.00402, 2: 0.00414}), (bits("rref", 24576), TODAY, {1: 0.00655, 2: 0.00625}),
    (bits("rref", 32768), TODAY, {1: 0.00863, 2: 0.00803}), (bits("rref", 65536), TODAY, {1: 0.0325, 2: 0.0214}),
    (bits("rref", 98304), TODAY, {2: 0.0547}), (bits("rref", 131072), TODAY, {1: 0.2235, 2: 0.121}), (bits("echelon form", 262144), TODAY, {1: 1.243, 2: 0.662}),
    (inverse(1000), LATE, {1: 0.00173, 2: 0.00212}), (inverse(2000), LATE, {1: 0.00334, 2: 0.00440}), (inverse(3000), LATE, {1: 0.00537, 2: 0.00702}),
    (inverse(4096), LATE, {1: 0.00794, 2: 0.00995}), (inverse(8192), LATE, {1: 0.0322, 2: 0.0296}), (inverse(12000), LATE, {1: 0.0949, 2: 0.0644}),
    (inverse(16384), LATE, {1: 0.1916, 2: 0.1244}), (inverse(32768), LATE, {1: 1.466, 2: 0.849}),
    (lu(1000), LATE, {1: 0.00193, 2: 0.00229}), (lu(2000), LATE, {1: 0.00377, 2: 0.00429}), (lu(3000), LATE, {1: 0.00559, 2: 0.00657}),
    (lu(4096), LATE, {1: 0.00795, 2: 0.00962}), (lu(8192), LATE, {1: 0.0199, 2: 0.0227}), (lu(12000), LATE, {1: 0.0416, 2: 0.0412}),
    (lu(16384), LATE, {1: 0.0816, 2: 0.0689}), (lu(32768), LATE, {1: 0.522, 2: 0.332}),
    (mixed(8192), LATE, {1: 0.0247}), (mixed(16384), LATE, {1: 0.0731}), (mixed(32768), LATE, {1: 0.298}), (mixed(65536), LATE, {1: 1.66}),
    (mixed(16384), DENSE, {2: 0.123}), (mixed(32768), DENSE, {2: 0.388}),
    (bits("rref", 4096), AGAIN, {4: 0.00139}), (bits("rref", 8192), AGAIN, {4: 0.00194}), (bits("rref", 16384), AGAIN, {4: 0.00419}),
    (bits("rref", 32768), AGAIN, {4: 0.00796}), (bits("rref", 65536), AGAIN, {4: 0.0183}), (bits("rref", 131072), AGAIN, {4: 0.0678}),
    (bits("rref", 262144), AGAIN, {1: 1.831, 2: 0.954, 4: 0.483}), (bits("echelon form", 262144), AGAIN, {1: 1.268, 2: 0.669, 4: 0.346}),
    (inverse(12000), AGAIN, {4: 0.0615}), (inverse(16384), AGAIN, {4: 0.1037}), (inverse(32768), AGAIN, {4: 0.546}),
    (lu(12000), AGAIN, {4: 0.0452}), (lu(16384), AGAIN, {4: 0.0708}), (lu(32768), AGAIN, {4: 0.259}),
    (bits("rref", 262144), OLDER, {1: 1.84}), (bits("rref", 131072, 262144), OLDER, {1: 0.731}),
    (bits("echelon form", 524288), OLDER, {2: 5.24, 4: 2.85}), (bits("echelon form", 1048576), OLDER, {4: 21.1}),
    (bits("inverse", 131072), OLDER, {1: 0.508}),
    (inverse(65536), DENSE, {1: 11.4}), (inverse(65536, "--block 1024"), DENSE, {2: 5.99}),
    (inverse(131072), DENSE, {1: 85.3}), (inverse(32768), HOUR, {1: 1.47}),
    (inverse(32768, part="first solve"), HOUR, {1: 1.52}),
    (lu(65536), DENSE, {1: 3.97}),
    (emulated(16384), EMULATED, {1: 0.186, 2: 0.182}), (emulated(32768), EMULATED, {1: 1.21, 2: 0.823}), (emulated(65536), EMULATED, {1: 8.29, 2: 5.06}),
    (emulated(16384, 12), EMULATED, {1: 0.172, 2: 0.176}), (emulated(32768, 12), EMULATED, {1: 1.09, 2: 0.756}), (emulated(65536, 12), EMULATED, {1: 7.43, 2: 4.60}),
    (lu(16384, "gauss-jordan"), DENSE, {1: 0.114}), (lu(32768, "gauss-jordan"), DENSE, {1: 0.768}),
    (lu(16384, "gauss-jordan", "first solve"), HOUR, {1: 0.192}), (lu(32768, "gauss-jordan", "first solve"), HOUR, {1: 0.80}),
    (band(4_000_000, 64), BAND, {1: 0.00905, 2: 0.00570}), (band(4_000_000, 128), BAND, {1: 0.0136, 2: 0.00895}),
    (band(1_000_000, 300), BAND, {1: 0.0187, 2: 0.0114}), (band(1_000_000, 600), BAND, {1: 0.0453, 2: 0.0249}),
    (band(1_000_000, 800), BAND, {1: 0.0664, 2: 0.0374}), (band(1_000_000, 1000), BAND, {1: 0.0858, 2: 0.0514}),
    (band(1_000_000, 1200, "partition", "--parts 6"), BAND, {2: 0.0647}), (band(1_000_000, 1400), BAND, {1: 0.0908, 2: 0.0875}),
    (band(1_000_000, 1100), BAND, {1: 0.0858}), (band(1_000_000, 2000), BAND, {1: 0.118, 2: 0.0952}),
    (band(400_000, 4000), BAND, {1: 0.149, 2: 0.0786}), (band(400_000, 8000), BAND, {1: 0.578, 2: 0.293}), (band(200_000, 32000), BAND, {1: 4.21, 2: 2.28}),
    (band(400_000, 8000, "tile-columns"), BAND, {4: 0.578}), (band(200_000, 32000, "tile-columns"), BAND, {4: 1.94}),
    (cg_dense(3072), CG, {1: 8.9e-6}), (cg_dense(4096), CG, {1: 30.1e-6, 2: 18.7e-6}), (cg_dense(8192), CG, {1: 74.0e-6, 2: 46.0e-6}), (cg_dense(16384), CG, {1: 251.8e-6, 2: 137.2e-6}),
    (cg_dense(65536), CG, {1: 3.89e-3, 2: 1.98e-3}),
    (cg_dense(100_000), CG, {1: 9.07e-3, 2: 4.56e-3}), (cg_dense(180_000), CG, {1: 29.4e-3}), (cg_band(40_000_000, 16), CG, {1: 2.30e-3}),
    (cg_band(20_000_000, 64), CG, {1: 3.15e-3}), (cg_band(4_000_000, 100), CG, {1: 0.985e-3}), (cg_band(8_000_000, 256), CG, {1: 4.26e-3}),
    (cg_csr(256, 27), CG, {1: 1.79e-3, 2: 0.955e-3}), (cg_csr(256, 7), CG, {1: 0.786e-3, 2: 0.446e-3}), (cg_csr(47, 27), CG, {1: 25e-6}),
    (cg_csr(256, 7), PEERS, {2: 438e-6}),
    (inverse(32768), FOUR, {1: 1.453}), (lu(32768), FOUR, {1: 0.494}), (band(1_000_000, 300), FOUR, {1: 0.0186, 2: 0.0117, 4: 0.01005}),
    (band(400_000, 1000), FOUR, {1: 0.0333, 2: 0.0219, 4: 0.0167}),
    (cg_dense(8192), FOUR, {4: 41.5e-6}), (cg_dense(30000), FOUR, {1: 856e-6, 2: 443e-6, 4: 241e-6}),
    (cg_csr(256, 7), FOUR, {1: 673e-6, 2: 387e-6, 4: 216e-6}),
]

COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
# Asked for on more GPUs: (line of the plot, problem).
ASKED = [
    ("GF(2) echelon 2^17", bits("echelon form", 131072)), ("GF(2) echelon 2^20", bits("echelon form", 1048576)),
    ("GF(2) rref 2^20", bits("rref", 1048576)), ("inverse 32,768", inverse(32768)), ("inverse 131,072", inverse(131072)),
    ("inverse 524,288", inverse(524288)), ("LU 131,072", lu(131072)), ("LU 524,288", lu(524288)),
    ("band m = 128, parts", band(16_000_000, 128)), ("band m = 1,000, parts", band(8_000_000, 1000)), ("band m = 2,000, ends", band(1_000_000, 2000)),
    ("band m = 8,000, tiles", band(1_000_000, 8000, "tile-columns")), ("band m = 32,000, tiles", band(1_000_000, 32000, "tile-columns")),
    ("CG dense 65,536", cg_dense(65536)), ("CG dense 524,288", cg_dense(524288)), ("CG CSR 7-point 256^3", cg_csr(256, 7)),
    ("CG CSR 7-point 1,000^3", cg_csr(1000, 7)), ("CG band 64 x 10^8", cg_band(100_000_000, 64)),
]


class Model:
    """Plans by the program, of files that have a shape and no data."""

    def __init__(self, terrace, gpu):
        self.terrace, self.gpu = os.path.abspath(terrace), gpu
        self.folder = tempfile.TemporaryDirectory(prefix="terrace-scaling-")
        self.shape, self.known = None, {}

    def make(self, shape):
        if shape == self.shape:
            return
        self.shape = shape
        (kind, size), = shape.items()
        with h5py.File(os.path.join(self.folder.name, "in.h5"), "w") as f:
            n = size if kind == "dense" else size[0]
            if kind == "bits":
                a = f.create_dataset("A", (n, -(-size[1] // 64)), "u8")
                a.attrs["columns"], a.attrs["format"] = size[1], "bits"
            elif kind == "dense":
                f.create_dataset("A", (n, n), "f8")
            elif kind == "band":
                f.create_dataset("A", (size[1] + 1, n), "f8").attrs["format"] = "band"
            else:
                a = f.create_group("A")
                a.attrs["encoding-type"], a.attrs["shape"] = "csr_matrix", (n, n)
                a.create_dataset("data", (size[1],), "f8")
                a.create_dataset("indices", (size[1],), "i8")
                a.create_dataset("indptr", (n + 1,), "i8")
            if kind != "bits":
                f.create_dataset("b", (n,), "f8")

    def plan(self, problem, ranks, peers=True):
        """`peers`: by peer memory where GPUs share a host; else by NCCL."""
        key = (problem.name, problem.words, str(problem.shape), ranks, peers)
        if key not in self.known:
            self.make(problem.shape)
            command = [self.terrace] + problem.words.split() + ["--plan", "--ranks", str(ranks), "--gpu", self.gpu, "--json", "-o", "out.h5"]
            done = subprocess.run(command, cwd=self.folder.name, capture_output=True, text=True,
                                  env={**os.environ, "TERRACE_PROFILE": "none.json", "TERRACE_PEER_MEMORY": str(int(peers))})
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
            self.known[key] = json.loads(done.stdout)["result"]["plan"]
        return self.known[key]

    def seconds(self, problem, ranks, peers=True):
        plan = self.plan(problem, ranks, peers)
        if problem.part == "iteration":
            return plan["seconds"]["iteration"]
        if problem.part == "first solve":
            return plan["seconds"]["solve"]
        if problem.part == "elimination":
            return plan["solve_parts"]["elimination"]
        return plan["seconds"]["solve"] - plan["solve_parts"]["first_use"]  # a benchmark has warmed up


def parts_of(plan, problem):
    """Seconds that the parts of a solve take, each alone."""
    parts = plan["solve_parts"]
    return {"diagonal blocks" if problem.family == "band" else "panels": parts["choose"] + parts["chain"], "sharing": parts["share"],
            "updates": parts["update_next"] + parts["update_rest"] + parts["updates"]}


def design(problem, binds):
    """What would move it: the designs of issue 26, and what the model asks for itself."""
    if problem.family == "band" and "tile-columns" not in problem.words:
        return "a tree of separators in place of one chain on rank 0; the chain in registers of a cluster of two (7 us for 64 columns)"
    if problem.family == "band":
        return "tiles stored to the peer as they are ready (1.3 us), the one-launch kernel across GPUs: no broadcast and no launches per tile column"
    if problem.family == "cg":
        return "sums of three doubles by peer stores (1.8 us on a host); one reduction per iteration, beside the product, between hosts"
    return {"panels": "a shorter step of the panel's cluster: its own update once, not four times" if problem.family == "GF(2)" else
            "narrower panels; a tree, or one rank by turns (1.2 us per column), in place of a final that grows with the ranks",
            "sharing": "pivot rows in strips beside the update; blocks in two dimensions: n b / sqrt(P) numbers for each rank, not n b",
            "updates": "wider panels, once their chain is shorter"}[binds]


def figure(seconds):
    return plot.digits(seconds) if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def held(model, out):
    """The table of measured points; how many are within 15 %."""
    out.append("| problem | GPUs | measured, s | model, s | error | from |\n| --- | --- | --- | --- | --- | --- |")
    errors = []
    for problem, where, points in MEASURED:
        for ranks, measured in points.items():
            said = model.seconds(problem, ranks, where in (PEERS, FOUR))
            error = said / measured - 1
            errors.append((problem.family, ranks, error))
            text = f"{100 * error:+.0f} %"
            name = problem.name + (", first of its process" if problem.part == "first solve" else "")
            out.append(f"| {name} | {ranks} | {figure(measured)} | {figure(said)} | {text if abs(error) <= 0.15 else f'**{text}**'} | {where} |")
    return errors


def efficiencies(model, problem):
    one = model.seconds(problem, 1)
    return {ranks: one / (ranks * model.seconds(problem, ranks)) for ranks in COUNTS}


def asked(model, out):
    """The table of many GPUs, and the plot's lines."""
    out.append("| problem | 1 GPU, s | 8 | 64 | 512 | fits from | below half from | binds there | the rest alone | what would move it |\n" + "| --- " * 10 + "|")
    lines = {}
    for label, problem in ASKED:
        of = efficiencies(model, problem)
        lines[label] = (problem.family, of)
        last = next((ranks for ranks in COUNTS if of[ranks] < 0.5), None)
        fits = next((ranks for ranks in COUNTS if model.plan(problem, ranks)["fits"]), "more")
        cells = [figure(model.seconds(problem, 1))] + [f"{figure(model.seconds(problem, r))} ({100 * of[r]:.0f} %)" for r in (8, 64, 512)]
        binds = rest = ""
        if last and problem.part == "iteration":
            binds = "messages"
        elif last:
            parts = parts_of(model.plan(problem, last), problem)
            binds = max(parts, key=parts.get)
            rest = f"{figure(sum(parts.values()) - parts[binds])} of {figure(model.seconds(problem, last))}"
        out.append(f"| {label} | {' | '.join(cells)} | {fits} | {last or 'not to 512'} | {binds} | {rest} | {design(problem, binds) if last else ''} |")
    return lines


def widths(model, out):
    """Where another --block than the default would do better."""
    out.append("| problem | GPUs | default, s | best of 128 to 4,096 | s |\n| --- | --- | --- | --- | --- |")
    for label, problem in ASKED:
        if problem.family not in ("GF(2)", "dense inverse", "dense solve"):
            continue
        for ranks in (8, 64, 512):
            plain = model.seconds(problem, ranks)
            tried = {b: model.seconds(replace(problem, words=f"{problem.words} --block {b}"), ranks) for b in (128, 256, 512, 1024, 2048, 4096)}
            best = min(tried, key=tried.get)
            if tried[best] < 0.9 * plain:
                out.append(f"| {label} | {ranks} | {figure(plain)} | {best:,} | {figure(tried[best])} |")


def draw(path, lines, gpu):
    colours = ["#1f5fbf", "#c23b22", "#2f855a", "#8a4fbf", "#b7791f", "#444444"]
    panels = []
    for family in dict.fromkeys(family for family, _ in lines.values()):
        own = [(label, of) for label, (kind, of) in lines.items() if kind == family]
        panels.append(plot.Panel(family, [plot.Line(label, {r: 100 * e for r, e in of.items()}, colours[i % 6]) for i, (label, of) in enumerate(own)],
                                 x="GPUs", y="efficiency against one GPU, %", log="x", ticks=COUNTS, level=(50, "half")))
    return plot.draw(path, f"Efficiency by the model behind --plan, {gpu}, 8 GPUs per host, NDR InfiniBand", panels, across=3)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("terrace")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--output", default=os.path.join(here, "results", "scaling.md"), help="its tables between the marks are replaced")
    parser.add_argument("--plot", default=os.path.join(here, "results", "scaling.svg"))
    options = parser.parse_args()
    model = Model(options.terrace, options.gpu)
    measured, predicted, blocks, constants = [], [], [], ["| constant | value | source |\n| --- | --- | --- |"]
    errors = held(model, measured)
    lines = asked(model, predicted)
    widths(model, blocks)
    for name, c in model.plan(ASKED[0][1], 1)["machine"]["constants"].items():
        constants.append(f"| {name} | {c['value']:.3g} {c['unit']} | {c['source']} |")
    summary = ["| family | points | within 8 % | within 15 % | largest |\n| --- | --- | --- | --- | --- |"]
    for family in dict.fromkeys(f for f, _, _ in errors):
        own = [e for f, _, e in errors if f == family]
        summary.append(f"| {family} | {len(own)} | {sum(abs(e) <= 0.08 for e in own)} | {sum(abs(e) <= 0.15 for e in own)} | "
                       f"{100 * max(own, key=abs):+.0f} % |")
    tables = {"summary": summary, "measured": measured, "asked": predicted, "widths": blocks, "constants": constants}
    if os.path.exists(options.output):
        with open(options.output, encoding="utf-8") as f:
            text = f.read()
        for name, table in tables.items():
            before, rest = text.split(f"<!-- {name} -->\n", 1)
            text = before + f"<!-- {name} -->\n" + "\n".join(table) + "\n" + rest[rest.index(f"<!-- end of {name} -->"):]
        with open(options.output, "w", encoding="utf-8") as f:
            f.write(text)
    else:
        for table in tables.values():
            print("\n".join(table) + "\n")
    for line in summary[1:]:
        print(line)
    print(f"{datetime.date.today()}: {sum(abs(e) <= 0.15 for _, _, e in errors)} of {len(errors)} points within 15 %")
    draw(options.plot, lines, options.gpu.upper())


if __name__ == "__main__":
    main()
