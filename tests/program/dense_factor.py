#!/usr/bin/env python3
"""dense factor, dense solve --factor, --assume and --method lu|cholesky, on 1 to 5 ranks: dense_factor.py TERRACE

NumPy and SciPy are the oracles. Any option that a factor or Cholesky's method would not obey is refused.
"""
import sys

import h5py
import numpy as np
import scipy.linalg

from terrace import Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
random = np.random.default_rng(25)


def ratio(a, x, b):
    """LAPACK's residual, per column, in long double: a and x may be near the ends of the range."""
    a, x, b = (np.asarray(v, np.longdouble) for v in (a, x, b))
    if a.size == 0:
        return 0
    scale = len(a) * np.finfo(float).eps * np.abs(a).sum(axis=1).max() * np.abs(x).max(axis=0)
    return float((np.abs(b - a @ x).max(axis=0) / scale).max())


def spd(n):
    g = random.normal(size=(n, n))
    return g @ g.T / n + np.eye(n)


signs = np.where(random.normal(size=(90, 90)) < 0, -1.0, 1.0)  # pivots of equal size
growth = np.tril(-np.ones((60, 60)), -1) + np.eye(60)
growth[:, -1] = 1
matrices = {
    "random": random.normal(size=(150, 150)), "signs": signs, "one": np.array([[-3.0]]), "tiny": random.normal(size=(70, 70)) * 1e-290,
    "huge": random.normal(size=(70, 70)) * 1e290, "graded": random.normal(size=(60, 60)) * np.logspace(0, -40, 60)[:, None],
    "swapped": np.eye(65)[random.permutation(65)] * np.arange(1, 66)[:, None], "spd": spd(130), "larger": random.normal(size=(333, 333)),
}
singular = random.normal(size=(80, 80))
singular[:, 37] = 0
almost = matrices["spd"].copy()
almost[3, 100] = np.nextafter(almost[3, 100], 9)
indefinite = matrices["spd"].copy()
indefinite[90, 90] = -1
with h5py.File("in.h5", "w") as f:
    for name, a in {**matrices, "singular": singular, "growth": growth, "almost": almost, "indefinite": indefinite}.items():
        f[name] = a
        f[name + "_b"] = random.normal(size=(len(a), 3))
        f[name + "_v"] = random.normal(size=len(a))
    f["columns"] = matrices["spd"].T.copy()
    f["columns"].attrs["order"] = "column-major"


def read(file, name):
    with h5py.File(file) as f:
        return f[name][()]


# --- P A = L U, and any number of ranks solves with it -------------------------------------------
for k, (name, a) in enumerate(matrices.items()):
    n, ranks = len(a), (1, 3, 2, 1, 2, 3, 4, 5, 1, 3)[k]
    block = " --block 24" if k % 2 else ""
    pivoting = " --pivoting tournament" if k in (0, 6, 9) else ""
    remove("f.h5")
    test.run(f"dense factor in.h5:/{name} -o f.h5 --report r.json{block}{pivoting}", ranks, 0)
    report, what = read_json(), f"factor of {name} on {ranks}"
    lu, pivots = read("f.h5", "factor"), read("f.h5", "pivots")
    power = h5py.File("f.h5")["factor"].attrs["power"]
    lower, upper = np.tril(lu, -1) + np.eye(n), np.triu(lu)
    same_bits = report["backend"] == "cpu"  # on any number of ranks; a GPU's products depend on their sizes
    check(what, sorted(pivots) == list(range(n)), "pivots")
    check(what, report["pivoting"] == "tournament" or np.abs(lower).max() <= 1 + 1e-12, "|L| above one")
    scaled = np.asarray(a[pivots], np.longdouble) * np.longdouble(2) ** int(power)
    product = np.asarray(lower, np.longdouble) @ np.asarray(upper, np.longdouble)
    off = np.abs(product - scaled).max() / (n * 2.3e-16 * np.abs(upper).max() + 1e-300)
    check(what, off < 30, f"off by {off}")
    with np.errstate(all="ignore"):
        sign, size = np.linalg.slogdet(np.asarray(np.asarray(a, np.longdouble) * np.longdouble(2) ** int(power), float))
    size -= n * int(power) * np.log(2)
    check(what, report["result"]["determinant_sign"] == sign, "sign")
    check(what, abs(report["result"]["log_abs_determinant"] - size) < 1e-8 * max(1, abs(size)), "determinant")
    check(what, report["method"] == "lu" and report["residual"] < 30 and report["result"]["reciprocal_condition"] > 0, str(report))
    test.run("verify f.h5", test.turn(), 0)
    for rhs, solvers in (("b", (1, 2, 5)), ("v", (3,))):
        b, seen = read("in.h5", f"{name}_{rhs}"), []
        for ranks in solvers[:1] + test.some(*solvers[1:]) if rhs == "b" else solvers:
            remove("x.h5")
            test.run(f"dense solve in.h5:/{name} --rhs :/{name}_{rhs} --factor f.h5:/factor -o x.h5 --report r.json", ranks, 0)
            x = read("x.h5", "x")
            known, again = report["result"]["reciprocal_condition"], read_json()["result"]["reciprocal_condition"]
            check(f"{what}, solved on {ranks}", known < 1e-8 or abs(again - known) < 1e-4 * known, f"reciprocal condition {again}, of the factor {known}")
            check(f"{what}, solved on {ranks}", x.shape == b.shape and ratio(a, x, b) < 30, f"{x.shape}, {ratio(a, x, b)}")
            seen.append(x.tobytes())
        check(what, len(set(seen)) == 1 or not same_bits, "other bits on other ranks")
    test.run("verify x.h5", test.turn(), 0)

