#!/usr/bin/env python3
"""terrace cg --preconditioner amg: iterations on meshes, jumps, stretched grids, graphs and elasticity; x against SciPy: cg_amg.py TERRACE [BACKEND]

Needs h5py, numpy and SciPy; runs in a temporary folder.
"""
import sys

import h5py
import numpy as np
import scipy.sparse as sparse

from amg_matrices import cube, elasticity, graph, jumps, random_spd, solid, stretched
from terrace import ALL, Program, read_json

test = Program(sys.argv[1])
check = test.check
backend = sys.argv[2] if len(sys.argv) > 2 else "cpu"
rng = np.random.default_rng(12)


def store(name, a, b=None):
    a = a.tocsr()
    a.sum_duplicates()
    with h5py.File("in.h5", "a") as f:
        g = f.create_group(name)
        g["data"], g["indices"], g["indptr"] = a.data, a.indices, a.indptr
        g.attrs["shape"] = a.shape
        f[name + "_b"] = rng.standard_normal(a.shape[0]) if b is None else b


def solve(name, options="", ranks=1, code=0, file="x.h5", tolerance=1e-10):
    test.run(f"cg in.h5:/{name} --rhs :/{name.split('/')[0]}_b -o {file} --force --backend {backend} --report r.json {options}", ranks, code)
    report = read_json()
    with h5py.File("in.h5") as f, h5py.File(file) as g:
        b, x = f[name + "_b"][:], g["x"][:]
    residual = np.linalg.norm(b - matrices[name] @ x) / np.linalg.norm(b)
    check(f"residual of {name} {options}", residual <= 1.02 * tolerance, f"{ranks} ranks: {residual}")
    return report, x


# name: (matrix, the most iterations of amg on one rank, on several)
matrices = {}
limits = {}
for name, a, most, several in (
        ("laplace", cube(32), 14, 16), ("layers", cube(24, (1, 1, 1e-3)), 14, 18), ("lines", cube(24, (1e-3, 1, 1e-3)), 13, 18),
        ("stretched", stretched(20, 100), 22, 30), ("jumps", jumps(32, 8, 1e4, rng), 18, 22), ("graph", graph(20000, 6, 1e-4, rng), 30, 34),
        ("elasticity", elasticity(40), 250, 270), ("random", random_spd(4000, 1e6, rng), 60, 70)):
    matrices[name], limits[name] = a, (most, several)
    store(name, a)
for name, (one, several) in limits.items():
    plain = solve(name)[0]["result"]["iterations"] if name != "jumps" else None
    seen = []
    for ranks in (1,) + (test.some(2, 4) if name in ("layers", "jumps") else (3,)):
        report, _ = solve(name, "--preconditioner amg", ranks)
        details = report["preconditioner_details"]
        seen.append(report["result"]["iterations"])
        check(f"{name}: iterations", seen[-1] <= (one if ranks == 1 else several), f"{seen} of {plain}")
        check(f"{name}: levels", details["levels"][0]["rows"] == matrices[name].shape[0] and details["levels"][0]["nonzeros"] == matrices[name].nnz
              and len(details["levels"]) > 1 and details["setup_seconds"] > 0, details)
        whole = details["levels_on_every_rank"]
        check(f"{name}: whole levels", 0 <= whole < len(details["levels"]) and (ranks > 1 or whole == 0)
              and (whole > 0 or ranks == 1 or name != "laplace"), (ranks, details))
        check(f"{name}: complexity", 1 < details["operator_complexity"] < 2.8 and np.isclose(
            details["operator_complexity"], sum(l["nonzeros"] for l in details["levels"]) / matrices[name].nnz), details)
    if plain and name not in ("elasticity", "random"):
        check(f"{name}: fewer", 2 * seen[0] < plain, f"{seen} of {plain}")
    print(f"{name}: n = {matrices[name].shape[0]}, {plain} iterations without, {seen} with amg on 1 and more ranks; levels "
          f"{[l['rows'] for l in details['levels']]}, complexity {details['operator_complexity']:.2f}", flush=True)

