#!/usr/bin/env python3
"""Table and figure of jobs/dense_seed.sh.

    dense_seed_plot.py MEASURED.csv OUTPUT

Writes OUTPUT.md, and OUTPUT.svg: milliseconds of an inversion against n on linear axes, with fitted curves, and the
same on logarithmic axes, where the default method is seen too. The fit of every line is a polynomial of third degree
in n (of lower degree for fewer than four sizes) with the least relative errors; it is printed. The figure needs matplotlib.
"""
import sys

from plot import GREY, Line, Panel, digits, draw, read

# Red, green, blue: 16 x 16 threads; purple, orange, pink: 32 x 32 threads.
COLOURS = {(8, 16): "#d62728", (16, 16): "#2a9d4a", (32, 16): "#1f5fbf",
           (8, 32): "#8e44ad", (16, 32): "#ff8c1a", (32, 32): "#e77fb3", (0, 0): "#d62728"}
OTHERS = {"terrace": "#222222", "lapack": GREY, "cusolver": GREY}
NAMES = {"terrace": "default method", "lapack": "LAPACK getrf + getri", "cusolver": "cuSOLVER getrf + getrs"}


def study_of(path):
    """{(who, grid, threads): {n: row}} with numbers in the rows, notes."""
    rows, notes = read(path)
    study = {}
    for row in rows:
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
    return COLOURS.get(key[1:], "#d62728") if key[0] == "textbook" else OTHERS.get(key[0], GREY)


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
        lines.append(f"| {n:,} | " + " | ".join(digits(study[key].get(n, {}).get("ms")) for key in keys) + " |")
    lines += ["", "At the largest size of each:", "", "| what | n | GFLOP/s of 2 n^3 | fraction of DGEMM | residual ratio |",
              "|---|---|---|---|---|"]
    for key in keys:
        n = max(study[key])
        row = study[key][n]
        lines.append(f"| {name(key)} | {n:,} | {digits(row['gflops'])} | {digits(row['fraction'])} | {digits(row['residual'])} |")
    lines += ["", "Fitted milliseconds, x = n / 1,000, least relative errors:", "",
              "| what | x^3 | x^2 | x | 1 | largest error |", "|---|---|---|---|---|---|"] + fit_lines(study)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + [""]))


def lines_of(study, key, least):
    """The measured points, and the fitted curve where it is above `least`."""
    points = {n: row["ms"] for n, row in sorted(study[key].items())}
    coefficients, first, last = fit(list(points.items())), min(points), max(points)
    places = [first * (last / first) ** (i / 100) for i in range(101)]
    curve = {n: value(coefficients, n) for n in places if coefficients and value(coefficients, n) > least}
    measured = Line(name(key), points, colour(key), "" if curve else "-")
    return [measured] + ([Line("", curve, colour(key), "-" if key[0] == "textbook" else "--", "")] if curve else [])


def write_svg(path, study):
    if not study:
        raise SystemExit("dense_seed_plot: no times to draw")
    sizes = sorted({n for points in study.values() for n in points})
    least = min(row["ms"] for points in study.values() for row in points.values()) / 2
    lines = [line for key in sorted(study, key=order) for line in lines_of(study, key, least)]
    draw(path, "Inversion column by column by the shape of its launches, against the default method",
         [Panel("linear axes: milliseconds against n", lines, x="n", y="ms", log=""),
          Panel("the same on logarithmic axes", lines, x="n", y="ms", ticks=sizes)],
         columns=4, note="points: measured; curves: a n^3 + b n^2 + c n + d with the least relative errors", size=(6.8, 5.2))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    study, notes = study_of(sys.argv[1])
    write_svg(sys.argv[2] + ".svg", study)
    write_markdown(sys.argv[2] + ".md", study, notes)
    print("fitted milliseconds, x = n / 1,000: | what | x^3 | x^2 | x | 1 | largest error |")
    print("\n".join(fit_lines(study)))


if __name__ == "__main__":
    main()
