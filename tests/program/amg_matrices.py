"""Symmetric positive definite matrices of meshes, graphs and springs, for cg_amg.py and jobs/measure_amg.py."""
import numpy as np
import scipy.sparse as sparse
from scipy.spatial import cKDTree


def weighted(kx, ky, kz, shift=0.0):
    """Seven points with a face's weight between two cells, and a boundary whose value is zero; k: weights (n + 1 along their axis)."""
    n = ky.shape[0], kx.shape[1], kx.shape[2]
    number = np.arange(np.prod(n)).reshape(n)
    a = sparse.coo_matrix((np.prod(n),) * 2).tocsr()
    diagonal = np.full(n, shift)
    for axis, k in enumerate((kx, ky, kz)):
        k = np.moveaxis(k, axis, 0)
        cells = np.moveaxis(number, axis, 0)
        inside = k[1:-1].ravel()
        i, j = cells[:-1].ravel(), cells[1:].ravel()
        a = a - sparse.coo_matrix((np.concatenate([inside, inside]), (np.concatenate([i, j]), np.concatenate([j, i]))), a.shape)
        diagonal += np.moveaxis(k[:-1] + k[1:], 0, axis)
    return (a + sparse.diags(diagonal.ravel())).tocsr()


def cube(n, weights=(1, 1, 1)):
    return weighted(*[np.full([n + (i == axis) for i in range(3)], float(w)) for axis, w in enumerate(weights)])


def stretched(n, most):
    """Cells that grow from one wall to the other, `most` times in all, along each axis."""
    h = most ** (np.arange(n) / (n - 1.0))
    between = np.concatenate([[h[0]], (h[1:] + h[:-1]) / 2, [h[-1]]])
    shapes = np.ix_(h, h, h)
    faces = []
    for axis in range(3):
        area = shapes[(axis + 1) % 3] * shapes[(axis + 2) % 3]
        one = [1, 1, 1]
        one[axis] = n + 1
        faces.append(np.broadcast_to(area, [n if i != axis else 1 for i in range(3)]) / between.reshape(one))
    return weighted(*faces)


def jumps(n, block, most, rng):
    """Cells of two materials in blocks."""
    blocks = -(-n // block)
    k = np.kron(np.where(rng.integers(0, 2, (blocks,) * 3) > 0, float(most), 1.0), np.ones((block,) * 3))[:n, :n, :n]
    faces = []
    for axis in range(3):
        m = np.moveaxis(k, axis, 0)
        face = np.concatenate([m[:1], 2 * m[1:] * m[:-1] / (m[1:] + m[:-1]), m[-1:]])
        faces.append(np.moveaxis(face, 0, axis))
    return weighted(*faces)


def graph(n, degree, shift, rng):
    """The Laplacian of points in a square, each tied to its nearest ones, numbered at random."""
    points = rng.random((n, 2))
    _, near = cKDTree(points).query(points, degree + 1)
    i, j = np.repeat(np.arange(n), degree), near[:, 1:].ravel()
    a = sparse.coo_matrix((np.ones(len(i)), (i, j)), (n, n)).tocsr()
    a = a.maximum(a.T)
    return (sparse.diags(np.asarray(a.sum(1)).ravel() + shift) - a).tocsr()


def elasticity(n):
    """Springs along the edges and diagonals of a square grid of nodes, two unknowns a node, held at one side."""
    number = np.arange(n * n).reshape(n, n)
    rows, columns, values = [], [], []
    for dx, dy in ((0, 1), (1, 0), (1, 1), (1, -1)):
        i = number[: n - dx, max(0, -dy): n - max(0, dy)].ravel()
        j = number[dx:, max(0, dy): n + min(0, dy)].ravel()
        way = np.array([dx, dy]) / np.hypot(dx, dy)
        for u, v, sign in ((i, i, 1), (j, j, 1), (i, j, -1), (j, i, -1)):
            for p in range(2):
                for q in range(2):
                    rows.append(2 * u + p)
                    columns.append(2 * v + q)
                    values.append(np.full(len(u), sign * way[p] * way[q]))
    a = sparse.coo_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))).tocsr()
    free = np.arange(2 * n, 2 * n * n)
    return a[free][:, free].tocsr()


