#!/usr/bin/env python3
"""Table and figure of jobs/dense_seed.sh.

    dense_seed_plot.py MEASURED.csv OUTPUT

Writes OUTPUT.md, and OUTPUT.svg: milliseconds of an inversion against n on linear axes, with fitted curves, and the
same on logarithmic axes, where the default method is seen too. The fit of every line is a polynomial of third degree
in n (of lower degree for fewer than four sizes) with the least relative errors; it is printed. Standard library only.
"""
import csv
import math
import sys
from html import escape

# Red, green, blue: 16 x 16 threads; purple, orange, pink: 32 x 32 threads.
COLOURS = {(8, 16): "#d62728", (16, 16): "#2a9d4a", (32, 16): "#1f5fbf",
           (8, 32): "#8e44ad", (16, 32): "#ff8c1a", (32, 32): "#e77fb3", (0, 0): "#d62728"}
OTHERS = {"terrace": "#222222", "lapack": "#888888", "cusolver": "#888888"}
NAMES = {"terrace": "default method", "lapack": "LAPACK getrf + getri", "cusolver": "cuSOLVER getrf + getrs"}
PANEL, HEIGHT, LEFT, GAP, TOP, BOTTOM = 520, 560, 80, 90, 64, 140


def read(path):
    """{(who, grid, threads): {n: row}} with numbers in the rows, notes."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    study = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        key = (row["who"], int(row["grid"]), int(row["threads"]))
        study.setdefault(key, {})[int(row["n"])] = {
            "ms": 1e3 * float(row["seconds"]), "gflops": float(row["gflops"]), "fraction": float(row["fraction"]),
            "residual": float(row["residual"]) if row["residual"] else None}
    return study, notes


def name(key):
    who, grid, threads = key
    if who != "textbook":
        return NAMES.get(who, who)
    return f"blocks {grid}x{grid}, threads {threads}x{threads}" if grid else "column by column, one thread"


def order(key):
    return (key[0] != "textbook", key[0] != "terrace", key[0], key[2], key[1])


def colour(key):
    return COLOURS.get(key[1:], "#d62728") if key[0] == "textbook" else OTHERS.get(key[0], "#888888")


def fit(points):
    """Coefficients c[p] of (n / 1000)^p, milliseconds, of least squares of the relative errors."""
    terms = min(4, len(points))
    rows = [([(n / 1000) ** p / ms for p in range(terms)], 1.0) for n, ms in points]
    system = [[sum(row[i] * row[j] for row, _ in rows) for j in range(terms)] +
              [sum(row[i] * value for row, value in rows)] for i in range(terms)]
    for k in range(terms):  # elimination with row exchanges
        pivot = max(range(k, terms), key=lambda i: abs(system[i][k]))
        system[k], system[pivot] = system[pivot], system[k]
        if system[k][k] == 0:
            return []
        for i in range(terms):
            if i != k:
                factor = system[i][k] / system[k][k]
                system[i] = [a - factor * b for a, b in zip(system[i], system[k])]
    return [system[i][terms] / system[i][i] for i in range(terms)]


def value(coefficients, n):
    return sum(c * (n / 1000) ** p for p, c in enumerate(coefficients))


def worst_error(coefficients, points):
    return max(abs(value(coefficients, n) / ms - 1) for n, ms in points)


def figure(number):
    return "-" if number is None else f"{number:.{max(0, 2 - math.floor(math.log10(number)))}f}" if number > 0 else "0"


def fit_lines(study):
    """One row of the table of fits for each line of the figure."""
    lines = []
    for key in sorted(study, key=order):
        points = [(n, row["ms"]) for n, row in sorted(study[key].items())]
        coefficients = fit(points)
        if coefficients:
            cells = [f"{c:.4g}" for c in coefficients] + ["-"] * (4 - len(coefficients))
            lines.append(f"| {name(key)} | {' | '.join(reversed(cells))} | {100 * worst_error(coefficients, points):.1f} % |")
    return lines


def write_markdown(path, study, notes):
    keys = sorted(study, key=order)
    sizes = sorted({n for points in study.values() for n in points})
    lines = ["Gauss-Jordan inversion column by column, against the default method: milliseconds of an inversion.", ""]
    lines += [note + "  " for note in notes] + [""]
    lines += ["| n | " + " | ".join(name(key) for key in keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for n in sizes:
        lines.append(f"| {n:,} | " + " | ".join(figure(study[key].get(n, {}).get("ms")) for key in keys) + " |")
    lines += ["", "At the largest size of each:", "", "| what | n | GFLOP/s of 2 n^3 | fraction of DGEMM | residual ratio |",
              "|---|---|---|---|---|"]
    for key in keys:
        n = max(study[key])
        row = study[key][n]
        lines.append(f"| {name(key)} | {n:,} | {figure(row['gflops'])} | {figure(row['fraction'])} | {figure(row['residual'])} |")
    lines += ["", "Fitted milliseconds, x = n / 1,000, least relative errors:", "",
              "| what | x^3 | x^2 | x | 1 | largest error |", "|---|---|---|---|---|---|"] + fit_lines(study)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + [""]))


def nice_step(span):
    """1, 2 or 5 times a power of ten, about six of them in the span."""
    step = 10 ** math.floor(math.log10(span / 6))
    return next(step * f for f in (1, 2, 5, 10) if span / (step * f) <= 7)


def write_svg(path, study):
    keys = sorted(study, key=order)
    if not keys:
        raise SystemExit("dense_seed_plot: no times to draw")
    sizes = sorted({n for points in study.values() for n in points})
    times = [row["ms"] for points in study.values() for row in points.values()]
    most, low = max(times) * 1.05, math.floor(math.log10(min(times)))
    high = max(low + 1, math.ceil(math.log10(max(times))))
    floor, width = HEIGHT - BOTTOM, LEFT + 2 * PANEL + GAP + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="12">',
           f'<rect width="{width}" height="{HEIGHT}" fill="white"/>']

    def line(x1, y1, x2, y2, stroke, dash=""):
        out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"' +
                   (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def text(x, y, words, anchor="middle", size=12):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>')

    def draw(x_of, y_of):
        for key in keys:
            points = [(n, row["ms"]) for n, row in sorted(study[key].items())]
            coefficients, first, last = fit(points), points[0][0], points[-1][0]
            curve = []
            for i in range(101):
                n = first * (last / first) ** (i / 100)
                ms = value(coefficients, n) if coefficients else 0
                if ms > 0 and floor + 1 >= y_of(ms) >= TOP - 1:
                    curve.append(f"{x_of(n):.1f},{y_of(ms):.1f}")
            dash = "" if key[0] == "textbook" else ' stroke-dasharray="6 4"'
            out.append(f'<polyline points="{" ".join(curve)}" fill="none" stroke="{colour(key)}" stroke-width="1.5"{dash}/>')
            out.extend(f'<circle cx="{x_of(n):.1f}" cy="{y_of(ms):.1f}" r="3.2" fill="{colour(key)}"/>' for n, ms in points)

    text(LEFT, 26, "Inversion column by column by the shape of its launches, against the default method", "start", 17)
    left, right = LEFT, LEFT + PANEL
    text((left + right) / 2, TOP - 12, "linear axes: milliseconds against n")
    step_x, step_y = nice_step(sizes[-1]), nice_step(most)
    x_linear = lambda n: left + n / sizes[-1] * (right - left)
    y_linear = lambda ms: floor - ms / most * (floor - TOP)
    for i in range(int(most / step_y) + 1):
        line(left, y_linear(i * step_y), right, y_linear(i * step_y), "#dddddd")
        text(left - 6, y_linear(i * step_y) + 4, f"{i * step_y:g}", "end")
    for i in range(int(sizes[-1] / step_x + 1e-9) + 1):
        line(x_linear(i * step_x), TOP, x_linear(i * step_x), floor, "#dddddd")
        text(x_linear(i * step_x), floor + 18, f"{i * step_x:g}")
    line(left, floor, right, floor, "#222222")
    line(left, TOP, left, floor, "#222222")
    draw(x_linear, y_linear)

    left2, right2 = right + GAP, right + GAP + PANEL
    text((left2 + right2) / 2, TOP - 12, "the same on logarithmic axes")
    span = math.log(sizes[-1] / sizes[0]) or 1
    x_log = lambda n: left2 + 10 + math.log(n / sizes[0]) / span * (right2 - left2 - 20)
    y_log = lambda ms: floor - (math.log10(ms) - low) / (high - low) * (floor - TOP)
    for power in range(low, high + 1):
        line(left2, y_log(10.0 ** power), right2, y_log(10.0 ** power), "#dddddd")
        text(left2 - 6, y_log(10.0 ** power) + 4, f"{10.0 ** power:g} ms", "end")
    shown = -math.inf
    for n in sizes:
        if x_log(n) - shown >= 34:
            shown = x_log(n)
            text(shown, floor + 18, f"{n:,}", size=11)
    line(left2, floor, right2, floor, "#222222")
    line(left2, TOP, left2, floor, "#222222")
    draw(x_log, y_log)

    for index, key in enumerate(keys):
        x, y = LEFT + index % 4 * 270, floor + 50 + index // 4 * 22
        line(x, y - 4, x + 26, y - 4, colour(key), "" if key[0] == "textbook" else "6 4")
        out.append(f'<circle cx="{x + 13}" cy="{y - 4}" r="3.2" fill="{colour(key)}"/>')
        text(x + 34, y, name(key), "start")
    text(LEFT, HEIGHT - 14, "points: measured; curves: a n^3 + b n^2 + c n + d with the least relative errors", "start", 11)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>", ""]))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    study, notes = read(sys.argv[1])
    write_svg(sys.argv[2] + ".svg", study)
    write_markdown(sys.argv[2] + ".md", study, notes)
    print("fitted milliseconds, x = n / 1,000: | what | x^3 | x^2 | x | 1 | largest error |")
    print("\n".join(fit_lines(study)))


if __name__ == "__main__":
    main()