# --- what a factor does not take --------------------------------------------------------------------
test.run("dense factor in.h5:/random -o f.h5 --force", 2, 0)
for options, words in (("--method gauss-jordan", "--method"), ("--pivoting partial", "--pivoting"), ("--assume spd", "--assume"), ("--guard", "--guard"),
                       ("--precision emulated", "--precision"), ("--checkpoint c.h5", "--checkpoint")):
    done = test.run(f"dense solve in.h5:/random --rhs :/random_b --factor f.h5 -o bad.h5 {options}", 1, 2)
    check(options, words in done.said[-1] and "--factor" in done.said[-1], str(done.said))
done = test.run("dense factor in.h5:/singular -o bad.h5 --report r.json", 3, 4)
check("singular", read_json()["result"]["first_zero_pivot"] == 37, str(done.said))
done = test.run("dense factor in.h5:/growth -o bad.h5", 2, 4)
check("growth", "residual" in done.said[-1], str(done.said))
with h5py.File("in.h5", "r+") as f:  # elements grow to 2^16: what the factor is held against afterwards must know of it
    f["grown"] = growth[-17:, -17:]
test.run("dense factor in.h5:/grown -o grown.h5", 1, 0)
done = test.run("verify grown.h5", 2, 0)
check("growth", "divided by the growth 3.9e+03" in done.out, done.out)
with h5py.File("grown.h5", "r+") as f:
    f["factor"][9, 3] += 1e-6
test.run("verify grown.h5", 3, 4)
done = test.run("dense solve in.h5:/larger --rhs :/larger_b --factor f.h5 -o bad.h5", 2, 3)
check("another order", "order 150" in done.said[-1] and "333" in done.said[-1], str(done.said))
test.run("dense factor in.h5:/spd -o g.h5", 1, 0)
with h5py.File("in.h5", "r+") as f:
    f["other"] = matrices["spd"] + np.eye(130)
for ranks in (1, 3):
    done = test.run("dense solve in.h5:/other --rhs :/spd_b --factor g.h5 -o bad.h5", ranks, 4)
    check("another matrix's factor", "residual" in done.said[-1], str(done.said))
for damage, words in (("del f['factor'].attrs['power']", "power"), ("f['pivots'][0] = f['pivots'][1]", "permutation"), ("f['pivots'][0] = 5000", "permutation"),
                      ("del f['pivots']", "pivots")):
    test.run("dense factor in.h5:/random -o bad_f.h5 --force", 1, 0)
    with h5py.File("bad_f.h5", "r+") as f:
        exec(damage, {"f": f})
    done = test.run("dense solve in.h5:/random --rhs :/random_b --factor bad_f.h5:/factor -o bad.h5", 2, 3)
    check(damage, words in done.said[-1], str(done.said))
    check(damage, test.run("verify bad_f.h5").code != 0, "verify passes")
test.run("dense factor in.h5:/random -o bad_f.h5 --force", 1, 0)
with h5py.File("bad_f.h5", "r+") as f:
    f["factor"][100, 20] += 1
test.run("verify bad_f.h5", 2, 4)

