"""What the problems of differential.py share: a drawn command with its options, sizes, scales, right-hand sides."""
import h5py
import numpy as np

SIZES = [0, 1, 1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 100, 127, 128, 129, 150]
LONG = [192, 200, 255, 256, 257, 300, 320, 383]


class Problem:
    def __init__(self, case, words, what=""):
        self.case, self.words, self.what = case, words + case.forms.options, what
        self.codes, self.ranks, self.may_refuse = {0}, 0, False
        self.exact = self.restarts = self.same_ranks_only = False
        self.bits_on = self.restart_on = None  # lists of ranks, [] for the first run's alone
        self.verifies = True  # a result with exit 0 passes `verify`
        self.restart_bits = True
        self.seen = None
        self.judge = lambda done, name: None
        self.judge_outcome = lambda done: None

    def option(self, *words, refused=False):
        self.words += [str(w) for w in words]
        self.may_refuse |= refused

    def same_bits_on(self, ranks):
        """Numbers of ranks on which the bits are those of a run on `ranks`; [ranks]: on a second one."""
        if self.same_ranks_only:
            return [ranks]
        every = self.bits_on if self.bits_on is not None else [] if self.ranks else [1, 2, 3, 4]
        return [r for r in every if r != ranks]

    def continues_on(self, ranks):
        """Numbers of ranks that go on from a checkpoint of `ranks`."""
        if self.restart_on is None:
            return [ranks] if self.same_ranks_only or self.ranks else [1, 2, 3, 4]
        return self.restart_on if self.restart_on and not self.ranks else [ranks]

    def fixed(self, done):
        """Options that pin what `auto` chose; None where nothing does."""
        if "mixed" in self.words:
            return None
        extra, report = [], done.report or {}
        if "--block" not in self.words and isinstance(report.get("block"), int) and report["block"] > 0:
            extra += ["--block", str(report["block"])]
        if "partition" in self.words and "--parts" not in self.words and "parts" in report:  # four ranks take four, fewer three
            extra += ["--parts", str(report["parts"])]
        return extra

    def common(self):
        draw = self.case.draw
        if draw.chance(0.1):
            self.option("--seed", draw.whole(0, 2**31))
        if draw.chance(0.1):
            self.option("--progress", draw.pick(["auto", "always", "never"]))
        if draw.chance(0.1):
            self.option("--quiet")
        if draw.chance(0.05):
            self.option("--no-bind")
        if draw.chance(0.08):
            self.option("--no-check")


def read(case, name, key):
    with h5py.File(case.path(name)) as f:
        return f[key][...], dict(f[key].attrs)


def size(draw, long=0.2):
    return draw.pick(LONG) if draw.chance(long) else draw.pick(SIZES)


def second_file(case):
    return "rhs.h5" if case.draw.chance(0.2) else "in.h5"


def exponent(draw):
    return draw.pick([0, 0, 0, 0, 10, -10, 100, -100, 300, -300, 900, -900])


def right_sides(draw, n, shift):
    """B such that X, of a matrix of 2^shift, is a number."""
    columns = draw.pick([0, 0, 0, 1, 2, 3, 5, 17])  # 0: 1-D
    if draw.chance(0.02):
        b = np.zeros((n, max(1, columns)))
    else:
        b = draw.rng.standard_normal((n, max(1, columns)))
    b = np.ldexp(b, draw.pick([0, 0, shift // 2, shift, max(-900, min(900, shift + exponent(draw) // 2))]))
    return b[:, 0] if columns == 0 else b


def where_rhs(file):
    return ":/b" if file == "in.h5" else file + ":/b"
