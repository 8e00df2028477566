#!/usr/bin/env python3
"""Tables and figures of jobs/band_seed.sh.

    band_seed_plot.py MEASURED.csv [MORE.csv ...] OUTPUT

Writes OUTPUT.md, and OUTPUT.svg with figures 2 to 5 of Khimich and Baranov 2013: time of a solve (factor and substitution)
against the tile width on one rank and on two, a panel each half-bandwidth; the factor's time on one rank and on two; a
solve's time by the CPU's library and by one rank and two. The figure needs matplotlib.
"""
import sys

from plot import GREY, Line, Panel, digits, draw, read

COLOURS = {("gpu", "gpu"): "#1f5fbf", ("gpu", "cpu"): "#2a9d4a", ("cpu", "gpu"): "#ff8c1a", ("cpu", "cpu"): "#d62728"}
BARS = {"lapack": "#888888", "terrace, CPU": "#222222", ("tile-columns", 1): "#1f5fbf", ("tile-columns", 2): "#8fb3e6",
        ("streamed", 1): "#2a9d4a", ("streamed", 2): "#9fd6ae"}


class Study:
    """factor and solve: {(m, ranks, method): {place: {width: s}}}; cpu: {m: {who: {phase: s}}}; n: {m: order}."""

    def __init__(self, paths):
        self.factor, self.solve, self.cpu, self.n, self.notes, self.device = {}, {}, {}, {}, [], "rank"
        for path in paths:
            rows, notes = read(path)
            self.notes += notes
            for row in rows:
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
            lines.append(f"| {w} | " + " | ".join(digits(cell) for cell in cells) + " |")
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
                         f"{width} | {digits(study.factor[key][d][width])} | {digits(study.solve[key][s][width])} | "
                         f"{digits(points[width])} | {'yes' if inside else 'no'} |")
    lines += ["", "The CPU on one rank:", "", "| m | what | factor | solve | sum |", "|---|---|---|---|---|"]
    for m in sorted(study.cpu):
        for who, phases in study.cpu[m].items():
            name = "LAPACK dpbtrf, dpbtrs" if who == "lapack" else f"{who}, CPU"
            both = phases["factor"] + phases["solve"] if len(phases) == 2 else None
            lines.append(f"| {m:,} | {name} | {digits(phases.get('factor'))} | {digits(phases.get('solve'))} | {digits(both)} |")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + [""]))


def width_panel(study, m, ranks, title):
    lines = []
    for key in study.keys():
        if key[:2] != (m, ranks):
            continue
        for (d, s), points in study.totals(key).items():
            streamed = key[2] == "streamed"
            lines.append(Line(f"diagonal {d}, substitution {s}, {'streamed' if streamed else 'in memory'}", points,
                              COLOURS.get((d, s), GREY), "--" if streamed else "-"))
    library = study.library(m, ("factor", "solve")).get("lapack")
    return Panel(f"{title}: m = {m:,}, {several(ranks, study.device)}", lines, x="tile width", y="seconds",
                 ticks=sorted({w for line in lines for w in line.points}), level=(library, "LAPACK's factor and solve") if library else ())


def bar_panel(title, names, groups):
    """groups: {m: {key of BARS: seconds}}"""
    return Panel(title, bars={f"m = {m:,}": {names[key]: (seconds, BARS[key]) for key, seconds in bars.items()} for m, bars in sorted(groups.items()) if bars},
                 y="seconds", log="y")


def write_svg(path, study):
    orders = sorted(study.n)
    panels = [width_panel(study, m, ranks, f"Figure {2 if ranks == 1 else 3}") for ranks in (1, 2) for m in orders
              if any(study.totals(key) for key in study.keys() if key[:2] == (m, ranks))]
    if not panels:
        raise SystemExit("band_seed_plot: no times to draw")
    counts = [(method, ranks) for method in ("tile-columns", "streamed") for ranks in (1, 2)]
    names = {"lapack": "LAPACK", "terrace, CPU": "terrace, CPU",
             **{(method, ranks): f"{'in memory' if method == 'tile-columns' else 'streamed'}, {several(ranks, study.device)}"
                for method, ranks in counts}}
    known = lambda of: {key: seconds for key, seconds in of.items() if seconds is not None}
    factors = {m: known({key: study.best_factor(m, key[1], key[0]) for key in counts}) for m in orders}
    solves = {m: {**study.library(m, ("factor", "solve")),
                  **known({key: study.best_total(m, key[1], key[0]) for key in counts})} for m in orders}
    panels += [bar_panel(f"Figure 4: the factor at its best width, one and two {study.device}s", names, factors),
               bar_panel("Figure 5: factor + solve, the CPU's library and here", names, solves)]
    draw(path, "Band Cholesky by tile columns: factor + solve seconds against the tile width", panels, columns=4,
         note="in memory: tile columns; streamed: tile columns through a window")


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    study = Study(sys.argv[1:-1])
    write_markdown(sys.argv[-1] + ".md", study)
    write_svg(sys.argv[-1] + ".svg", study)


if __name__ == "__main__":
    main()
