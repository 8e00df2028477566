#!/usr/bin/env python3
"""Table and figure of jobs/gf2_seed.sh and jobs/gf2_study.py.

    gf2_seed_plot.py MEASURED.csv 2013.csv OUTPUT [--relative METHOD] [--study STUDY.csv]

Reads lines source,method,transfers,N,seconds; writes OUTPUT.md and OUTPUT.svg: time of every method
against N, divided by that of the fastest at this N in the same panel, or by that of METHOD. With --study the page goes on with
what gf2_study.py measured beside the table. Standard library only.
"""
import argparse
import csv
import math
from html import escape

COLOURS = {
    "M4RI m4ri": "#555555", "M4RI pluq": "#a07030", "M4RI all cores": "#000000", "CPU all cores": "#2a9d4a",
    "GPU Gauss": "#d62728", "GPU k = 1": "#f29b9b", "GPU k = 4": "#ff8c1a", "GPU k = 8": "#b8a000", "GPU k = 14": "#8e44ad",
    "GPU block form": "#1f5fbf",
}
OTHER = "#888888"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP, LEGEND = 1000, 470, 62, 74, 96, 24, 190


def read(path):
    """{(method, transfers): {N: seconds}} and the comment lines of a CSV file."""
    times = {}
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        seconds = float(row["seconds"])
        if seconds > 0:
            times.setdefault((row["method"], row["transfers"]), {})[int(row["N"])] = seconds
    return times, notes


def figure(seconds):
    """Three significant digits, no exponent."""
    if seconds is None:
        return "-"
    digits = max(0, 2 - math.floor(math.log10(seconds)))
    return f"{seconds:.{digits}f}"


def ordered(times):
    known = list(COLOURS)
    return sorted(times, key=lambda key: (known.index(key[0]) if key[0] in known else len(known), key))


def table(keys, times, sizes):
    head = "| N | " + " | ".join(method for method, _ in keys) + " |"
    lines = [head, "|---" * (len(keys) + 1) + "|"]
    for n in sizes:
        lines.append(f"| {n} | " + " | ".join(figure(times[key].get(n)) for key in keys) + " |")
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
    "paths": "In 2013 no essential difference. Constant memory takes one copy more a column, and serves the lanes of a "
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
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    text = ["## Studies", ""] + [note + "  " for note in notes] + [""]
    for study, title in TITLES.items():
        mine = [row for row in rows if row["study"] == study]
        if not mine:
            continue
        text += ["### " + title, ""] + ([TEXTS[study], ""] if study in TEXTS else [])
        if study in ("energy", "calibrate"):
            text += ["| what | of | value | unit | |", "|---" * 5 + "|"]
            for row in mine:
                value = figure(float(row["value"])) if row["value"] else "null"
                remark = row["check"] if not row["value"] else ""
                what = row["variant"] + ("" if study == "calibrate" else f", n = {int(row['n']):,}")
                text.append(f"| {what} | {row['setting'].replace('_', ' ')} | {value} | {row['unit']} | {remark} |")
            text.append("")
            continue
        variants = list(dict.fromkeys(row["variant"] for row in mine))
        text += ["| n | setting | " + " | ".join(variants) + " |", "|---" * (len(variants) + 2) + "|"]
        for n, setting in dict.fromkeys((row["n"], row["setting"]) for row in mine):
            values = {row["variant"]: row["value"] for row in mine if (row["n"], row["setting"]) == (n, setting)}
            cells = [figure(float(values[v])) if values.get(v) else "-" for v in variants]
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
                lines.append(f"| {n} | " + " | ".join(figure(ratio) for ratio in ratios) + " |")
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


class Svg:
    def __init__(self):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']

    def line(self, x1, y1, x2, y2, colour, width=1.0, dash=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def text(self, x, y, words, anchor="middle", size=13, colour="#222222", turn=0):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
                          f'fill="{colour}"{turned}>{escape(words)}</text>')

    def curve(self, points, colour, dash):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"' +
                          (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
        for x, y in points:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{"white" if dash else colour}" '
                              f'stroke="{colour}" stroke-width="1.5"/>')

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.parts + ["</svg>", ""]))


