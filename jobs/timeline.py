#!/usr/bin/env python3
"""Draws what the threads of a run did when, from its --report.

timeline.py REPORT [REPORT ...] [-o FILE]     FILE: an SVG (timeline.svg), one panel per rank. Needs matplotlib.

A rank's rows are its lanes: "run" has the phases, "host" the thread that calls, "file" the threads that read and write beside it,
"device" what is prepared beside it. Work in two rows at one time is overlapped: the report's seconds.overlapped.
"""
import argparse
import json
import sys

import plot

LANES = ("run", "host", "file", "device")
COLOURS = {"start": "#9a9a9a", "read": "#4c78a8", "take": "#9ecae9", "solve": "#54a24b", "check": "#eeca3b", "write": "#e45756", "fetch": "#ff9d98"}


def ranks_of(path):
    """(title, spans) of each rank of a report."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        ranks = report["ranks_detail"]
        spans = [rank["timeline"] for rank in ranks]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        sys.exit(f"timeline.py: no timeline ({type(failure).__name__}); {path}; name a file that terrace wrote with --report, of a run that ended well")
    seconds = report["seconds"]
    total = max(span[3] for rank in spans for span in rank)
    title = f"{report['command']}, {total:.3g} s, {seconds.get('overlapped', 0):.2g} s overlapped"
    return [(title + (f", rank {rank['rank']}" if len(ranks) > 1 else ""), rank["timeline"]) for rank in ranks]


def draw(path, panels):
    pyplot = plot.pyplot_for(path)
    if pyplot is None:
        return
    last = max(span[3] for _, spans in panels for span in spans)
    figure, all_axes = pyplot.subplots(len(panels), 1, figsize=(8, 0.7 + 1.5 * len(panels)), squeeze=False, layout="constrained")
    for axes, (title, spans) in zip(all_axes[:, 0], panels):
        lanes = [lane for lane in LANES if any(span[0] == lane for span in spans)]
        for lane, what, start, end in spans:
            axes.broken_barh([(start, max(end - start, last / 2000))], (lanes.index(lane) - 0.4, 0.8), color=COLOURS.get(what, "#b279a2"))
            if end - start > last / 25:
                axes.text((start + end) / 2, lanes.index(lane), what, ha="center", va="center", fontsize=8)
        axes.set_yticks(range(len(lanes)), lanes)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_xlim(0, last)
        axes.set_title(title, fontsize=10, loc="left")
    all_axes[-1, 0].set_xlabel("seconds since the program was loaded")
    plot.save(figure, path)
    print(f"{path}: {len(panels)} ranks")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", metavar="REPORT")
    parser.add_argument("-o", "--output", default="timeline.svg")
    options = parser.parse_args()
    draw(options.output, [panel for path in options.reports for panel in ranks_of(path)])


main()
