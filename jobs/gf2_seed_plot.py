#!/usr/bin/env python3
"""Table and figure of jobs/gf2_seed.sh and jobs/gf2_study.py.

    gf2_seed_plot.py MEASURED.csv 2013.csv OUTPUT [--relative METHOD] [--study STUDY.csv]

Reads lines source,method,transfers,N,seconds; writes OUTPUT.md and OUTPUT.svg: time of every method
against N, divided by that of the fastest at this N in the same panel, or by that of METHOD. With --study the page goes on with
what gf2_study.py measured beside the table. The figure needs matplotlib.
"""
import argparse
import math

from plot import GREY, Line, Panel, digits, draw, read

COLOURS = {
    "M4RI m4ri": "#555555", "M4RI pluq": "#a07030", "M4RI all cores": "#000000", "CPU all cores": "#2a9d4a",
    "GPU Gauss": "#d62728", "GPU k = 1": "#f29b9b", "GPU k = 4": "#ff8c1a", "GPU k = 8": "#b8a000", "GPU k = 14": "#8e44ad",
    "GPU block form": "#1f5fbf",
}


def times_of(path):
    """{(method, transfers): {N: seconds}} and the comment lines of a CSV file."""
    times = {}
    rows, notes = read(path)
    for row in rows:
        seconds = float(row["seconds"])
        if seconds > 0:
            times.setdefault((row["method"], row["transfers"]), {})[int(row["N"])] = seconds
    return times, notes


def ordered(times):
    known = list(COLOURS)
    return sorted(times, key=lambda key: (known.index(key[0]) if key[0] in known else len(known), key))


def table(keys, times, sizes):
    head = "| N | " + " | ".join(method for method, _ in keys) + " |"
    lines = [head, "|---" * (len(keys) + 1) + "|"]
    for n in sizes:
        lines.append(f"| {n} | " + " | ".join(digits(times[key].get(n)) for key in keys) + " |")
    return lines


COLUMNS = [
    ("M4RI m4ri, M4RI pluq", "M4RI's two methods on one core"),
    ("M4RI all cores", "M4RI's own choice, built with OpenMP, on all cores"),
    ("CPU all cores", "terrace's block form on the CPU, all cores"),
    ("GPU Gauss", "column by column, `--method columns`: a search and a pass of subtraction a column, as in 2013"),
    ("GPU k = 1, 4, 8, 14", "terrace's panels with tables of 2^k combinations, `--method tables --k K`; k = 1 is no "
     "Gauss: its panels have up to 512 columns, and only its tables are trivial"),
    ("GPU block form", "terrace's default: panels, products by binary tensor cores"),
]


def fit(points, law):
    """a, c >= 0 of a n + c law(n) with the least relative error in the mean square, and its root."""
    def error(a, c):
        return math.sqrt(sum(((a * n + c * law(n)) / t - 1) ** 2 for n, t in points) / len(points))

    us, vs = [n / t for n, t in points], [law(n) / t for n, t in points]
    uu, uv, vv = sum(u * u for u in us), sum(u * v for u, v in zip(us, vs)), sum(v * v for v in vs)
    u1, v1 = sum(us), sum(vs)
    tried = [(0.0, v1 / vv), (u1 / uu, 0.0)]
    if abs(uu * vv - uv * uv) > 1e-12 * uu * vv:
        both = ((u1 * vv - v1 * uv) / (uu * vv - uv * uv), (v1 * uu - u1 * uv) / (uu * vv - uv * uv))
        if min(both) >= 0:
            tried.append(both)
    return min(((a, c, error(a, c)) for a, c in tried), key=lambda found: found[2])


