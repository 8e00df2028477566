#!/usr/bin/env python3
"""Tables and figures of jobs/band_seed.sh.

    band_seed_plot.py MEASURED.csv [MORE.csv ...] OUTPUT

Writes OUTPUT.md, and OUTPUT.svg with figures 2 to 5 of Khimich and Baranov 2013: time of a solve (factor and substitution)
against the tile width on one rank and on two, a panel each half-bandwidth; the factor's time on one rank and on two; a
solve's time by the CPU's library and by one rank and two. Standard library only.
"""
import csv
import math
import sys
from html import escape

COLOURS = {("gpu", "gpu"): "#1f5fbf", ("gpu", "cpu"): "#2a9d4a", ("cpu", "gpu"): "#ff8c1a", ("cpu", "cpu"): "#d62728"}
BARS = {"lapack": "#888888", "terrace, CPU": "#222222", ("tile-columns", 1): "#1f5fbf", ("tile-columns", 2): "#8fb3e6",
        ("streamed", 1): "#2a9d4a", ("streamed", 2): "#9fd6ae"}
PANEL, HEIGHT, LEFT, TOP, BOTTOM = 440, 330, 76, 60, 50


class Study:
    """factor and solve: {(m, ranks, method): {place: {width: s}}}; cpu: {m: {who: {phase: s}}}; n: {m: order}."""

    def __init__(self, paths):
        self.factor, self.solve, self.cpu, self.n, self.notes, self.device = {}, {}, {}, {}, [], "rank"
        for path in paths:
            with open(path, newline="", encoding="utf-8") as file:
                lines = [line for line in file if line.strip()]
            self.notes += [line[1:].strip() for line in lines if line.startswith("#")]
            for row in csv.DictReader(line for line in lines if not line.startswith("#")):
                self.take(row)

    def take(self, row):
        if row["who"] == "who":  # a table behind another one
            return
        m, seconds, phase = int(row["half_bandwidth"]), float(row["seconds"]), row["phase"]
        self.n[m] = int(row["n"])
        if row["who"] != "terrace":  # LAPACK, and terrace beside it
            self.cpu.setdefault(m, {}).setdefault(row["who"], {})[phase] = seconds
            return
        if row["backend"] == "cuda":
            self.device = "GPU"
        key = (m, int(row["ranks"]), row.get("method") or "tile-columns")
        part, place = (self.factor, row["diagonal"]) if phase == "factor" else (self.solve, row["substitution"])
        part.setdefault(key, {}).setdefault(place, {}).setdefault(int(row["width"]), seconds)

    def keys(self):
        return sorted(set(self.factor) | set(self.solve), key=lambda key: (key[0], key[1], key[2] != "tile-columns"))

    def widths(self, key):
        return sorted({w for part in (self.factor, self.solve) for points in part.get(key, {}).values() for w in points})

    def totals(self, key):
        """{(diagonal, substitution): {width: factor + solve}}"""
        out = {}
        for d, factors in self.factor.get(key, {}).items():
            for s, solves in self.solve.get(key, {}).items():
                points = {w: factors[w] + solves[w] for w in sorted(factors) if w in solves}
                if points:
                    out[d, s] = points
        return dict(sorted(out.items(), reverse=True))

    def best_factor(self, m, ranks, method):
        times = [t for points in self.factor.get((m, ranks, method), {}).values() for t in points.values()]
        return min(times, default=None)

    def best_total(self, m, ranks, method):
        times = [t for points in self.totals((m, ranks, method)).values() for t in points.values()]
        return min(times, default=None)

    def library(self, m, phases):
        """Seconds of the CPU's library, and of ours there, where all phases are known."""
        out = {}
        for who, times in self.cpu.get(m, {}).items():
            if all(phase in times for phase in phases):
                out["lapack" if who == "lapack" else "terrace, CPU"] = sum(times[phase] for phase in phases)
        return out


def figure(seconds):
    return "-" if seconds is None else f"{seconds:.{max(0, 2 - math.floor(math.log10(seconds)))}f}"


def several(ranks, device):
    return f"{ranks} {device}{'s' if ranks > 1 else ''}"


