#!/usr/bin/env python3
"""terrace cg with every layout, variant, preconditioner and norm, against NumPy: cg_options.py TERRACE [BACKEND]

Needs h5py, numpy and SciPy; runs in a temporary folder.
"""
import sys

import h5py
import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg

from terrace import ALL, Program, read_json

test = Program(sys.argv[1])
check = test.check
backend = sys.argv[2] if len(sys.argv) > 2 else "cpu"
rng = np.random.default_rng(8)


def run(command, code=0, ranks=0):
    """1 to 5 ranks in turn unless told; report and standard output."""
    done = test.run(f"{command} --backend {backend} --report r.json --force", ranks or test.turn(), code)
    return read_json(), done.out


points = 18
line = sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(points, points))
a = (sparse.kron(line, sparse.eye(points)) + sparse.kron(sparse.eye(points), line)).tocsr()
n, m, nrhs = a.shape[0], points, 5
dense = a.toarray()
truth = rng.standard_normal((n, nrhs))
b = dense @ truth
ab = np.zeros((m + 1, n))
for d in range(m + 1):
    ab[d, : n - d] = np.diagonal(dense, -d)
with h5py.File("in.h5", "w") as f:
    f["dense"] = dense
    f["band"] = ab
    f["band"].attrs["format"] = "band"
    g = f.create_group("csr")
    g["data"], g["indices"], g["indptr"] = a.data, a.indices, a.indptr
    g.attrs["shape"] = a.shape
    f["b"], f["one"], f["x0"] = b, b[:, 0], truth + 1e-6 * rng.standard_normal(truth.shape)
values = np.linalg.eigvalsh(dense)


def solved(command, rhs="b", tolerance=1e-10, **how):
    report, out = run(command + f" --rhs :/{rhs} -o x.h5", **how)
    with h5py.File("x.h5") as f:
        x, table = f["x"][:], f["residuals"][:]
    right = b if rhs == "b" else b[:, 0]
    check("x of " + command, x.shape == right.shape, str(x.shape))
    residual = np.linalg.norm(right - dense @ x, axis=0) / np.linalg.norm(right, axis=0)
    check(command, np.max(residual) <= 1.01 * tolerance, str(residual))
    iterations = max(r["iterations"] for r in report["result"].get("right_hand_sides", [report["result"]]))
    check("residuals of " + command, table.shape == (iterations, 2 if rhs == "one" else nrhs + 1) and
          (table[:, 0] == np.arange(1, iterations + 1)).all(), str(table.shape))
    return report, out


# A mesh whose rows are shuffled: no more is needed of other ranks than of an ordered one; x, x0 and residuals are in the file's order.
side = 12
path = sparse.diags([-1, -1], [-1, 1], shape=(side, side))
mesh = sparse.kronsum(sparse.kronsum(path, path), path).tocsr() + 6.5 * sparse.eye(side**3)
at = rng.permutation(side**3)
with h5py.File("mesh.h5", "w") as f:
    for name, matrix in (("ordered", mesh.tocsr()), ("shuffled", mesh.tocsr()[at][:, at])):
        g = f.create_group(name)
        g["data"], g["indices"], g["indptr"] = matrix.data, matrix.indices, matrix.indptr
        g.attrs["shape"] = matrix.shape
    f["b"] = rng.standard_normal(side**3)
    f["x0"] = np.linalg.norm(f["b"][:]) * 1e-9 * rng.standard_normal(side**3) + sparse.linalg.spsolve(mesh.tocsc()[at][:, at], f["b"][:])