def write_svg(path, measured, old, method):
    panels = [("Lebedev 2013: Core i7 920, GeForce GTX 580", relative(old, method), "yes"),
              ("This run", relative(measured, method), "no")]
    values = [v for _, times, _ in panels for points in times.values() for v in points.values()]
    sizes = sorted({n for _, times, _ in panels for points in times.values() for n in points})
    if not values:
        raise SystemExit("gf2_seed_plot: no times to draw relative to " + (method or "the fastest"))
    low = math.floor(math.log10(min(values)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))
    width = (WIDTH - LEFT - LEGEND - GAP) / len(panels)
    floor = HEIGHT - BOTTOM

    def y_of(value):
        return floor - (math.log10(value) - low) / (high - low) * (floor - TOP)

    svg = Svg()
    svg.text(LEFT, 24, "Time to the echelon form of a 2^N x 2^N bit matrix, by method", "start", 17)
    svg.text(LEFT, 44, "divided by the time of " + (method or "the fastest method at this N") +
             " in the same panel; lower is faster", "start", 13, "#555555")
    for index, (title, times, plain) in enumerate(panels):
        left = LEFT + index * (width + GAP)
        right = left + width

        def x_of(n, left=left):
            return left + 14 + (n - sizes[0]) / max(1, sizes[-1] - sizes[0]) * (width - 28)

        svg.text((left + right) / 2, TOP - 10, title)
        for power in range(low, high + 1):
            y = y_of(10.0 ** power)
            svg.line(left, y, right, y, "#cccccc")
            if index == 0:
                svg.text(left - 7, y + 4, f"{10.0 ** power:,g}" if power < 6 else f"1e{power}", "end")
            for digit in range(2, 10):
                if power < high:
                    svg.line(left, y_of(digit * 10.0 ** power), right, y_of(digit * 10.0 ** power), "#f0f0f0")
        for n in sizes:
            svg.line(x_of(n), floor, x_of(n), floor + 4, "#222222")
            svg.text(x_of(n), floor + 19, str(n))
        svg.line(left, floor, right, floor, "#222222")
        svg.line(left, TOP, left, floor, "#222222")
        svg.text((left + right) / 2, floor + 40, "N")
        for key in ordered(times):
            points = sorted(times[key].items())
            svg.curve([(x_of(n), y_of(v)) for n, v in points], COLOURS.get(key[0], OTHER),
                      "" if key[1] == plain else "5 4")
    svg.text(18, (TOP + floor) / 2, "relative time", turn=-90)
    x, y = WIDTH - LEGEND + 22, TOP + 8
    names = []
    for key in ordered({**old, **measured}):
        if key[0] not in names:
            names.append(key[0])
    for name in names:
        svg.line(x, y, x + 26, y, COLOURS.get(name, OTHER), 2.5)
        svg.text(x + 33, y + 4, name, "start")
        y += 22
    if any(key[1] == "yes" for key in measured):
        svg.line(x, y + 6, x + 26, y + 6, "#222222", 2, "5 4")
        svg.text(x + 33, y + 10, "with transfers", "start")
    svg.text(LEFT, HEIGHT - 26, "2013: transfers and fixed costs included. This run: without transfers; "
             "dashed: with transfers to the GPU and back." if any(key[1] == "yes" for key in measured) else
             "2013: transfers and fixed costs included. This run: without transfers.", "start", 12, "#555555")
    svg.text(LEFT, HEIGHT - 9, "M4RI m4ri, M4RI pluq: one core. CPU, GPU: terrace. A method ends where its next "
             "size would pass the time limit.", "start", 12, "#555555")
    svg.write(path)


def main():
    parser = argparse.ArgumentParser(description="Table and figure of jobs/gf2_seed.sh")
    parser.add_argument("measured")
    parser.add_argument("reference")
    parser.add_argument("output")
    parser.add_argument("--relative", default="", help="divide by this method's time (default: the fastest at each N)")
    parser.add_argument("--study", help="what gf2_study.py wrote")
    arguments = parser.parse_args()
    measured, notes = read(arguments.measured)
    old, old_notes = read(arguments.reference)
    write_markdown(arguments.output + ".md", measured, notes, old, old_notes, arguments.study)
    write_svg(arguments.output + ".svg", measured, old, arguments.relative)


if __name__ == "__main__":
    main()