# Elastic bodies that keep their rigid body modes: in the plane and in space, a beam, jumps of 10^4, nearly incompressible, without the entries
# that cancel, rows of a roller's components gone; unknowns of a node are found.
young = np.kron(np.where(rng.integers(0, 2, (4, 4, 4)), 1e4, 1.0), np.ones((3, 3, 3)))[:, :11, :11]
roller = np.ones((12, 12, 12, 3), bool)
roller[:, 0, :, 1] = False
bodies = {"plane": (solid((40, 40)), 2, 22, 24), "body": (solid((14,) * 3), 3, 19, 22), "beam": (solid((60, 6, 6)), 3, 24, 28),
          "mixture": (solid((12,) * 3, 0.3, young), 3, 48, 54), "soft": (solid((12,) * 3, 0.45), 3, 36, 40), "cancelled": (solid((12,) * 3), 3, 19, 22),
          "roller": (solid((12,) * 3), None, 19, 22)}
bodies["cancelled"][0][0].data[abs(bodies["cancelled"][0][0].data) < 1e-12] = 0
bodies["cancelled"][0][0].eliminate_zeros()
for name, ((a, modes), unknowns, one, several) in bodies.items():
    if name == "roller":
        a, modes = a[roller.ravel()][:, roller.ravel()], modes[roller.ravel()]
    matrices[name] = a
    store(name, a)
    with h5py.File("in.h5", "a") as f:
        f[f"modes/{name}"] = modes
        f[f"basis/{name}"] = np.linalg.qr(modes)[0]
    constants = solve(name, "--preconditioner amg")[0]["result"]["iterations"]
    seen = []
    for ranks in (1,) + test.some(2, 3, 5):
        report, x = solve(name, f"--preconditioner amg --near-null-space :/modes/{name}", ranks)
        seen.append(report["result"]["iterations"])
        details = report["preconditioner_details"]
        check(f"{name}: details", details["near_null_space"] == modes.shape[1] and (unknowns is None or details["unknowns_per_node"] == unknowns)
              and details["operator_complexity"] < 2.8, details)
        check(f"{name}: iterations", seen[-1] <= (one if ranks == 1 else several), f"{seen} on 1 rank and others, with constants {constants}")
        if ranks in (2, 3) or ALL:
            check(f"{name}: the same bits", np.array_equal(x, solve(name, f"--preconditioner amg --near-null-space :/modes/{name}", ranks)[1]))
    check(f"{name}: fewer", 1.5 * seen[0] < constants, f"{seen}, with constants {constants}")
    report, _ = solve(name, f"--preconditioner amg --near-null-space :/basis/{name}", test.turn())
    check(f"{name}: another basis", report["result"]["iterations"] <= several, report["result"])
    print(f"{name}: n = {a.shape[0]}, {constants} iterations with constants, {seen} with rigid body modes on 1 rank and others", flush=True)
for options in ("--method single-reduction", "--method pipelined", "--norm preconditioned --rtol 1e-12", "--norm natural --rtol 1e-12", "--guard"):
    report, _ = solve("body", "--preconditioner amg --near-null-space :/modes/body " + options, test.turn())
    check(options, report["result"]["iterations"] <= 26, report["result"])
for ranks in (1, 3):
    report, _ = solve("body", "--preconditioner amg --near-null-space :/modes/body --reorder", ranks)
    check("reordered", report["result"]["iterations"] <= 20 and report["preconditioner_details"]["unknowns_per_node"] == 3, report)
with h5py.File("modes.h5", "w") as f, h5py.File("in.h5") as g:
    f["V"] = g["modes/body"][:].astype("f4")  # the only one there
    f["other"] = np.ones(3)
solve("body", "--preconditioner amg --near-null-space modes.h5", 2)
# One vector, of a scaled Laplace matrix: what was constant is not.
scale = 10.0 ** rng.uniform(-1, 1, matrices["laplace"].shape[0])
matrices["graded"] = (sparse.diags(scale) @ matrices["laplace"] @ sparse.diags(scale)).tocsr()
store("graded", matrices["graded"])
with h5py.File("in.h5", "a") as f:
    f["modes/graded"] = 1 / scale