# --- in one group, with a name of its own; interrupted; the plan ------------------------------------
test.run("dense factor in.h5:/random -o all.h5:/here", 2, 0)
test.run("dense solve in.h5:/random --rhs :/random_b --factor all.h5:/here/factor -o all.h5:/x", 1, 0)
check("groups", ratio(matrices["random"], read("all.h5", "x/x"), read("in.h5", "random_b")) < 30, "")
test.run("dense factor in.h5:/random --plan", 1, 0)
remove("c.h5", "f2.h5", "f3.h5")
test.run("dense factor in.h5:/larger -o f2.h5 --block 32", 2, 0)
test.run("dense factor in.h5:/larger -o f3.h5 --block 32 --guard --checkpoint c.h5 --checkpoint-every 0.001s", 3, 0)
for name in ("factor", "pivots"):
    check("with checkpoints and check sums", (read("f2.h5", name) == read("f3.h5", name)).all() or not same_bits, name + " differs")

# --- symmetric positive definite ----------------------------------------------------------------------
a, b = matrices["spd"], read("in.h5", "spd_b")
log_determinant = np.linalg.slogdet(a)[1]
for k, options in enumerate(("--method cholesky", "--assume spd", "--assume auto", "--assume spd --guard", "--assume spd --block 16", "--method cholesky --no-check")):
    for name in ("spd", "columns"):
        ranks = (1, 2, 3, 4, 5)[k % 5]
        remove("x.h5")
        test.run(f"dense solve in.h5:/{name} --rhs :/spd_b -o x.h5 --report r.json {options}", ranks, 0)
        report, what = read_json(), f"{name} {options} on {ranks}"
        check(what, report["method"] == "cholesky", report["method"])
        check(what, ratio(a, read("x.h5", "x"), b) < 30, "x")
        check(what, abs(report["result"]["log_abs_determinant"] - log_determinant) < 1e-9 * abs(log_determinant) + 1e-9, "determinant")
        check(what, report["result"]["determinant_sign"] == 1, "sign")
        test.run("verify x.h5", test.turn(), 0)
for name in ("almost", "indefinite"):
    for options in ("--assume spd", "--assume auto"):
        for ranks in test.some(1, 3):
            remove("x.h5")
            done = test.run(f"dense solve in.h5:/{name} --rhs :/{name}_b -o x.h5 --report r.json {options}", ranks, 0)
            report, what = read_json(), f"{name} {options} on {ranks}"
            check(what, report["method"] == "lu", report["method"])
            check(what, ("minor of order 91" if name == "indefinite" else "not symmetric") in str(report["warnings"]), str(report["warnings"]))
            check(what, ratio(read("in.h5", name), read("x.h5", "x"), read("in.h5", f"{name}_b")) < 30, "x")
            test.run("verify x.h5", 2, 0)
remove("x.h5")
test.run("dense solve in.h5:/random --rhs :/random_b -o x.h5 --report r.json --assume auto", 2, 0)
check("auto on a general matrix", read_json()["method"] == "lu" and not read_json()["warnings"], str(read_json()["warnings"]))
for name, code, words in (("almost", 3, "not symmetric"), ("random", 3, "not symmetric"), ("indefinite", 4, "91")):
    done = test.run(f"dense solve in.h5:/{name} --rhs :/{name}_b -o bad.h5 --method cholesky", 2, code)
    check(f"cholesky of {name}", words in done.said[-1], str(done.said))
for options in ("--assume spd --method lu", "--assume general --method cholesky", "--assume spd --pivoting partial", "--method cholesky --precision emulated"):
    test.run(f"dense solve in.h5:/spd --rhs :/spd_b -o bad.h5 {options}", 1, 2)

# --- the methods of a solution -----------------------------------------------------------------------
for name in ("random", "signs", "tiny", "huge", "graded", "swapped"):
    seen = []
    for ranks in (1,) + test.some(2, 3, 5):
        remove("x.h5")
        test.run(f"dense solve in.h5:/{name} --rhs :/{name}_b -o x.h5 --method lu", ranks, 0)
        seen.append(read("x.h5", "x").tobytes())
    check(name, len(set(seen)) == 1 or not same_bits, "LU has other bits on other ranks")
    test.run(f"dense solve in.h5:/{name} --rhs :/{name}_b -o x.h5 --force --method gauss-jordan", 2, 0)
    check(name, ratio(matrices[name], read("x.h5", "x"), read("in.h5", f"{name}_b")) < 30, "gauss-jordan")
import os  # noqa: E402

check("nothing is left", not os.path.exists("bad.h5"), "bad.h5")
test.finish()
