#!/usr/bin/env python3
"""What is kept for the check gives the results of an input that is read twice, and a file that changes is refused: kept_input.py TERRACE

TERRACE_KEEP_INPUT=1 keeps it on the CPU too. The second reading is seen in the report's timeline. Needs h5py and numpy, and a build with
tests.
"""
import json
import os
import subprocess
import sys
import threading

import h5py
import numpy as np

from given import band, change_after_stamp, write_band
from terrace import Program, launcher_folder, left_over, remove

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(5)
n = 1100  # above it an inverse is checked by vectors
packed = np.packbits(rng.integers(0, 2, (n, n), dtype=np.uint8), axis=1, bitorder="little")
packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
a = rng.normal(size=(n, n)) + np.diag(np.full(n, 60.0))
with h5py.File("in.h5", "w") as f:
    f["A"] = a
    f["huge"] = a * 2.0**900  # is scaled
    f["turned"] = a.T
    f["turned"].attrs["order"] = "column-major"
    f.create_dataset("chunks", data=a, chunks=(100, 100), compression="gzip")
    f["b"] = rng.normal(size=(n, 3))
    f["bits"] = packed
    f["bits"].attrs["columns"] = n
    f["right"] = rng.integers(0, 2, (n, 3), dtype=np.uint8)
write_band(band(rng, n, 7), rng.normal(size=n), "band.h5")
with h5py.File("band.h5", "r+") as f:
    f["rows"] = f["A"][:].T
    f["rows"].attrs.update({"format": "band", "uplo": "lower", "order": "column-major"})

dense = ["dense invert in.h5:/A", "dense invert in.h5:/huge", "dense solve in.h5:/A --rhs :/b", "dense solve in.h5:/huge --rhs :/b",
         "dense solve in.h5:/turned --rhs :/b", "dense factor in.h5:/A", "dense solve in.h5:/A --rhs :/b --method gauss-jordan"]
bits = ["gf2 rref in.h5:/bits", "gf2 rref in.h5:/bits --echelon", "gf2 rank in.h5:/bits", "gf2 kernel in.h5:/bits",
        "gf2 rref in.h5:/bits --transform"]
bands = [f"band {what} band.h5:/{name} --method {method}" for what, name, method in
         (("solve", "A", "auto"), ("solve", "A", "tile-columns"), ("solve", "rows", "partition"), ("factor", "A", "tile-columns"))]


def datasets(name):
    found = {}
    with h5py.File(name) as f:
        f.visititems(lambda path, o: found.update({path: o[()].tobytes()}) if isinstance(o, h5py.Dataset) else None)
    return found


def reads_again(report):
    return any(what == "read again" for rank in report["ranks_detail"] for _, what, _, _ in rank["timeline"])


def compare(command, ranks, kept):
    """The same numbers with and without; `kept`: whether it can be."""
    command += " --rhs :/b" if command.startswith("band solve") else ""
    seen = []
    for wanted in ("0", "1"):
        done = test.run(f"{command} -o x.h5 --report r.json --force", ranks, None, env={"TERRACE_KEEP_INPUT": wanted})
        report = json.load(open("r.json"))
        check(command, reads_again(report) == (kept and wanted == "1"), f"{ranks} ranks, {wanted}: the file is read again, or not")
        seen.append((done.code, datasets("x.h5") if done.code == 0 else done.said, report.get("residual", report.get("certificate"))))
        remove("x.h5")
    check(command, seen[0][0] == seen[1][0] and seen[0][1] == seen[1][1], f"{ranks} ranks: {seen[0][0]} {seen[1][0]}")
    before, after = seen[0][2], seen[1][2]
    # The kept input is multiplied in other pieces, and a small residual is rounding of that product, too.
    same = before == after if not isinstance(before, float) else abs(before - after) <= 0.3 * before + 1e-9
    check(command, same, f"{ranks} ranks: the residual is {before}, and {after} of what was kept")


for ranks in (1, 3):
    for command in dense:
        # Columns of a rank are short runs of a column-major file.
        compare(command, ranks, "turned" not in command or ranks == 1)
    for command in bits:
        compare(command, ranks, True)
    for command in bands:
        if ranks == 1 or "partition" not in command:
            compare(command, ranks, ranks == 1)
with h5py.File("in.h5", "r+") as f:  # of full rank
    f["bits"][:] = np.pad(np.packbits(np.triu(rng.integers(0, 2, (n, n), dtype=np.uint8), 1) | np.eye(n, dtype=np.uint8), axis=1,
                                      bitorder="little"), ((0, 0), (0, 8 * packed.shape[1] - (n + 7) // 8))).view(np.uint64)
compare("gf2 inverse in.h5:/bits", 1, True)
compare("dense solve in.h5:/chunks --rhs :/b", 1, False)
compare("dense solve in.h5:/A --rhs :/b --guard", 2, False)
done = test.run("dense solve in.h5:/A --rhs :/b --no-check -o x.h5 --report r.json", 1, 0, env={"TERRACE_KEEP_INPUT": "1"})
check("no check", not reads_again(json.load(open("r.json"))))
remove("x.h5")
for first, others in (("1", "0"), ("0", "1")):  # the first rank's word counts on all
    words = [test.path, "dense", "invert", "in.h5:/A", "-o", "x.h5", "--report", "r.json"]
    command = ["mpirun", "-n", "1", "env", f"TERRACE_KEEP_INPUT={first}", *words, ":", "-n", "2", "env", f"TERRACE_KEEP_INPUT={others}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=test.env(launcher_folder()))
    check("ranks that differ", done.returncode == 0 and reads_again(json.load(open("r.json"))) == (first == "1"), f"{first} and {others}: {done.stderr[:300]}")
    remove("x.h5")

# --- the file is changed between the two readings --------------------------------------------------
for ranks in (1, 3):
    for command, name, path in (("dense invert in.h5:/A", "in.h5", "A"), ("dense solve in.h5:/A --rhs :/b", "in.h5", "A"),
                                ("gf2 rref in.h5:/bits", "in.h5", "bits"), ("band solve band.h5:/A --rhs :/b", "band.h5", "A")):
        if ranks > 1 and command.startswith("band"):
            continue
        with h5py.File(name) as f:
            value = f[path][0, 7]
        # The last digit alone: a residual would not see it.
        other = value ^ np.uint64(1 << 40) if path == "bits" else np.nextafter(value, np.inf)
        thread = threading.Thread(target=change_after_stamp, args=(name, path, (0, 7), other))
        thread.start()
        done = test.run(f"{command} -o new.h5", ranks, 3, env={"TERRACE_KEEP_INPUT": "1", "TERRACE_TEST_FAULT": "0:solve:wait",
                        "TERRACE_TEST_WAIT": "2", "TERRACE_TEST_STAMP": "stamp", "HDF5_USE_FILE_LOCKING": "FALSE"})
        thread.join()
        remove("stamp")
        check(command, len(done.said) == 1 and "other numbers" in done.said[0] and name in done.said[0], f"{ranks} ranks: {done.err[:300]}")
        check(command, not os.path.exists("new.h5") and not left_over(), f"{ranks} ranks: something is left")
        with h5py.File(name, "r+") as f:
            f[path][0, 7] = value
test.finish()