for ranks in (1, 2, 3):
    halo, x, steps = {}, {}, {}
    for name, options in (("ordered", ""), ("shuffled", ""), ("shuffled", "--reorder"), ("shuffled", "--x0 :/x0"), ("shuffled", "--x0 :/x0 --reorder")):
        key = name, options
        halo[key], x[key], steps[key] = [], [], []
        for _ in range(1 + (options == "--reorder")):
            report, _ = run(f"cg mesh.h5:/{name} --rhs :/b -o x.h5 {options}", ranks=ranks)
            with h5py.File("x.h5") as f:
                x[key].append(f["x"][:])
            halo[key], steps[key] = report["halo"], report["result"]["iterations"]
        check("the same bits", np.array_equal(x[key][0], x[key][-1]), f"{key} {ranks}")
    kept = [x["shuffled", o][0] for o in ("", "--reorder")]
    check("x in the file's order", np.allclose(*kept, rtol=0, atol=1e-9 * np.abs(kept[0]).max()), f"{ranks} ranks: {np.abs(kept[0] - kept[1]).max()}")
    check("x0 in the file's order", 0 < steps["shuffled", "--x0 :/x0 --reorder"] <= steps["shuffled", "--x0 :/x0"] + 1 < steps["shuffled", ""], str(steps))
    found = halo["shuffled", "--reorder"]
    check("halo", found <= halo["ordered", ""] and (ranks == 1 and found == 0 or 0 < 3 * found < halo["shuffled", ""]), f"{ranks} ranks: {halo}")

# A graph of near points in any order, in two pieces and with lonely rows; small ones, also with fewer rows than ranks.
def stored(name, matrix):
    with h5py.File("graphs.h5", "a") as f:
        g = f.create_group(name)
        g["data"], g["indices"], g["indptr"] = matrix.data, matrix.indices, matrix.indptr
        g.attrs["shape"] = matrix.shape
        f[name + "_b"] = rng.standard_normal(matrix.shape[0])
        return f[name + "_b"][:]


