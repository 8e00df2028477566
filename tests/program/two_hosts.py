#!/usr/bin/env python3
"""Two hosts, as two network namespaces (hosts.py), and Open MPI over TCP between them: every family solves and verifies there
with the bits of one host; then the cable is pulled in the middle of each family's solve, and every rank ends within the limit.

two_hosts.py TERRACE [--backend cuda]     cpu: 4 ranks, two on each host; cuda: 2 ranks, one GPU for each host.
"""
import argparse
import os
import re
import subprocess
import time

import h5py
import numpy as np

import hosts
from terrace import Program, launcher_folder, read_json

parser = argparse.ArgumentParser()
parser.add_argument("terrace")
parser.add_argument("--backend", default="cpu")
options = parser.parse_args()
hosts.need(0 if options.backend == "cpu" else 2)
on_gpus = options.backend == "cuda"
ranks = 2 if on_gpus else 4
test = Program(options.terrace, TERRACE_THREADS="1")
check = test.check
limit, margin = 10.0, 5.0
far = {r for r in range(ranks) if r >= ranks // 2}  # on h2

# Each rank's own exit code, written by a shell that outlives mpirun's SIGTERM.
with open("rank.sh", "w") as f:
    f.write(f"""#!/bin/bash
trap : TERM
cd {test.folder}
{test.path} "$@" 2> said.$OMPI_COMM_WORLD_RANK
code=$?
echo $code > code.$OMPI_COMM_WORLD_RANK
exit $code
""")
os.chmod("rank.sh", 0o755)


def start(arguments, env=None):
    for name in os.listdir("."):
        if name.startswith(("said.", "code.")):
            os.unlink(name)
    return subprocess.Popen([two.mpirun, "-n", str(ranks), test.folder + "/rank.sh", *arguments.split(), "--backend", options.backend],
                            env=test.env({**launcher_folder(), **(env or {})}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said():
    return {r: [x for x in open(f"said.{r}").read().splitlines() if x.startswith("terrace: ")]
            for r in range(ranks) if os.path.exists(f"said.{r}")}


def solve(arguments):
    begin = time.time()
    job = start(arguments + " --report r.json")
    try:
        out, err = job.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        two.end_all()
        out, err = job.communicate()
    print(f"{arguments}: {time.time() - begin:.1f} s on two hosts", flush=True)
    if check("two hosts: " + arguments, job.returncode == 0, f"exit {job.returncode}: {err[-300:]} {said()}"):
        transport = read_json("r.json").get("transport", "")
        check("two hosts: " + arguments, "peer" not in transport and ("NCCL" in transport) == on_gpus, f"messages go by {transport}")


def data(name):
    with h5py.File(name) as f:
        return {k: f[k][...].tobytes() for k in f if isinstance(f[k], h5py.Dataset)}


def cut(family, arguments):
    """The cable is pulled while rank 1 sleeps at step 2 of its solve and the others wait for it."""
    job = start(arguments + " -o cut.h5", {"TERRACE_TEST_FAULT": "1:solve:2:wait", "TERRACE_TEST_WAIT": "3",
                                           "TERRACE_TEST_STAMP": test.folder + "/stamp"})
    begin = time.time()
    while not os.path.exists("stamp") and time.time() < begin + 60 and job.poll() is None:
        time.sleep(0.05)
    check(family + ": cut", os.path.exists("stamp"), "the solve did not begin")
    time.sleep(0.5)
    two.connect("down", (2,))
    begin = time.time()
    while two.processes() and time.time() < begin + 60:
        time.sleep(0.1)
    seconds = time.time() - begin
    left = two.processes()
    two.end_all()
    job.communicate(timeout=30)
    codes = {r: open(f"code.{r}").read().strip() for r in range(ranks) if os.path.exists(f"code.{r}")}
    lines = said()
    print(f"{family}: every rank, mpirun and its daemon ended {seconds:.1f} s after the cut; codes {codes}, mpirun's "
          f"{job.returncode}; {lines.get(0)} {lines.get(ranks - 1)}", flush=True)
    check(family + ": cut", not left and seconds < limit + margin, f"{seconds:.1f} s, left {left}")
    check(family + ": cut", codes == {r: "6" for r in range(ranks)}, f"exit codes {codes}")
    check(family + ": cut", any(re.search(rf"ranks? [{''.join(map(str, sorted(far)))}] on host h2.* lost .*phase solve, step \d+", x)
                                for x in lines.get(0, [])), f"rank 0 said {lines.get(0)}")
    for r in far:
        check(family + ": cut", any(re.search(r"rank 0 on host h1 was lost .*phase solve, step \d+", x) for x in lines.get(r, [])),
              f"rank {r} said {lines.get(r)}")
    rest = [x for x in os.listdir(".") if x.startswith((".", "cut"))]
    check(family + ": cut", not rest, f"left {rest}")
    for x in rest + ["stamp"]:
        if os.path.exists(x):
            os.unlink(x)
    two.connect("up")


rng = np.random.default_rng(2)
n = 240  # every step costs messages over TCP between ranks that share few cores
with h5py.File("in.h5", "w") as f:
    f["A"] = rng.normal(size=(n, n)) + n * np.eye(n)
    f["b"] = rng.normal(size=n)
    spd = rng.normal(size=(n, n))
    f["spd"] = spd @ spd.T + n * np.eye(n)
    f["bits"] = rng.integers(0, 2, (1000, 1000), dtype=np.uint8)
    band = np.full((41, 1500), 0.1)
    band[0] = 20
    f["band"] = band
    f["band"].attrs["format"] = "band"
    f["band_b"] = rng.normal(size=1500)
families = {"gf2": "gf2 rref in.h5:/bits" + " --block 128" * on_gpus,
            "band": "band solve in.h5:/band --rhs :/band_b" + " --method tile-columns" * on_gpus,
            "dense": "dense solve in.h5:/A --rhs :/b --block 32", "cg": "cg in.h5:/spd --rhs :/b"}
with hosts.TwoHosts(test.folder) as two:
    for family, arguments in families.items():
        solve(f"{arguments} -o {family}.h5")
        if not os.path.exists(f"{family}.h5"):
            continue
        test.run(f"verify {family}.h5", 2, 0)
        test.run(f"{arguments} -o {family}1.h5 --backend {options.backend}", ranks, 0)
        if family == "gf2" or (family != "cg" and not on_gpus):
            check(family, data(f"{family}.h5") == data(f"{family}1.h5"), "other bits than on one host")
    for family, arguments in families.items():
        cut(family, arguments)
test.finish()
