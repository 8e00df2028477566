#!/usr/bin/env python3
"""Table and figure of jobs/gf2_seed.sh.

    gf2_seed_plot.py MEASURED.csv 2013.csv OUTPUT [--relative METHOD]

Reads lines source,method,transfers,N,seconds; writes OUTPUT.md and OUTPUT.svg: time of every method
against N, divided by that of the fastest at this N in the same panel, or by that of METHOD. Standard library only.
"""
import argparse
import csv
import math
from html import escape

COLOURS = {
    "M4RI m4ri": "#555555", "M4RI pluq": "#a07030", "M4RI all cores": "#000000", "CPU all cores": "#2a9d4a",
    "GPU Gauss": "#d62728", "GPU k = 4": "#ff8c1a", "GPU k = 8": "#b8a000", "GPU k = 14": "#8e44ad",
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


def write_markdown(path, measured, notes, old, old_notes):
    sizes = sorted({n for times in measured.values() for n in times})
    lines = ["Seconds to the echelon form of a random square bit matrix of order 2^N.", ""]
    lines += [note + "  " for note in notes] + [""]
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
    arguments = parser.parse_args()
    measured, notes = read(arguments.measured)
    old, old_notes = read(arguments.reference)
    write_markdown(arguments.output + ".md", measured, notes, old, old_notes)
    write_svg(arguments.output + ".svg", measured, old, arguments.relative)


if __name__ == "__main__":
    main()