seen = [solve("graded", "--preconditioner amg" + more, ranks)[0]["result"]["iterations"]
        for more, ranks in (("", 1), (" --near-null-space :/modes/graded", 1), (" --near-null-space :/modes/graded", 3))]
check("graded", 2 * max(seen[1:]) < seen[0] and max(seen[1:]) <= 24, seen)
print(f"graded: {seen[0]} iterations with constants, {seen[1:]} with one vector on 1 and 3 ranks", flush=True)

# What cannot be kept is refused.
with h5py.File("in.h5", "a") as f:
    modes, n = f["modes/body"][:], matrices["body"].shape[0]
    f["bad/short"], f["bad/many"], f["bad/zero"] = modes[:-3], np.ones((n, 33)), modes * [1, 1, 0, 1, 1, 1]
    f["bad/dependent"] = np.column_stack([modes, modes[:, 0] - 2 * modes[:, 4]])
    f["bad/nan"], f["bad/inf"] = modes.copy(), modes.copy()
    f["bad/nan"][n // 2, 3], f["bad/inf"][0, 0] = np.nan, np.inf
for name, words in (("short", f"has {n - 3} rows"), ("many", "33 vectors"), ("zero", "column 2"), ("dependent", "column 6"), ("nan", "NaN"), ("inf", "inf"), ("none", "none")):
    for ranks in test.some(1, 3):
        done = test.run(f"cg in.h5:/body --rhs :/body_b -o y.h5 --backend {backend} --preconditioner amg --near-null-space :/bad/{name}", ranks, 3)
        check(name, len(done.said) == 1 and words.lower() in done.said[0].lower() and "bad/" in done.said[0], done.said)
done = test.run(f"cg in.h5:/body --rhs :/body_b -o y.h5 --backend {backend} --preconditioner jacobi --near-null-space :/modes/body", 2, 2)
check("without amg", "--near-null-space" in done.err and "amg" in done.err, done.err)
memory = []
for more in ("", " --near-null-space :/modes/body"):
    _, _, report = test.reported(f"cg in.h5:/body --rhs :/body_b -o y.h5 --plan --preconditioner amg --backend {backend}" + more)
    memory.append(report["memory"]["backend_bytes"] + report["memory"]["host_bytes"])
# A GPU takes more beside the hierarchy.
check("plan: memory of six vectors", memory[1] > (1.05 if backend == "cuda" else 1.15) * memory[0], memory)

with h5py.File("in.h5", "a") as f:
    g = f.create_group("nothing")
    g["data"], g["indices"], g["indptr"] = np.ones(0), np.zeros(0, int), np.zeros(1, int)
    g.attrs["shape"] = 0, 0
    f["nothing_b"], f["modes/nothing"] = np.ones(0), np.ones((0, 3))
test.run(f"cg in.h5:/nothing --rhs :/nothing_b -o x.h5 --force --backend {backend} --preconditioner amg --near-null-space :/modes/nothing", 2, 0)

# The same bits again; every method, norm and number of right-hand sides; restarts; the guard; the order of rows.
for ranks in (1, 3):
    kept = [solve("layers", "--preconditioner amg", ranks)[1] for _ in range(2)]
    check("the same bits", np.array_equal(*kept))
for options in ("--method single-reduction", "--method pipelined", "--norm preconditioned --rtol 1e-12", "--norm natural --rtol 1e-12", "--guard"):
    report, _ = solve("jumps", "--preconditioner amg " + options, test.turn())
    check(options, report["result"]["iterations"] <= 26, report["result"])
solve("graph", "--preconditioner amg --reorder")
few = matrices["layers"]
rhs = few @ rng.standard_normal((few.shape[0], 3))
store("three", few, rhs)
test.run(f"cg in.h5:/three --rhs :/three_b -o x.h5 --force --backend {backend} --preconditioner amg --report r.json", 2, 0)
with h5py.File("x.h5") as f:
    residual = np.linalg.norm(rhs - few @ f["x"][:], axis=0) / np.linalg.norm(rhs, axis=0)
check("three right-hand sides", residual.max() <= 1.02e-10 and len(read_json()["result"]["right_hand_sides"]) == 3, residual)

# A band is the same matrix; dense is refused; bad and indefinite matrices are named.
p = 30
line = sparse.diags([-1, 2, -1], [-1, 0, 1], (p, p))
square = (sparse.kron(line, sparse.eye(p)) + 0.01 * sparse.kron(sparse.eye(p), line)).tocsr()
matrices["square"] = matrices["band"] = square
store("square", square)
with h5py.File("in.h5", "a") as f:
    ab = np.zeros((p + 1, p * p))
    for d in range(p + 1):
        ab[d, : p * p - d] = square.diagonal(-d)
    f["band"] = ab
    f["band"].attrs["format"] = "band"
    f["band_b"] = f["square_b"][:]
    f["dense"] = square[:50, :50].toarray()
    f["dense_b"] = np.ones(50)
for ranks in (1, 2, 3, 5):
    report, _ = solve("band", "--preconditioner amg", ranks)
    check("band", report["result"]["iterations"] <= 20 and len(report["preconditioner_details"]["levels"]) > 1, report["result"])
    check("band: nonzeros", report["preconditioner_details"]["levels"][0]["nonzeros"] == square.nnz, report["preconditioner_details"])
check("band and CSR", solve("band", "--preconditioner amg")[0]["result"]["iterations"] == solve("square", "--preconditioner amg")[0]["result"]["iterations"])
done = test.run(f"cg in.h5:/dense --rhs :/dense_b -o x.h5 --force --backend {backend} --preconditioner amg", 2, 2)
check("dense", "multigrid needs a sparse matrix" in done.err, done.err)
for name, matrix, reason, position in (
        ("indefinite", square - 0.05 * sparse.eye(p * p), "indefinite-matrix", None),
        ("negative", square - sparse.csr_matrix(([4.0], ([617], [617])), square.shape), "indefinite-preconditioner", 617)):
    store(name, matrix)
    for ranks in (1, 3):
        done = test.run(f"cg in.h5:/{name} --rhs :/{name}_b -o x.h5 --force --backend {backend} --preconditioner amg --report r.json", ranks, 4)
        result = read_json()["result"]
        check(f"{name}: advice", "correct the matrix" in done.err and "dense solve" not in done.err, done.err)
        check(name, result["reason"] == reason and result.get("position") == position, result)

# --plan says from where on it pays, and what memory it takes.
out, _, report = test.reported(f"cg in.h5:/laplace --rhs :/laplace_b -o y.h5 --plan --preconditioner amg --backend {backend}")
check("plan", "iterations without a preconditioner" in out and report["plan"]["plain_iterations"] > 1, out)
more = report["memory"]["backend_bytes"]
_, _, report = test.reported(f"cg in.h5:/laplace --rhs :/laplace_b -o y.h5 --plan --backend {backend}")
check("plan: memory", more > 1.5 * report["memory"]["backend_bytes"], report["memory"])

# Scales by powers of two change nothing, far beyond the squares' range.
matrices["scaled"] = None
first = solve("layers", "--preconditioner amg")[0]["result"]["iterations"]
for power in (-1000, -1, 300, 990) if ALL else (-1000, 990):
    with h5py.File("in.h5", "a") as f:
        for what in ("scaled", "scaled_b"):
            if what in f:
                del f[what]
        scaled = f.create_group("scaled")
        for what in ("indices", "indptr"):
            scaled[what] = f["layers/" + what][:]
        scaled["data"] = np.ldexp(f["layers/data"][:], power)
        scaled.attrs["shape"] = matrices["layers"].shape
        f["scaled_b"] = np.ldexp(f["layers_b"][:], power)
    test.run(f"cg in.h5:/scaled --rhs :/scaled_b -o x.h5 --force --backend {backend} --preconditioner amg --report r.json", 1, 0)
    check(f"2^{power}", read_json()["result"]["iterations"] == first, read_json()["result"])

print(f"{test.runs} runs")
test.finish()
