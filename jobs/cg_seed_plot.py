#!/usr/bin/env python3
"""Tables and figure of jobs/cg_seed.sh.

    cg_seed_plot.py MEASURED.csv OUTPUT

Writes OUTPUT.md, and OUTPUT.svg: milliseconds against n on logarithmic axes of the sum, of the product, of a solve by
conjugate gradients on CPU and GPU and by Cramer's rule, and of conjugate gradients on the GPU alone. The figure needs
matplotlib.
"""
import sys

from plot import GREY, Line, Panel, digits, draw, read

COLOURS = {("textbook", "cpu"): "#d62728", ("terrace", "cpu"): "#ff8c1a", ("container", "cpu"): "#e8b23a",
           ("textbook", "cuda"): "#1f5fbf", ("terrace", "cuda"): "#2a9d4a", ("container", "cuda"): "#7fc8a0",
           ("textbook-third-dimension", "cuda"): "#8e44ad", ("textbook-block", "cuda"): "#e77fb3",
           ("elimination", "cpu"): "#222222", ("expansion", "cpu"): "#888888"}
NAMES = {"textbook": {"sum": "textbook", "product": "textbook, a thread an element", "cg": "textbook's gradients"},
         "textbook-third-dimension": "third grid dimension, atomic additions", "textbook-block": "a block an element",
         "container": "with the result's memory", "elimination": "Cramer, elimination", "expansion": "Cramer, expansion",
         "terrace": {"sum": "terrace", "product": "terrace", "cg": "terrace's gradients"}}
LIBRARY = {"cpu": "OpenBLAS", "cuda": "cuBLAS"}


def study_of(path):
    """{what: {(who, backend): {n: row}}} with numbers in the rows, notes."""
    rows, notes = read(path)
    study = {}
    number = lambda text: float(text) if text else None
    for row in rows:
        if row["what"] == "bound":  # n at most; rate, fraction, peak_bytes: by the grid covered once, the grid here, memory
            study.setdefault("bound", {})[row["who"], row["backend"]] = {
                "most": int(row["n"]), "once": number(row["rate"]), "by": row["unit"], "here": number(row["fraction"]),
                "memory": number(row["peak_bytes"]), "matrices": int(row["matrices"])}
            continue
        line = study.setdefault(row["what"], {}).setdefault((row["who"], row["backend"]), {})
        line[int(row["n"])] = {key: number(row[key]) for key in
                               ("rate", "fraction", "iterations", "residual", "peak_bytes", "matrices")}
        line[int(row["n"])].update(ms=1e3 * float(row["seconds"]), unit=row["unit"])
    return study, notes


def name(what, key):
    who, backend = key
    words = NAMES.get(who, who)
    words = words.get(what, who) if isinstance(words, dict) else words
    if what == "product" and who == "terrace":
        words += f" ({LIBRARY[backend]})"
    return f"{words}, {'GPU' if backend == 'cuda' else 'CPU'}"


def order(key):
    return (key[1], list(COLOURS).index(key) if key in COLOURS else len(COLOURS))


def table(study, what, lines):
    points = study.get(what, {})
    keys = sorted(points, key=order)
    sizes = sorted({n for line in points.values() for n in line})
    lines += ["| n | " + " | ".join(name(what, key) for key in keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for n in sizes:
        lines.append(f"| {n:,} | " + " | ".join(digits(points[key].get(n, {}).get("ms")) for key in keys) + " |")
    lines += ["", "At the largest size of each:", "", "| what | n | rate | fraction of the bound | iterations | residual |",
              "|---|---|---|---|---|---|"]
    for key in keys:
        n = max(points[key])
        row = points[key][n]
        residual = "-" if row["residual"] is None else f"{row['residual']:.2g}"
        lines.append(f"| {name(what, key)} | {n:,} | {digits(row['rate'])} {row['unit']} | {digits(row['fraction'])} | "
                     f"{'-' if row['iterations'] is None else int(row['iterations'])} | {residual} |")
    lines.append("")


def write_markdown(path, study, notes):
    lines = ["Sums, products and solves of dense matrices, by the textbook and here: milliseconds.", ""]
    lines += [note + "  " for note in notes] + [""]
    for what, title in (("sum", "Sum of two n x n matrices; bound: reading memory (24 bytes an element)"),
                        ("product", "Product of two n x n matrices; bound: DGEMM"),
                        ("cg", "Solves by conjugate gradients to a relative residual of 1e-10; bound: reading memory. "
                               "The textbook reads all of A, rates are of what each must move"),
                        ("cramer", "Cramer's rule; determinants by elimination (n up to 32) and by expansion (n up to 10)")):
        if study.get(what):
            lines += [f"## {title}", ""]
            table(study, what, lines)
    if study.get("memory"):
        lines += ["## Peak memory of c = a + b, counted at the allocator", "",
                  "| what | backend | n | GB | matrices alive |", "|---|---|---|---|---|"]
        words = {"operand-moved": "std::move(a) + b: the sum takes a's memory",
                 "result-moved": "c = a + b: both operands stay, the result is moved",
                 "copied": "the same without moves: the result is copied out"}
        for (who, backend), points in sorted(study["memory"].items(), key=lambda item: (item[0][1], item[1][max(item[1])]["matrices"])):
            for n, row in sorted(points.items()):
                lines.append(f"| {words.get(who, who)} | {backend} | {n:,} | {row['peak_bytes'] / 1e9:.4g} | {row['matrices']:.2f} |")
        lines.append("")
    if study.get("bound"):
        order_of = lambda value: "-" if value is None else f"{int(value):,}"
        lines += ["## Largest orders n of square matrices", "",
                  "By the grid: that of the article, which covers the matrix once (rows along y, at most 65,535 blocks); and here, where",
                  "blocks go on with further rows. By memory: what was free for so many matrices. Computed from the device's properties.", "",
                  "| what | backend | grid covered once | grid here | memory | matrices | n at most | by |", "|---|---|---|---|---|---|---|---|"]
        for (who, backend), row in study["bound"].items():
            lines.append(f"| {who.replace('-', ' ', 1)} | {backend} | {order_of(row['once'])} | {order_of(row['here'])} | {order_of(row['memory'])} | "
                         f"{row['matrices']} | {order_of(row['most'])} | {row['by']} |")
        lines.append("")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def panel(title, what, points):
    lines = []
    for key in sorted(points, key=order):
        ms = {n: row["ms"] for n, row in points[key].items() if row["ms"] > 0}
        if ms:
            lines.append(Line(name("cramer" if key[0] in ("elimination", "expansion") else what, key), ms, COLOURS.get(key, GREY)))
    return Panel(title, lines, x="n", y="ms", ticks=sorted({n for line in lines for n in line.points}))


def write_svg(path, study):
    gradients = study.get("cg", {})
    panels = [("c = a + b", "sum", study.get("sum", {})), ("C = A B", "product", study.get("product", {})),
              ("A x = b", "cg", {**gradients, **study.get("cramer", {})}),
              ("A x = b, conjugate gradients on the GPU", "cg", {key: line for key, line in gradients.items() if key[1] == "cuda"})]
    panels = [panel(*each) for each in panels if each[2]]
    if not panels:
        raise SystemExit("cg_seed_plot: no times to draw")
    draw(path, "Matrices on CPU and GPU: milliseconds against n, logarithmic axes", panels)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    study, notes = study_of(sys.argv[1])
    write_svg(sys.argv[2] + ".svg", study)
    write_markdown(sys.argv[2] + ".md", study, notes)


if __name__ == "__main__":
    main()
