#!/usr/bin/env python3
"""Seeds of the fuzz targets: corpus.py text|structure FOLDER"""
import io
import os
import sys

import numpy as np

target, folder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
if target == "text":
    head = "%%MatrixMarket matrix "
    seeds = [b"\x003\n1 2 3\n4 5 6\n7 8 9\n", b"\x002\r\n+1.5e-3\t-2\n3 4e300\n", b"\x01% a comment\n1 2\n\n3\n"]
    seeds += [b"\x02" + (head + text).encode() for text in (
        "coordinate real general\n3 4 2\n1 1 2.5\n3 4 -1\n", "coordinate pattern symmetric\n3 3 2\n1 1\n3 2\n", "array real general\n% c\n2 2\n1\n2\n3\n4\n",
        "coordinate real skew-symmetric\n3 3 1\n3 1 2\n", "array real skew-symmetric\n3 3\n1\n2\n3\n", "coordinate integer general\n2 2 0\n")]
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((3, 2), ">f4")), np.zeros(5, "i2"), np.ones((2, 9), bool)):
        for version in ((1, 0), (2, 0)):
            data = io.BytesIO()
            np.lib.format.write_array(data, array, version=version)
            seeds.append(b"\x03" + data.getvalue())
    seeds += [b"\x04" + text for text in (b"in.h5:/A/b", b":/b", b"C:/x.h5:/A", b"a:b.h5", b"in.h5:", b":")]
else:
    rng = np.random.default_rng(1)
    seeds = [bytes(rng.integers(0, 256, n, dtype=np.uint8)) for n in (0, 8, 20, 40, 80, 160, 320)] * 1 + [bytes(range(256))]
for k, seed in enumerate(seeds):
    with open(os.path.join(folder, f"seed-{k}"), "wb") as f:
        f.write(seed)