def write_markdown(path, study):
    lines = ["Band Cholesky by tile columns: seconds against the tile width.", ""]
    lines += [note + "  " for note in study.notes] + [""]
    for key in study.keys():
        m, ranks, method = key
        words = "in memory" if method == "tile-columns" else "streamed through a window; the copies are in the factor's time"
        lines += [f"n = {study.n[m]:,}, half-bandwidth {m:,}, {several(ranks, study.device)}, tile columns {words}:", ""]
        factors, solves = sorted(study.factor.get(key, {}), reverse=True), sorted(study.solve.get(key, {}), reverse=True)
        titles = [f"factor, diagonal {d}" for d in factors] + [f"substitution {s}" for s in solves]
        lines += ["| width | " + " | ".join(titles) + " | best sum |", "|---" * (len(titles) + 2) + "|"]
        totals = study.totals(key)
        for w in study.widths(key):
            cells = [study.factor[key][d].get(w) for d in factors] + [study.solve[key][s].get(w) for s in solves]
            cells.append(min((points[w] for points in totals.values() if w in points), default=None))
            lines.append(f"| {w} | " + " | ".join(figure(cell) for cell in cells) + " |")
        lines.append("")
    lines += ["Best widths of factor and solve. Bracketed: a narrower and a wider one were slower.", "",
              "| m | on | tile columns | diagonal | substitution | width | factor | solve | sum | bracketed |",
              "|---|---|---|---|---|---|---|---|---|---|"]
    for key in study.keys():
        m, ranks, method = key
        for (d, s), points in study.totals(key).items():
            width = min(points, key=points.get)
            inside = min(points) < width < max(points)
            lines.append(f"| {m:,} | {several(ranks, study.device)} | {'in memory' if method == 'tile-columns' else 'streamed'} | {d} | {s} | "
                         f"{width} | {figure(study.factor[key][d][width])} | {figure(study.solve[key][s][width])} | "
                         f"{figure(points[width])} | {'yes' if inside else 'no'} |")
    lines += ["", "The CPU on one rank:", "", "| m | what | factor | solve | sum |", "|---|---|---|---|---|"]
    for m in sorted(study.cpu):
        for who, phases in study.cpu[m].items():
            name = "LAPACK dpbtrf, dpbtrs" if who == "lapack" else f"{who}, CPU"
            both = phases["factor"] + phases["solve"] if len(phases) == 2 else None
            lines.append(f"| {m:,} | {name} | {figure(phases.get('factor'))} | {figure(phases.get('solve'))} | {figure(both)} |")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + [""]))


class Drawing:
    def __init__(self, width, height):
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                    'font-family="Helvetica, Arial, sans-serif" font-size="12">',
                    f'<rect width="{width}" height="{height}" fill="white"/>']

    def line(self, x1, y1, x2, y2, colour, dash=""):
        self.out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"' +
                        (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def text(self, x, y, words, anchor="middle", size=12):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>')

    def frame(self, left, top, low, high, words):
        """Axes on powers of ten; returns y of a time."""
        right, floor = left + PANEL, top + HEIGHT - TOP - BOTTOM
        y_of = lambda seconds: floor - (math.log10(seconds) - low) / (high - low) * (floor - top)
        self.text((left + right) / 2, top - 10, words, size=13)
        for power in range(low, high + 1):
            self.line(left, y_of(10.0 ** power), right, y_of(10.0 ** power), "#dddddd")
            self.text(left - 6, y_of(10.0 ** power) + 4, f"{10.0 ** power:g} s", "end", 11)
        self.line(left, floor, right, floor, "#222222")
        self.line(left, top, left, floor, "#222222")
        return y_of


def scale(values):
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))


def draw_widths(drawing, study, left, top, m, ranks, title):
    keys = [key for key in study.keys() if key[:2] == (m, ranks) and study.totals(key)]
    lines = {(key[2], *places): points for key in keys for places, points in study.totals(key).items()}
    library = study.library(m, ("factor", "solve")).get("lapack")
    times = [t for points in lines.values() for t in points.values()] + ([library] if library else [])
    y_of = drawing.frame(left, top, *scale(times), f"{title}: m = {m:,}, {several(ranks, study.device)}")
    widths = sorted({w for points in lines.values() for w in points})
    span = math.log(widths[-1] / widths[0]) or 1
    x_of = lambda w: left + 12 + math.log(w / widths[0]) / span * (PANEL - 24)
    floor = top + HEIGHT - TOP - BOTTOM
    shown = -math.inf
    for w in widths:
        if x_of(w) - shown > 22:
            shown = x_of(w)
            drawing.text(x_of(w), floor + 16, str(w), size=10)
    if library:
        drawing.line(left, y_of(library), left + PANEL, y_of(library), "#222222", "2 4")
    for (method, d, s), points in lines.items():
        known = [(x_of(w), y_of(t)) for w, t in sorted(points.items())]
        colour, dash = COLOURS.get((d, s), "#888888"), ' stroke-dasharray="6 4"' if method == "streamed" else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
        drawing.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        drawing.out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in known]


