#!/usr/bin/env python3
"""Table and figure of jobs/band_seed.sh.

    band_seed_plot.py MEASURED.csv OUTPUT

Writes OUTPUT.md, and OUTPUT.svg: factor plus solve time against the tile width, one panel for every half-bandwidth and
number of ranks; dashed: LAPACK's factor time. Standard library only.
"""
import csv
import math
import sys
from html import escape

COLOURS = {("gpu", "gpu"): "#1f5fbf", ("gpu", "cpu"): "#2a9d4a", ("cpu", "gpu"): "#ff8c1a", ("cpu", "cpu"): "#d62728"}
PANEL, HEIGHT, LEFT, TOP, BOTTOM = 330, 360, 70, 64, 84


def read(path):
    """{(m, ranks): {(diagonal, substitution): {width: {phase: s}}}}, {m: {who: {phase: s}}} on the CPU, notes."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    study, cpu, n = {}, {}, {}
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    for row in rows:
        m, ranks, seconds = int(row["half_bandwidth"]), int(row["ranks"]), float(row["seconds"])
        n[m] = int(row["n"])
        if row["who"] != "terrace":  # LAPACK, and terrace beside it
            cpu.setdefault(m, {}).setdefault(row["who"], {})[row["phase"]] = seconds
            continue
        places = study.setdefault((m, ranks), {}).setdefault((row["diagonal"], row["substitution"]), {})
        places.setdefault(int(row["width"]), {})[row["phase"]] = seconds
    return study, cpu, n, notes


def total(phases):
    return phases["factor"] + phases["solve"] if "factor" in phases and "solve" in phases else None


def figure(seconds):
    return "-" if seconds is None else f"{seconds:.{max(0, 2 - math.floor(math.log10(seconds)))}f}"


def best(points):
    """(width, phases) of the least factor + solve time, or None."""
    known = [(total(phases), width, phases) for width, phases in points.items() if total(phases)]
    return min(known, key=lambda item: item[0])[1:] if known else None


def write_markdown(path, study, cpu, n, notes):
    lines = ["Band Cholesky by tile columns: seconds against the tile width.", ""]
    lines += [note + "  " for note in notes] + [""]
    for (m, ranks), places in sorted(study.items()):
        lines += [f"n = {n[m]:,}, half-bandwidth {m:,}, {ranks} rank{'s' if ranks > 1 else ''}; factor + solve:", ""]
        keys = sorted(places, reverse=True)
        lines += ["| width | " + " | ".join(f"diagonal {d}, substitution {s}" for d, s in keys) + " |"]
        lines += ["|---" * (len(keys) + 1) + "|"]
        for width in sorted({w for points in places.values() for w in points}):
            cells = []
            for key in keys:
                phases = places[key].get(width, {})
                cells.append(f"{figure(phases.get('factor'))} + {figure(phases.get('solve'))}")
            lines.append(f"| {width} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["Best widths, and the CPU on one rank:", "", "| m | what | width | factor | solve |", "|---|---|---|---|---|"]
    for m in sorted(n):
        for who, phases in cpu.get(m, {}).items():
            name = "LAPACK dpbtrf" if who == "lapack" else f"{who}, CPU"
            lines.append(f"| {m} | {name} | - | {figure(phases.get('factor'))} | {figure(phases.get('solve'))} |")
        for (other, ranks), places in sorted(study.items()):
            for (diagonal, substitution), points in sorted(places.items(), reverse=True):
                found = best(points) if other == m else None
                if found:
                    width, phases = found
                    lines.append(f"| {m} | {ranks} rank{'s' if ranks > 1 else ''}, diagonal {diagonal}, substitution "
                                 f"{substitution} | {width} | {figure(phases['factor'])} | {figure(phases['solve'])} |")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + [""]))


def write_svg(path, study, cpu):
    panels = sorted(study)
    values = [total(phases) for key in panels for points in study[key].values() for phases in points.values()
              if total(phases)]
    values += [cpu[m]["lapack"]["factor"] for m, _ in panels if "lapack" in cpu.get(m, {})]
    if not panels or not values:
        raise SystemExit("band_seed_plot: no times to draw")
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    high = max(high, low + 1)
    floor, width = HEIGHT - BOTTOM, LEFT + PANEL * len(panels) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="12">',
           f'<rect width="{width}" height="{HEIGHT}" fill="white"/>']

    def line(x1, y1, x2, y2, colour, dash=""):
        out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"' +
                   (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def text(x, y, words, anchor="middle", size=12):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>')

    def y_of(seconds):
        return floor - (math.log10(seconds) - low) / (high - low) * (floor - TOP)

    text(LEFT, 24, "Band Cholesky by tile columns: factor + solve seconds against the tile width", "start", 16)
    for index, (m, ranks) in enumerate(panels):
        left = LEFT + index * PANEL
        right = left + PANEL - 24
        places = study[(m, ranks)]
        widths = sorted({w for points in places.values() for w in points})

        def x_of(w, left=left, right=right, widths=widths):
            span = math.log(widths[-1] / widths[0]) or 1
            return left + 12 + math.log(w / widths[0]) / span * (right - left - 24)

        text((left + right) / 2, TOP - 10, f"m = {m:,}, {ranks} rank{'s' if ranks > 1 else ''}")
        for power in range(low, high + 1):
            line(left, y_of(10.0 ** power), right, y_of(10.0 ** power), "#cccccc")
            if index == 0:
                text(left - 6, y_of(10.0 ** power) + 4, f"{10.0 ** power:g} s", "end")
        for w in widths:
            text(x_of(w), floor + 16, str(w), size=10)
        line(left, floor, right, floor, "#222222")
        line(left, TOP, left, floor, "#222222")
        lapack = cpu.get(m, {}).get("lapack", {}).get("factor")
        if lapack:
            line(left, y_of(lapack), right, y_of(lapack), "#222222", "5 4")
        for key, points in sorted(places.items()):
            known = [(x_of(w), y_of(total(phases))) for w, phases in sorted(points.items()) if total(phases)]
            colour = COLOURS.get(key, "#888888")
            path_of = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
            out.append(f'<polyline points="{path_of}" fill="none" stroke="{colour}" stroke-width="2"/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in known]
    legend = sorted({key for places in study.values() for key in places}, reverse=True)
    for index, (diagonal, substitution) in enumerate(legend):
        x, y = LEFT + index % 2 * 300, HEIGHT - 44 + index // 2 * 18
        line(x, y - 4, x + 24, y - 4, COLOURS.get((diagonal, substitution), "#888888"))
        text(x + 30, y, f"diagonal {diagonal}, substitution {substitution}", "start")
    text(LEFT, HEIGHT - 8, "dashed: LAPACK dpbtrf on the CPU, factor alone", "start", 11)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>", ""]))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    study, cpu, n, notes = read(sys.argv[1])
    write_markdown(sys.argv[2] + ".md", study, cpu, n, notes)
    write_svg(sys.argv[2] + ".svg", study, cpu)


if __name__ == "__main__":
    main()
