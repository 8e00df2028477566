#!/usr/bin/env python3
"""--plan --ranks N --gpu NAME: for machines that are not here. On CPUs the same memory as a real run on so many ranks plans; for
known GPUs (builds with CUDA; none is needed) every family, what does not fit, and seconds against a replay written here.

plan_machines.py TERRACE     Needs h5py and numpy; runs in a temporary folder.
"""
import json
import re
import sys

import h5py
import numpy as np

from terrace import Program

test = Program(sys.argv[1], TERRACE_THREADS="1", TERRACE_PROFILE="none.json")
check = test.check

# Files with shapes and no data: a plan reads none.
def bits(rows, columns):
    return {"A": ((rows, -(-columns // 64)), "u8", {"columns": columns, "format": "bits"}), "b": ((rows, 1), "u8", {"columns": 1, "format": "bits"})}


def dense(n):
    return {"A": ((n, n), "f8", {}), "b": ((n, 1), "f8", {})}


def band(n, m):
    return {"A": ((m + 1, n), "f8", {"format": "band"}), "b": ((n, 1), "f8", {})}


def csr(n, nonzeros):
    return {"A/data": ((nonzeros,), "f8", {}), "A/indices": ((nonzeros,), "i8", {}), "A/indptr": ((n + 1,), "i8", {}), "b": ((n, 1), "f8", {}),
            "": {"encoding-type": "csr_matrix", "shape": (n, n)}}


def make(sets):
    with h5py.File("in.h5", "w") as f:
        for name, form in sets.items():
            if name:
                shape, kind, attributes = form
                f.create_dataset(name, shape, kind).attrs.update(attributes)
        if "" in sets:
            f["A"].attrs.update(sets[""])


def planned(words, ranks=1, more="", code=0, **env):
    done = test.run(f"{words} -o out.h5 --plan {more} --json", ranks, code, env)
    return json.loads(done.out)["result"]["plan"] if done.code == 0 else {}


COMMANDS = {
    "bits": ["gf2 rref in.h5:/A", "gf2 rref in.h5:/A --echelon", "gf2 rank in.h5:/A", "gf2 solve in.h5:/A --rhs :/b", "gf2 kernel in.h5:/A",
             "gf2 inverse in.h5:/A", "gf2 determinant in.h5:/A", "gf2 multiply in.h5:/A :/A", "gf2 rref in.h5:/A --method tables"],
    "dense": ["dense invert in.h5:/A", "dense solve in.h5:/A --rhs :/b", "dense solve in.h5:/A --rhs :/b --method gauss-jordan", "dense factor in.h5:/A",
              "dense solve in.h5:/A --rhs :/b --method cholesky", "dense invert in.h5:/A --block 64 --pivoting tournament",
              "cg in.h5:/A --rhs :/b", "cg in.h5:/A --rhs :/b --layout rows --preconditioner jacobi"],
    "band": ["band factor in.h5:/A", "band solve in.h5:/A --rhs :/b", "band solve in.h5:/A --rhs :/b --method two-ends",
             "band solve in.h5:/A --rhs :/b --method partition", "cg in.h5:/A --rhs :/b --method pipelined --preconditioner block-jacobi"],
    "csr": ["cg in.h5:/A --rhs :/b", "cg in.h5:/A --rhs :/b --preconditioner chebyshev --at-once 1"],
}
SMALL = {"bits": bits(3000, 3000), "dense": dense(900), "band": band(20000, 150), "csr": csr(30000, 200000)}

# 1. Help shows the options where --plan is, and nowhere else.
for words in sorted({command.split(" in.h5")[0] for commands in COMMANDS.values() for command in commands}):
    help_text = test.run(words + " --help", code=0).out
    check(f"{words}: help", "--ranks N" in help_text and "--gpu h100|h200" in help_text, help_text)
for words in ("bench dense", "info", "convert in.h5 out.npy", "generate dense-random --n 3 -o x.h5"):
    test.refused(words + " --ranks 2", 2, "--ranks")

# 2. Bad values, contradictions: usage errors of one line, and nothing is written.
make(SMALL["dense"])
WORDS = "dense invert in.h5:/A -o out.h5"
for value in ("0", "-1", "1000000000", "65537", "two", "1.5"):
    test.refused(f"{WORDS} --plan --ranks {value}", 2, "--ranks", "1 to 65536")
for value in ("v100", "H200", "0"):
    test.refused(f"{WORDS} --plan --gpu {value}", 2, "--gpu", "h100 or h200")
for more in ("--ranks 2", "--gpu h200", "--ranks 64 --gpu h100"):
    test.refused(f"{WORDS} {more}", 2, more.split()[0], "add --plan")
test.refused(f"{WORDS} --plan --gpu h200 --backend cpu", 2, "--backend cpu")
test.refused(f"{WORDS} --plan --ranks 3", 2, "start one", ranks=2)

# 3. On CPUs: what so many ranks plan that are there.
for kind, commands in COMMANDS.items():
    make(SMALL[kind])
    for at, words in enumerate(commands):
        for ranks in {2 + at % 3, 3}:
            there = planned(words, ranks, "--backend cpu")
            here = planned(words, 1, f"--backend cpu --ranks {ranks}")
            check(f"{words}, {ranks} ranks: memory", there.get("memory_per_rank") == here.get("memory_per_rank"), (there.get("memory_per_rank"), here))
            check(f"{words}, {ranks} ranks: a host each", here.get("ranks_per_host") == 1 and here.get("fits"), here)
# What a plan reads after all, a few rows and stored pivots: on this rank alone, in chunks too.
values = np.random.default_rng(1).random((90, 90))
with h5py.File("in.h5", "w") as f:
    f.create_dataset("A", data=values @ values.T + 90 * np.eye(90), chunks=(7, 11), compression="gzip")
    f.create_dataset("b", data=values[0], chunks=(10,))
test.run("dense factor in.h5:/A -o factor.h5 --quiet --backend cpu", code=0)
test.run("dense factor in.h5:/A --method cholesky -o cholesky.h5 --quiet --backend cpu", code=0)
for words in ("dense solve in.h5:/A --rhs :/b --assume auto", "dense factor in.h5:/A --assume auto", "dense solve in.h5:/A --rhs :/b --factor factor.h5",
              "dense solve in.h5:/A --rhs :/b --factor cholesky.h5"):
    there, here = planned(words, 3, "--backend cpu"), planned(words, 1, "--backend cpu --ranks 3")
    check(f"{words}: memory", there and there["memory_per_rank"] == here.get("memory_per_rank"), (there, here))

make(SMALL["dense"])
done = test.run(f"{WORDS} --plan --ranks 5 --backend cpu", code=0)
check("the machine is said", re.search(r"^machine +5 ranks like this one, 1 per host", done.out, re.M), done.out)
test.refused(f"{WORDS} --plan --method textbook --ranks 2", 2, "textbook", "one rank")  # as on two ranks that are there
make(dense(2_000_000))
there = planned("dense invert in.h5:/A", 1, "--backend cpu --ranks 4")
check("32 TB: does not fit, and how many would do", not there["fits"] and there["ranks_needed"] > 64, there)

if re.search(r"^CUDA  ", test.run("info", code=0).out, re.M) is None:
    make(SMALL["dense"])
    test.refused(f"{WORDS} --plan --gpu h200", 5, "built without CUDA", "needs no GPU")
    test.finish(test.skipped("plans for GPUs: this terrace was built without CUDA"))

# 4. Every family, on GPUs that are not here.
LARGE = {"bits": bits(200_000, 200_000), "dense": dense(40_000), "band": band(500_000, 1200), "csr": csr(10_000_000, 70_000_000)}
for kind, commands in COMMANDS.items():
    make(LARGE[kind])
    for words in commands:
        plans = {(gpu, ranks): planned(words, 1, f"--gpu {gpu} --ranks {ranks}") for gpu in ("h100", "h200") for ranks in (1, 2, 8, 64, 512)}
        for (gpu, ranks), plan in plans.items():
            what = f"{words}, {ranks} {gpu}"
            memory, machine = plan["memory_per_rank"], plan["machine"]
            check(f"{what}: on the device", memory["device_bytes"] > 0 and memory["host_bytes"] > 0, memory)
            check(f"{what}: fits", plan["fits"] == (memory["device_bytes"] <= machine["free_bytes"]), plan)
            check(f"{what}: hosts", plan["ranks_per_host"] == min(ranks, 8) == min(ranks, machine["gpus_per_host"]), plan)
            check(f"{what}: seconds", 0 < plan["seconds"]["solve"] < 1e5 and plan["seconds"]["total"] > plan["seconds"]["solve"], plan["seconds"])
            check(f"{what}: constants", all(c["value"] > 0 and c["unit"] and len(c["source"]) > 9 for c in machine["constants"].values()), machine)
            check(f"{what}: the chips are alike", memory == plans["h200", ranks]["memory_per_rank"] or "multiply" in words or "solve in" in words, memory)
        for gpu in ("h100", "h200"):
            each = [plans[gpu, ranks]["memory_per_rank"]["device_bytes"] for ranks in (1, 2, 8, 64)]
            check(f"{words}: ranks share", each[3] < each[0], each)
        check(f"{words}: HBM3e is not slower", plans["h200", 1]["seconds"]["solve"] <= plans["h100", 1]["seconds"]["solve"], words)
# Small ones, which a GPU solves in one launch.
for sets in (dense(1000), csr(100_000, 2_000_000)):
    make(sets)
    for gpu in ("h100", "h200"):
        plan = planned("cg in.h5:/A --rhs :/b", 1, f"--gpu {gpu}")
        check(f"a small system on {gpu}", plan and plan["fits"] and 0 < plan["seconds"]["iteration"] < 1e-4, plan)
done = test.run("cg in.h5:/A --rhs :/b -o out.h5 --plan --ranks 64 --gpu h200", code=0)
check("the machine is said", re.search(r"^machine +64 ranks, each with an NVIDIA H200, 8 per host", done.out, re.M), done.out)
check("the rates are", re.search(r"^rates +built in, of NVIDIA H200", done.out, re.M), done.out)

# What fits on one GPU and not on the other, or only on several.
SOLVE = "dense solve in.h5:/A --rhs :/b --plan --gpu h200"
LEFT_OUT = re.compile("^note +FP64 is faster at this order; leave --precision mixed out$", re.M)
for order, ranks, options, loses in ((900, 1, "", False), (900, 1, "--precision mixed", True), (16_384, 1, "--precision mixed", False),
                                     (16_384, 2, "--precision mixed", True), (40_000, 2, "--precision mixed", False)):
    make(dense(order))
    done = test.run(f"{SOLVE} --ranks {ranks} {options}", code=0)
    check(f"n = {order}, {ranks} GPUs {options}: note", (LEFT_OUT.search(done.out) is not None) == loses, done.out)
make(dense(110_000))  # 97 GB
fits = {(gpu, ranks): planned("dense invert in.h5:/A", 1, f"--gpu {gpu} --ranks {ranks}") for gpu in ("h100", "h200") for ranks in (1, 2)}
check("97 GB", [fits["h100", 1]["fits"], fits["h100", 2]["fits"], fits["h200", 1]["fits"]] == [False, True, True], fits)
check("97 GB: two would do", fits["h100", 1]["ranks_needed"] == 2 and any("2 ranks" in a for a in fits["h100", 1]["advice"]), fits["h100", 1])
done = test.run("dense invert in.h5:/A -o out.h5 --plan --gpu h100", code=0)
line = [text for text in done.out.splitlines() if text.startswith("does not fit")]
check("one line says so", len(line) == 1 and "device memory" in line[0] and "2 ranks" in line[0], done.out)


# 5. Seconds against a replay of the schedule that shares no code with the program's.
def rates_of(plan):
    return {name: c["value"] for name, c in plan["machine"]["constants"].items()}


def call(rates, ranks, size, efficiency=1.0):
    """One call: on one host by peer memory, between hosts of eight by NCCL and eight adapters."""
    if ranks == 1:
        return 0.0
    hosts = -(-ranks // 8)
    if hosts == 1:
        return 1 / rates["message"] + size / (rates["exchange"] * efficiency)
    return 1 / rates["call"] + (hosts - 1).bit_length() / rates["hop"] + size / (8 * rates["network"] * efficiency)


def slowed(start, work, busy):
    """The end of `work` that begins at `start`, 1.5 times as long while another lane is busy."""
    overlap = max(0.0, busy - start)
    return start + min(1.5 * work, overlap) + max(0.0, work - overlap / 1.5)


def rref(rates, n, b, ranks):
    per_width = [(512, 0.197), (2048, 0.62), (4096, 0.83)]
    speed = rates["bits"] * dict(per_width)[b]
    words, rows, panels, updates = -(-n // 64) + 2, -(-n // ranks), 0.0, 0.0
    for first in range(0, n, b):
        p, width = min(b, n - first), words - first / 64
        search = p / rates["pivot"] + 8 * rows / rates["to_device"] + 1 / rates["wait"] + call(rates, ranks, p * p / 8 + 24 * p)
        panels = max(panels + search, updates)
        panels += 32 * p * width / ranks / rates["memory"] + (15 if ranks == 1 else 25) / rates["launch"] + 64 * p * p * width / ranks / (0.65 * speed)
        panels += 2 * call(rates, ranks, 8 * p * width * (ranks - 1) / ranks, 0.6)  # strips
        beyond = max(0.0, width - p / 64)
        near = min(beyond, b / 64)
        panels += 4 / rates["launch"] + 64 * rows * p * near / speed
        updates = panels + 2 / rates["launch"] + 64 * rows * p * (beyond - near) / speed
    return max(panels, updates)


def inversion(rates, n, b, ranks):
    speed, rows, panels, updates = rates["product"] * 0.84 * b / (b + 60), -(-n // ranks), 0.0, 0.0
    for first in range(0, n, b):
        p = min(b, n - first)
        after = min(b, n - first - p)
        if ranks == 1:
            search = p / rates["column"] + rows * p * p / (0.07 * rates["product"])
        elif n <= 32768:  # one GPU factors all rows of the panel
            search = p / rates["column"] + n * p * p / (0.07 * rates["product"]) + 64 * n * p / rates["memory"] + 20 / rates["launch"] + 1 / rates["wait"]
            search += 2 * call(rates, ranks, 8 * n * p * (1 - 1 / ranks)) + call(rates, ranks, 8 * p * p)
        else:
            search = (2.9 if ranks <= 8 else 4) * p / rates["column"] + (rows + ranks * p) * p * p / (0.07 * rates["product"]) + call(rates, ranks, 8 * ranks * p * (p + 3))
        panels = max(slowed(panels, search, updates), updates)
        panels += p * p * n / speed + 32 * p * n / rates["memory"] + 10 / rates["launch"] + call(rates, ranks, 8 * p * n, 0.4)
        updates = panels + 4 / rates["launch"] + 2 * rows * p * (n - after) / speed
        panels += 1.5 * 2 * rows * p * after / speed
    return max(panels, updates)


# Up to n = 32,768 one of several GPUs factors the panels, but for products of integers.
for n, more, pivoting, block in ((20_000, "", "partial", 512), (30_000, "--precision emulated", "tournament", 2048), (40_000, "", "tournament", 1024)):
    make(dense(n))
    done = test.run(f"dense invert in.h5:/A -o out.h5 --plan --json --gpu h200 --ranks 2 {more}", code=0)
    plan = json.loads(done.out) if done.code == 0 else {}
    check(f"{n} {more}: panels", (plan.get("pivoting"), plan.get("block")) == (pivoting, block), plan)
done = test.run("dense solve in.h5:/A --rhs :/b -o out.h5 --plan --json --gpu h200 --ranks 2 --precision mixed", code=0)
check("mixed on two", done.code == 0, done.err)

# Without peer memory, NCCL: its calls take longer, and a process that has never called it begins with that.
make(dense(20_000))
plans = [planned("dense invert in.h5:/A --pivoting tournament", 1, f"--gpu h200 --ranks {ranks} --block 512", TERRACE_PEER_MEMORY=peers)["solve_parts"]
         for ranks, peers in ((2, "1"), (2, "0"), (16, "1"), (1, "0"))]
check("first use of NCCL", [p["first_use"] >= 0.15 for p in plans] == [False, True, True, False], plans)
check("NCCL takes longer for small messages", plans[1]["choose"] > plans[0]["choose"], plans)

for n, b in ((40_000, 2048), (300_000, 4096)):
    make(bits(n, n))
    for ranks in (1, 4, 64):
        plan = planned("gf2 rref in.h5:/A", 1, f"--gpu h200 --ranks {ranks} --block {b}")
        said, mine = plan["solve_parts"]["elimination"], rref(rates_of(plan), n, b, ranks)
        check(f"rref {n} on {ranks}: {said} and {mine}", abs(said / mine - 1) < 0.05)
for n, b in ((20_000, 512), (100_000, 1024)):
    make(dense(n))
    for ranks in (1, 4, 64):
        plan = planned("dense invert in.h5:/A", 1, f"--gpu h200 --ranks {ranks} --block {b}")
        said, mine = plan["solve_parts"]["elimination"], inversion(rates_of(plan), n, b, ranks)
        check(f"inverse {n} on {ranks}: {said} and {mine}", abs(said / mine - 1) < 0.05)

test.finish()