def draw_bars(drawing, study, left, top, title, bars):
    """bars: {m: {key of BARS: seconds}}"""
    times = [t for of_m in bars.values() for t in of_m.values()]
    low, high = scale(times + [min(times) / 2])
    y_of = drawing.frame(left, top, low, high, title)
    floor, place = top + HEIGHT - TOP - BOTTOM, PANEL / len(bars)
    for index, (m, of_m) in enumerate(sorted(bars.items())):
        wide = (place - 40) / max(len(of_m), 1)
        drawing.text(left + (index + 0.5) * place, floor + 16, f"m = {m:,}", size=11)
        for number, (key, seconds) in enumerate(of_m.items()):
            x = left + index * place + 20 + number * wide
            drawing.out.append(f'<rect x="{x:.1f}" y="{y_of(seconds):.1f}" width="{wide - 3:.1f}" height="{floor - y_of(seconds):.1f}" '
                               f'fill="{BARS[key]}"/>')
            drawing.text(x + wide / 2 - 1, y_of(seconds) - 4, figure(seconds), size=9)


def write_svg(path, study):
    orders = sorted(study.n)
    panels = [(m, ranks, f"Figure {2 if ranks == 1 else 3}") for ranks in (1, 2) for m in orders
              if any(study.totals(key) for key in study.keys() if key[:2] == (m, ranks))]
    if not panels:
        raise SystemExit("band_seed_plot: no times to draw")
    counts = [(method, ranks) for method in ("tile-columns", "streamed") for ranks in (1, 2)]
    known = lambda of: {key: seconds for key, seconds in of.items() if seconds is not None}
    factors = {m: known({key: study.best_factor(m, key[1], key[0]) for key in counts}) for m in orders}
    solves = {m: {**study.library(m, ("factor", "solve")),
                  **known({key: study.best_total(m, key[1], key[0]) for key in counts})} for m in orders}
    across = 2
    rows = math.ceil(len(panels) / across) + 1
    width, height = across * (LEFT + PANEL) + 40, rows * HEIGHT + 110
    drawing = Drawing(width, height)
    drawing.text(LEFT, 24, "Band Cholesky by tile columns: factor + solve seconds against the tile width", "start", 16)
    for index, (m, ranks, title) in enumerate(panels):
        draw_widths(drawing, study, LEFT + index % across * (PANEL + LEFT), TOP + index // across * HEIGHT, m, ranks, title)
    top = TOP + (rows - 1) * HEIGHT
    draw_bars(drawing, study, LEFT, top, f"Figure 4: the factor at its best width, one and two {study.device}s", factors)
    draw_bars(drawing, study, LEFT + PANEL + LEFT, top, "Figure 5: factor + solve, the CPU's library and here", solves)
    below = rows * HEIGHT + 36
    places = sorted({p for m, ranks, _ in panels for key in study.keys() if key[:2] == (m, ranks) for p in study.totals(key)}, reverse=True)
    for index, (d, s) in enumerate(places):
        x = LEFT + index % 4 * 235
        drawing.line(x, below - 4, x + 20, below - 4, COLOURS.get((d, s), "#888888"))
        drawing.text(x + 25, below, f"diagonal {d}, substitution {s}", "start", 11)
    drawing.text(LEFT, below + 18, "unbroken: tile columns in memory; dashed: streamed through a window; dotted: LAPACK's factor and solve",
                 "start", 11)
    names = {"lapack": "LAPACK", "terrace, CPU": "terrace, CPU",
             **{(method, ranks): f"{'in memory' if method == 'tile-columns' else 'streamed'}, {several(ranks, study.device)}"
                for method, ranks in counts}}
    used = [key for key in BARS if any(key in of_m for bars in (factors, solves) for of_m in bars.values())]
    for index, key in enumerate(used):
        x = LEFT + index * 158
        drawing.out.append(f'<rect x="{x:.1f}" y="{below + 30:.1f}" width="12" height="12" fill="{BARS[key]}"/>')
        drawing.text(x + 17, below + 40, names[key], "start", 11)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(drawing.out + ["</svg>", ""]))


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    study = Study(sys.argv[1:-1])
    write_markdown(sys.argv[-1] + ".md", study)
    write_svg(sys.argv[-1] + ".svg", study)


if __name__ == "__main__":
    main()