def growth_table(times):
    lines = ["| method | sizes | exponent at the end | a n + c n^3: a in us | error | a n + c n^3 / log n: a in us | error "
             "| nearer to |", "|---" * 8 + "|"]
    for key in ordered(times):
        points = [(2.0 ** n, t) for n, t in sorted(times[key].items())]
        if len(points) < 4:
            continue
        (a1, _, cube), (a2, _, four) = fit(points, lambda n: n ** 3), fit(points, lambda n: n ** 3 / math.log2(n))
        slope = math.log2(points[-1][1] / points[-2][1])
        nearer = "n^3" if cube < four else "n^3 / log n"
        name = key[0] + (", transfers" if key[1] == "yes" else "")
        lines.append(f"| {name} | {len(points)} | {slope:.2f} | {1e6 * a1:.3g} | {100 * cube:.0f} % | {1e6 * a2:.3g} "
                     f"| {100 * four:.0f} % | {nearer} |")
    return lines if len(lines) > 2 else []


TITLES = {
    "search": "Whole eliminations column by column, by threads of the pivot search (seconds)",
    "paths": "The pivot row's path to the subtraction (seconds of whole eliminations)",
    "rows": "Rows swapped in memory, or behind an index array (seconds of whole eliminations)",
    "codes": "Orders of codes that tables are built in (seconds of an update of n x n bits by 512 rows)",
    "panels": "Pivots of a panel chosen by the device or by the host (seconds)",
    "candidates": "l: rows tried first for a panel's pivots, times its columns (seconds)",
    "energy": "Energy of one matrix", "calibrate": "What calibration gains",
}
TEXTS = {
    "search": "Each elimination's rank is certified. In 2013 many threads gained two orders of magnitude below a density "
              "of 1/1000, and cost up to 10 % on dense matrices.",
    "paths": "In 2013 no essential difference. Constant memory takes one more copy per column, and serves the lanes of a "
             "warp one after the other where they read different words.",
    "codes": "Bits compared with the default's. In 2013 a stored half table and two passes were 10 to 40 % faster than one "
             "pass. `standard`: the solver's own, whose codes are known when the kernel is compiled.",
    "panels": "In 2013 the host was up to 30 % faster for n <= 2^13.",
    "candidates": "l = 3 in 2013. The panel's width is `--block`; default: the width and 64 rows more.",
    "energy": "Whole boards by NVML, processor packages by RAPL; `null`: no counter, with its reason.",
    "calibrate": "`default`: the shape chosen by hand; `chosen`: the one that serves all matrices best; `fastest`: the best "
                 "for this one. In 2013: 1.5 to 2 times.",
}


def study_lines(path):
    """A table a study: settings and sizes down, variants across; left out: -."""
    rows, notes = read(path)
    text = ["## Studies", ""] + [note + "  " for note in notes] + [""]
    for study, title in TITLES.items():
        mine = [row for row in rows if row["study"] == study]
        if not mine:
            continue
        text += ["### " + title, ""] + ([TEXTS[study], ""] if study in TEXTS else [])
        if study in ("energy", "calibrate"):
            text += ["| what | of | value | unit | |", "|---" * 5 + "|"]
            for row in mine:
                value = digits(float(row["value"])) if row["value"] else "null"
                remark = row["check"] if not row["value"] else ""
                what = row["variant"] + ("" if study == "calibrate" else f", n = {int(row['n']):,}")
                text.append(f"| {what} | {row['setting'].replace('_', ' ')} | {value} | {row['unit']} | {remark} |")
            text.append("")
            continue
        variants = list(dict.fromkeys(row["variant"] for row in mine))
        text += ["| n | setting | " + " | ".join(variants) + " |", "|---" * (len(variants) + 2) + "|"]
        for n, setting in dict.fromkeys((row["n"], row["setting"]) for row in mine):
            values = {row["variant"]: row["value"] for row in mine if (row["n"], row["setting"]) == (n, setting)}
            cells = [digits(float(values[v])) if values.get(v) else "-" for v in variants]
            text.append(f"| {int(n):,} | {setting} | " + " | ".join(cells) + " |")
        text.append("")
    return text