def random_spd(n, condition, rng):
    """Off-diagonals of any sign, and diagonals from 1 to the condition."""
    a = sparse.random(n, n, 4 / n, random_state=3, data_rvs=lambda k: rng.uniform(-1, 1, k)).tocsr()
    a = a + a.T
    scale = sparse.diags(condition ** (0.5 * rng.random(n)))
    return (scale @ (a + sparse.diags(np.asarray(abs(a).sum(1)).ravel() + 0.05)) @ scale).tocsr()


def stiffness(dim, poisson=0.3):
    """Of one linear element on the unit square (plane strain) or cube, by 2 Gauss points per axis: corners in binary order, the first axis lowest."""
    corners = (np.arange(2**dim)[:, None] >> np.arange(dim)) & 1
    lame, shear = poisson / ((1 + poisson) * (1 - 2 * poisson)), 0.5 / (1 + poisson)
    k = np.zeros((2**dim, dim, 2**dim, dim))
    for point in 0.5 + (corners - 0.5) / 3**0.5:
        one = np.where(corners, point, 1 - point)
        slope = np.stack([np.where(corners[:, i], 1, -1) * np.prod(np.delete(one, i, 1), 1) for i in range(dim)], 1)
        k += 2.0**-dim * (lame * np.einsum("ai,bj->aibj", slope, slope) + shear * np.einsum("aj,bi->aibj", slope, slope)
                          + shear * np.einsum("ak,bk,ij->aibj", slope, slope, np.eye(dim)))
    return k


def solid(shape, poisson=0.3, young=None):
    """An elastic body of square or cubic elements, as many nodes as `shape` beside those held where the first coordinate is zero; `young`: of
    each element. Unknowns of a node together, nodes with the first axis slowest. And its rigid body modes, three in the plane, six in space."""
    dim, shape = len(shape), tuple(shape)
    k = stiffness(dim, poisson)
    corners = (np.arange(2**dim)[:, None] >> np.arange(dim)) & 1
    elements = (shape[0],) + tuple(n - 1 for n in shape[1:])
    young = np.ones(elements) if young is None else np.asarray(young)
    held = (shape[0] + 1,) + shape[1:]
    number = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    offsets = np.stack(np.meshgrid(*[[-1, 0, 1]] * dim, indexing="ij"), -1).reshape(-1, dim)
    columns, blocks = [], []
    for way in offsets:
        block = np.zeros(held + (dim, dim))
        for a in range(2**dim):
            b = np.flatnonzero((corners == corners[a] + way).all(1))
            if len(b):
                at = tuple(slice(c, c + n) for c, n in zip(corners[a], elements))
                block[at] += young[(...,) + (None,) * 2] * k[a, :, b[0], :]
        column = np.full(shape, -1, np.int32)
        here = tuple(slice(max(0, -w), n - max(0, w)) for w, n in zip(way, shape))
        there = tuple(slice(max(0, w), n - max(0, -w)) for w, n in zip(way, shape))
        column[here] = number[there]
        columns.append(column.ravel())
        blocks.append(block[1:].reshape(-1, dim, dim))
    columns = np.stack(columns, 1)
    blocks = np.stack(blocks, 1)[columns >= 0]
    start = np.concatenate([[0], np.cumsum((columns >= 0).sum(1))])
    a = sparse.bsr_matrix((blocks, columns[columns >= 0], start), shape=(dim * number.size,) * 2).tocsr()
    x = np.stack(np.meshgrid(*[np.arange(n) / max(shape) for n in shape], indexing="ij"), -1).reshape(-1, dim)
    modes = [np.broadcast_to(np.eye(dim)[i], x.shape) for i in range(dim)]
    for i in range(dim):
        for j in range(i):
            turn = np.zeros(x.shape)
            turn[:, i], turn[:, j] = x[:, j], -x[:, i]
            modes.append(turn)
    return a, np.stack([m.ravel() for m in modes], 1)
