"""Tables and figures of the studies: what the *_plot.py beside this share.

A figure is panels, a panel is lines or bars:

    draw("out.svg", "Title", [Panel("A x = b", [Line("terrace", {100: 0.2, 200: 0.9}, "#1f5fbf")], x="n", y="ms")])

The same numbers give the same bytes. Drawing needs matplotlib, the tables do not: without it one line says what to install.
"""
import csv
import math
import re
from dataclasses import dataclass, field

INSTALL = "drawing needs matplotlib; install python3-matplotlib by apt, or matplotlib by pip"
GREY = "#888888"


def read(path):
    """The rows of a CSV file, and its comment lines."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    return list(csv.DictReader(line for line in lines if not line.startswith("#"))), notes


def digits(number):
    """Three significant digits, no exponent."""
    if number is None or number != number:
        return "-"
    return f"{number:.{max(0, 2 - math.floor(math.log10(abs(number))))}f}" if number else "0"


@dataclass
class Line:
    label: str
    points: dict  # x: y
    colour: str = GREY
    style: str = "-"
    marker: str = "o"  # "": none
    filled: bool = True


@dataclass
class Panel:
    title: str
    lines: list = field(default_factory=list)
    bars: dict = field(default_factory=dict)  # group: {label: (height, colour)}
    x: str = ""
    y: str = ""
    log: str = "xy"  # the axes that are logarithmic
    ticks: list = field(default_factory=list)  # of x; where there is room they have their numbers
    level: tuple = ()  # (y, label): a dotted line across


def identity(*words):
    """The name of a line or a bar in the file: line-PANEL-LABEL."""
    return re.sub("[^A-Za-z0-9]+", "-", " ".join(map(str, words)))


def decades(axes, which, values):
    """Logarithmic, from one power of ten to another; its numbers are written out."""
    from matplotlib import ticker
    axis, limits = (axes.xaxis, axes.set_xlim) if which == "x" else (axes.yaxis, axes.set_ylim)
    low = math.floor(math.log10(min(values)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))
    limits(0.88 * 10.0**low, 10.0**high / 0.88)  # points on the edge are seen whole
    axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:,g}" if 1e-4 <= v < 1e6 else f"1e{round(math.log10(v))}"))


def set_ticks(axes, ticks):
    """A mark at each number; its text where that leaves a gap to the one before."""
    from matplotlib import ticker
    place = math.log if axes.get_xscale() == "log" else float
    low, high = (place(v) for v in axes.get_xlim())
    shown, last = [], -math.inf
    for t in sorted(ticks):
        at = (place(t) - low) / (high - low)
        wide = 0.012 * (len(f"{t:,}") + 2)  # about, of a panel
        shown.append(f"{t:,}" if at - last > wide else "")
        last = at if shown[-1] else last
    axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(ticks)))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter(shown))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def draw_lines(axes, panel, number):
    for line in panel.lines:
        points = sorted(line.points.items())
        drawn = axes.plot([x for x, _ in points], [y for _, y in points], color=line.colour, linestyle=line.style, marker=line.marker or None,
                          markersize=4, markerfacecolor=line.colour if line.filled else "white", label=line.label, linewidth=1.6)
        drawn[0].set_gid(identity("line", number, line.label))
    heights = [y for line in panel.lines for y in line.points.values()]
    if panel.level:
        axes.axhline(panel.level[0], color="#222222", linestyle=":", linewidth=1.6, label=panel.level[1])
        heights.append(panel.level[0])
    places = sorted({x for line in panel.lines for x in line.points})
    if "y" in panel.log:
        axes.set_yscale("log")
        decades(axes, "y", heights)
    else:
        axes.set_ylim(0, 1.05 * max(heights))
    if "x" in panel.log:
        axes.set_xscale("log")
        room = (places[-1] / places[0])**0.04 if places[-1] > places[0] else 2
        axes.set_xlim(places[0] / room, places[-1] * room)
    if panel.ticks:
        set_ticks(axes, panel.ticks)


def draw_bars(axes, panel, number):
    most = max(len(bars) for bars in panel.bars.values())
    for place, (group, bars) in enumerate(panel.bars.items()):
        for k, (label, (height, colour)) in enumerate(bars.items()):
            at = place + (k - (len(bars) - 1) / 2) * 0.8 / most
            axes.bar(at, height, 0.72 / most, color=colour, label=label)[0].set_gid(identity("bar", number, group, label))
            axes.annotate(digits(height), (at, height), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    heights = [height for bars in panel.bars.values() for height, _ in bars.values()]
    axes.set_yscale("log")
    decades(axes, "y", heights + [min(heights) / 2, 1.2 * max(heights)])
    axes.set_xticks(range(len(panel.bars)), list(panel.bars))


def pyplot_for(path):
    """matplotlib's pyplot in the style of our figures; None without matplotlib, which is said of `path`."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        print(f"{path}: not drawn; {INSTALL}")
        return None
    pyplot.rcParams.update({"svg.hashsalt": "terrace", "svg.fonttype": "none", "font.size": 10, "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True,
                            "grid.color": "#dddddd", "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
                            "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]})
    return pyplot


def save(figure, path):
    """The same numbers give the same bytes."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def draw(path, title, panels, across=2, note="", columns=0, share=False, size=(6.2, 4.4)):
    """Writes an SVG. `columns`: of one legend below all panels; 0: each panel has its own. False without matplotlib."""
    if pyplot := pyplot_for(path):
        across = min(across, len(panels))
        down = math.ceil(len(panels) / across)
        labels = {line.label for panel in panels for line in panel.lines} | {label for panel in panels for bars in panel.bars.values() for label in bars}
        heights = [size[1]] * down + ([0.2 * math.ceil(len(labels) / columns) + 0.1] if columns else [])  # the last one: a legend of all
        figure = pyplot.figure(figsize=(size[0] * across, sum(heights)), layout="constrained")
        spec = figure.add_gridspec(len(heights), across, height_ratios=heights)
        figure.suptitle(title, fontsize=13, x=0.01, ha="left")
        entries, first = {}, None
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(spec[number // across, number % across], sharey=first if share else None)
            first = first or axes
            axes.set_title(panel.title, fontsize=11)
            axes.set_xlabel(panel.x)
            if not share or number % across == 0:
                axes.set_ylabel(panel.y)
            (draw_bars if panel.bars else draw_lines)(axes, panel, number)
            handles, labels = axes.get_legend_handles_labels()
            own = dict(zip(labels, handles))
            entries = {**entries, **own}
            if not columns:
                axes.legend(own.values(), own, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=9)
        if share:
            decades(first, "y", [y for panel in panels for line in panel.lines for y in line.points.values()])
        if columns:
            axes = figure.add_subplot(spec[down, :])
            axes.axis("off")
            axes.legend(entries.values(), entries, loc="center", ncols=columns, fontsize=9)
        if note:
            figure.supxlabel(note, fontsize=9, x=0.01, ha="left", color="#555555")
        save(figure, path)
        pyplot.close(figure)
    return pyplot is not None