def write_markdown(path, measured, notes, old, old_notes, study=None):
    sizes = sorted({n for times in measured.values() for n in times})
    lines = ["Seconds to the echelon form of a random square bit matrix of order 2^N.", ""]
    lines += [note + "  " for note in notes] + [""]
    lines += [f"- **{name}**: {what}" for name, what in COLUMNS] + [""]
    bare = [key for key in ordered(measured) if key[1] == "no"]
    lines += ["Matrix in the memory of the device that works on it, before and after:", ""]
    lines += table(bare, measured, sizes) + [""]
    moved = [key for key in ordered(measured) if key[1] == "yes"]
    if moved:
        lines += ["Transfers to the GPU and back included:", ""] + table(moved, measured, sizes) + [""]
    lines += [" ".join(old_notes), ""]
    lines += table(ordered(old), old, sorted({n for times in old.values() for n in times})) + [""]
    # The CPU's methods transfer nothing; the GPU's are compared with transfers where they were measured.
    pairs = [(key, other) for key in ordered(old)
             for other in [(key[0], "yes") if (key[0], "yes") in measured else (key[0], "no")] if other in measured]
    if pairs:
        lines += [f"Times as fast as in 2013 (GPU: {'with' if moved else 'no'} transfers):", ""]
        lines += ["| N | " + " | ".join(key[0] for key, _ in pairs) + " |", "|---" * (len(pairs) + 1) + "|"]
        for n in sizes:
            ratios = [old[a][n] / measured[b][n] if n in old[a] and n in measured[b] else None for a, b in pairs]
            if any(ratios):
                lines.append(f"| {n} | " + " | ".join(digits(ratio) for ratio in ratios) + " |")
        lines.append("")
    for title, times in (("Growth: latency a n and work c n^3, or c n^3 / log n, fitted to the times with the least "
                          "relative error in the mean square", measured), ("The same in 2013", old)):
        grown = growth_table(times)
        if grown:
            lines += [title + ":", ""] + grown + [""]
    if study:
        lines += study_lines(study)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def relative(times, method):
    """Times divided by those of `method` (without transfers where it has both), or by the fastest's."""
    result = {}
    base = times.get((method, "no"), times.get((method, "yes"), {}))
    for key, points in times.items():
        for n, seconds in points.items():
            divisor = base.get(n) if method else min(other[n] for other in times.values() if n in other)
            if divisor:
                result.setdefault(key, {})[n] = seconds / divisor
    return result


def write_svg(path, measured, old, method):
    panels = [("Lebedev 2013: Core i7 920, GeForce GTX 580", relative(old, method), "yes"),
              ("This run", relative(measured, method), "no")]
    sizes = sorted({n for _, times, _ in panels for points in times.values() for n in points})
    if not sizes:
        raise SystemExit("gf2_seed_plot: no times to draw relative to " + (method or "the fastest"))
    moved = any(key[1] == "yes" for key in measured)

    def lines(times, plain):
        for key in ordered(times):
            usual = key[1] == plain
            yield Line(key[0] if usual else key[0] + ", with transfers", times[key], COLOURS.get(key[0], GREY), "-" if usual else "--", filled=usual)

    draw(path, "Time to the echelon form of a 2^N x 2^N bit matrix, by method, divided by that of " + (method or "the fastest at this N"),
         [Panel(title, list(lines(times, plain)), x="N", y="relative time; lower is faster", log="y", ticks=sizes)
          for title, times, plain in panels if times], share=True, columns=5, size=(6.4, 5),
         note="2013: transfers and fixed costs included. This run: without transfers" + ("; dashed: with transfers to the GPU and back." if moved else ".") +
         " M4RI m4ri, M4RI pluq: one core.\nCPU, GPU: terrace. A method ends where its next size would pass the time limit.")


def main():
    parser = argparse.ArgumentParser(description="Table and figure of jobs/gf2_seed.sh")
    parser.add_argument("measured")
    parser.add_argument("reference")
    parser.add_argument("output")
    parser.add_argument("--relative", default="", help="divide by this method's time (default: the fastest at each N)")
    parser.add_argument("--study", help="what gf2_study.py wrote")
    arguments = parser.parse_args()
    measured, notes = times_of(arguments.measured)
    old, old_notes = times_of(arguments.reference)
    write_markdown(arguments.output + ".md", measured, notes, old, old_notes, arguments.study)
    write_svg(arguments.output + ".svg", measured, old, arguments.relative)


if __name__ == "__main__":
    main()