def near_points(count, reach):
    points = rng.random((count, 2))
    points[: count // 3, 0] += 2  # apart from the others
    points[-5:] += 10 * np.arange(1, 6)[:, None]
    near = sparse.csr_matrix(((points[:, None] - points[None]) ** 2).sum(axis=2) < reach**2, dtype=float) - sparse.eye(count)
    return (sparse.diags(np.asarray(near.sum(axis=1)).ravel() + 0.1) - near).tocsr()


for name, matrix in (("graph", near_points(1500, 0.07)), ("tiny", sparse.csr_matrix([[2.0]])), ("small", near_points(7, 0.5))):
    right = stored(name, matrix)
    known = scipy.sparse.linalg.spsolve(matrix.tocsc(), right)
    for ranks in (1, 2, 5) if ALL or name == "graph" else test.some(1, 2) + (5,):
        halo = {}
        for options in ("", "--reorder", *(f"--reorder --preconditioner {one}" for one in test.some("amg", "ic"))):
            report, _ = run(f"cg graphs.h5:/{name} --rhs :/{name}_b -o x.h5 --rtol 1e-12 {options}", ranks=ranks)
            with h5py.File("x.h5") as f:
                check(f"{name} {options} on {ranks}", np.allclose(f["x"][:], known, rtol=0, atol=1e-9 * np.abs(known).max()))
            halo[options] = report["halo"]
            if options:
                check("halo before", report["partition"]["halo_before"] == halo[""], str(report["partition"]))
        if name == "graph" and ranks > 1:
            check("halo of near points", 4 * halo["--reorder"] < halo[""], f"{ranks} ranks: {halo}")
# What is wrong with a matrix is said in the file's numbers.
matrix = near_points(60, 0.4).tolil()
matrix[41, 7] = 3.5
stored("one-sided", matrix.tocsr())
matrix[7, 41] = 3.5
matrix[23, 23] = -1.0
stored("negative", matrix.tocsr())
for ranks in (1, 2, 3):
    done = test.run(f"cg graphs.h5:/one-sided --rhs :/one-sided_b -o x.h5 --force --reorder --backend {backend}", ranks, 3)
    check("not symmetric", "A[7, 41]" in done.err or "A[41, 7]" in done.err, done.err)
    report, _ = run("cg graphs.h5:/negative --rhs :/negative_b -o x.h5 --reorder --preconditioner jacobi", 4, ranks)
    check("a position in the file's order", report["result"]["position"] == 23, str(report["result"]))

plain = solved("cg in.h5:/csr", "one")[0]["result"]["iterations"]
for name in ("dense", "dense --layout rows", "band", "csr"):
    for options in test.part(("", "--at-once 2", "--at-once 1", "--preconditioner jacobi")):
        solved(f"cg in.h5:/{name} {options}")
    for method in ("single-reduction", "pipelined"):
        for preconditioner in test.part(("none", "jacobi", "block-jacobi", "ic", "chebyshev", "amg")):
            if preconditioner in ("ic", "amg") and name.startswith("dense"):
                continue
            r = solved(f"cg in.h5:/{name} --method {method} --preconditioner {preconditioner}{' --block 9' * (preconditioner == 'block-jacobi')}", "one")[0]
            check("iterations", r["result"]["iterations"] <= plain + 1, str(r["result"]))
            check("variant", r["variant"] == method and r["preconditioner"] == preconditioner)
    for preconditioner in test.part(("block-jacobi", "ic", "chebyshev --degree 5", "amg")):
        if preconditioner in ("ic", "amg") and name.startswith("dense"):
            continue
        r = solved(f"cg in.h5:/{name} --preconditioner {preconditioner}", ranks=1)[0]
        check("fewer " + preconditioner, r["result"]["iterations"] < plain, str(r["result"]["iterations"]))
for preconditioner in ("none", "jacobi", "block-jacobi", "ic", "chebyshev", "amg"):
    for ranks in test.some(1, 2, 3):
        r, _ = solved(f"cg in.h5:/csr --reorder --preconditioner {preconditioner}", ranks=ranks)
        parts = r["partition"]
        check("partition", parts["parts"] == ranks and (parts["method"] == "reverse-cuthill-mckee") == (ranks == 1), str(parts))
for name in ("dense", "band", "csr"):
    for preconditioner in test.part(("none", "jacobi", "block-jacobi", "chebyshev") + (() if name == "dense" else ("ic", "amg"))):
        r = solved(f"cg in.h5:/{name} --precision mixed --rtol 1e-12 --preconditioner {preconditioner}", tolerance=1e-12)[0]
        # On a GPU a small CSR system goes to its end in one launch, in FP64.
        check("mixed", r["precision"] == "mixed" and (r["result"]["restarts"] >= 2 or (backend, name) == ("cuda", "csr")), str(r["result"]))
solved("cg in.h5:/csr --precision mixed --reorder --guard")
for name in ("band", "csr"):  # what heads take is in the plan
    plans = [run(f"cg in.h5:/{name} --rhs :/one --plan --precision {precision}", ranks=1)[0]["memory"]["backend_bytes"] for precision in ("fp64", "mixed")]
    check("memory of heads", plans[0] < plans[1] < 1.5 * plans[0], f"{name}: {plans}")
# hypre, where this build has it and the backend is its own.
said = test.run(f"cg in.h5:/csr --rhs :/one -o x.h5 --force --preconditioner hypre --backend {backend}").err
if "no hypre" in said or backend != "cpu":
    check("no hypre", "hypre" in said and len(said.splitlines()) == 1, said)
else:
    for name in ("csr", "band", "csr --reorder", "csr --precision mixed", "band --method pipelined --guard"):
        for ranks in test.some(1, 2, 3):
            r = solved(f"cg in.h5:/{name} --preconditioner hypre", "one", ranks=ranks)[0]
            check("hypre", r["result"]["iterations"] < plain / 3 and r["preconditioner_details"]["hypre"], f"{ranks} ranks: {r['result']}, {plain}")
    solved("cg in.h5:/csr --preconditioner hypre", ranks=2)  # several right-hand sides
    check("hypre of a dense matrix", "dense" in test.run("cg in.h5:/dense --rhs :/one -o x.h5 --force --preconditioner hypre --backend cpu", code=2).err)
    check("hypre on a GPU", "--backend cpu" in test.run("cg in.h5:/csr --rhs :/one -o x.h5 --force --preconditioner hypre --backend cuda", code=2).err)
    r, out = run("cg in.h5:/csr --rhs :/one --plan --preconditioner hypre")
    check("plan of hypre", r["plan"]["plain_iterations"] > 0, out)
for norm in ("preconditioned", "natural"):
    solved(f"cg in.h5:/csr --preconditioner jacobi --norm {norm} --rtol 1e-12", tolerance=1e-10)

r, out = solved("cg in.h5:/band --monitor 4", "one")
lines = [l.split() for l in out.splitlines() if "residual 0" in l or " residual " in l and "e-" in l and "from" not in l]
lines = [l for l in lines if l[0].isdigit()]
check("monitor", [int(l[0]) for l in lines] == list(range(4, r["result"]["iterations"] + 1, 4)), out)
e = solved("cg in.h5:/csr --rtol 1e-13", "one", tolerance=1e-12)[0]["result"]["eigenvalues"]
check("eigenvalues", abs(e["largest"] / values[-1] - 1) < 1e-2 and abs(e["smallest"] / values[0] - 1) < 1e-2, str(e))
near = solved("cg in.h5:/csr --x0 :/x0")[0]["result"]
check("x0", 0 < near["iterations"] < plain and near["initial_residual"] < 1e-3, str(near))
r, out = run("cg in.h5:/dense --rhs :/b --plan")
check("plan", "direct solve" in out and "iteration" in out and r["plan"]["seconds_per_iteration"] > 0, out)

# The same bits on the same number of ranks.
for options in ("dense", "dense --layout rows", "dense --method pipelined", "dense --precision mixed", "band --precision mixed", "csr --precision mixed"):
    kept = []
    for _ in range(2):
        solved(f"cg in.h5:/{options}", ranks=3)
        with h5py.File("x.h5") as f:
            kept.append(f["x"][:])
    check("same bits " + options, (kept[0] == kept[1]).all())

# A diagonal block that is not positive definite stops block-Jacobi by its name.
bad = np.eye(40)
bad[10, 11] = bad[11, 10] = 2
with h5py.File("in.h5", "a") as f:
    f["bad"], f["bad_b"] = bad, np.ones(40)
done = test.run(f"cg in.h5:/bad --rhs :/bad_b -o y.h5 --preconditioner block-jacobi --block 8 --backend {backend} --report r.json --force", test.turn(), 4)
r = read_json()
check("bad block", r["result"]["reason"] == "indefinite-preconditioner" and r["result"]["position"] == 11, str(r["result"]))
check("bad block's message", "not positive definite, by row 11" in done.err and "dense solve" in done.err, done.err)

# A row without entries: without a preconditioner nothing sees it before the iterations do.
empty = 3 * np.eye(40) - np.eye(40, k=1) - np.eye(40, k=-1)
empty[7], empty[:, 7] = 0, 0
with h5py.File("in.h5", "a") as f:
    f["empty"] = empty
for ranks in (1, 2):
    said = test.run(f"cg in.h5:/empty --rhs :/bad_b -o y.h5 --backend {backend} --report r.json --force", ranks, 4).err
    check("empty row", read_json()["result"]["reason"] == "breakdown" and "singular" in said and "rows that are empty" in said, said)
r, _ = run("cg in.h5:/empty --rhs :/bad_b -o y.h5 --preconditioner jacobi", 4)
check("empty row, jacobi", r["result"]["reason"] == "indefinite-preconditioner" and r["result"]["position"] == 7, str(r["result"]))

print(f"{test.runs} runs")
test.finish()
