#!/usr/bin/env python3
"""Two hosts, as two network namespaces, and Open MPI over TCP between them: every family solves and verifies there with
the bits of one host; then the link is cut in the middle of each family's solve, and every rank ends within the limit.

two_hosts.py TERRACE     Needs root, ip, unshare, h5py and numpy, and a build with tests. TERRACE_NO_NETNS=1 tells it off.
"""
import os
import re
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

from terrace import Program

if os.environ.get("TERRACE_NO_NETNS") == "1":
    print("skipped: told off by TERRACE_NO_NETNS=1")
    sys.exit(77)
test = Program(sys.argv[1], TERRACE_THREADS="1")
check = test.check
limit, margin = 10.0, 5.0
mark = f"{os.getpid() % 100000}"
space = {1: f"ta{mark}", 2: f"tb{mark}"}  # namespaces
link = {1: f"va{mark}", 2: f"vb{mark}"}
address = {1: "10.99.0.1", 2: "10.99.0.2"}
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the hosts are removed then, too


def ip(*arguments, **how):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, **how)


def make_hosts():
    for h in (1, 2):
        ip("netns", "add", space[h], check=True)
    ip("link", "add", link[1], "type", "veth", "peer", "name", link[2], check=True)
    for h in (1, 2):
        ip("link", "set", link[h], "netns", space[h], check=True)
        ip("-n", space[h], "addr", "add", address[h] + "/24", "dev", link[h], check=True)
        ip("-n", space[h], "link", "set", "lo", "up", check=True)
    connect("up")


def connect(state, hosts=(1, 2)):
    for h in hosts:
        ip("-n", space[h], "link", "set", link[h], state, check=True)


def processes():
    """(pid, name) of what lives in the two namespaces."""
    found = []
    for h in (1, 2):
        for pid in ip("netns", "pids", space[h]).stdout.split():
            try:
                with open(f"/proc/{pid}/comm") as f:
                    name = f.read().strip()
                with open(f"/proc/{pid}/stat") as f:
                    state = f.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if state != "Z":
                found.append((int(pid), name))
    return found


def end_all():
    for pid, _ in processes():
        try:
            os.kill(pid, 9)
        except OSError:
            pass


def remove_hosts():
    end_all()
    for h in (1, 2):
        ip("netns", "del", space[h])


# The agent that mpirun starts the other host's daemon with; each host has a name and shared memory of its own.
with open("agent.sh", "w") as f:
    f.write(f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
case $host in {address[1]}) space={space[1]}; name=h1;; *) space={space[2]}; name=h2;; esac
exec ip netns exec $space unshare --uts --mount bash -c "hostname $name; mount -t tmpfs none /dev/shm; $*"
""")
os.chmod("agent.sh", 0o755)
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


def two_hosts(arguments, env=None):
    """4 ranks on 2 hosts, started; ranks 0 and 1 are on h1."""
    forward = [x for name in (env or {}) for x in ("-x", name)]
    mpirun = ["mpirun", "--bind-to", "none", "--mca", "plm_rsh_agent", test.folder + "/agent.sh", "--mca", "btl", "self,vader,tcp",
              "-H", f"{address[1]}:2,{address[2]}:2", "-n", "4", "-x", "TERRACE_THREADS", *forward, test.folder + "/rank.sh"]
    inside = "hostname h1; mount -t tmpfs none /dev/shm; exec \"$@\""
    for name in os.listdir("."):
        if name.startswith(("said.", "code.")):
            os.unlink(name)
    return subprocess.Popen(["ip", "netns", "exec", space[1], "unshare", "--uts", "--mount", "bash", "-c", inside, "mpirun"] +
                            mpirun + arguments.split(), env=test.env(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def said():
    return {r: [x for x in open(f"said.{r}").read().splitlines() if x.startswith("terrace: ")]
            for r in range(4) if os.path.exists(f"said.{r}")}


def solve(arguments):
    start = time.time()
    job = two_hosts(arguments)
    try:
        out, err = job.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        end_all()
        out, err = job.communicate()
    print(f"{arguments}: {time.time() - start:.1f} s on two hosts", flush=True)
    check("two hosts: " + arguments, job.returncode == 0, f"exit {job.returncode}: {err[-300:]} {said()}")


def data(name):
    with h5py.File(name) as f:
        return {k: f[k][...].tobytes() for k in f if isinstance(f[k], h5py.Dataset)}


def cut(family, arguments):
    """The link goes down while rank 1 sleeps at step 2 of its solve and the others wait for it."""
    job = two_hosts(arguments + " -o cut.h5", {"TERRACE_TEST_FAULT": "1:solve:2:wait", "TERRACE_TEST_WAIT": "3",
                                                "TERRACE_TEST_STAMP": test.folder + "/stamp"})
    begin = time.time()
    while not os.path.exists("stamp") and time.time() < begin + 60 and job.poll() is None:
        time.sleep(0.05)
    check(family + ": cut", os.path.exists("stamp"), "the solve did not begin")
    time.sleep(0.5)
    connect("down", (2,))
    start = time.time()
    while processes() and time.time() < start + 60:
        time.sleep(0.1)
    seconds = time.time() - start
    left = processes()
    end_all()
    out, err = job.communicate(timeout=30)
    codes = {r: open(f"code.{r}").read().strip() for r in range(4) if os.path.exists(f"code.{r}")}
    lines = said()
    print(f"{family}: every rank, mpirun and its daemon ended {seconds:.1f} s after the cut; codes {codes}, mpirun's "
          f"{job.returncode}; {lines.get(0)} {lines.get(2)}", flush=True)
    check(family + ": cut", not left and seconds < limit + margin, f"{seconds:.1f} s, left {left}")
    check(family + ": cut", codes == {r: "6" for r in range(4)}, f"exit codes {codes}")
    check(family + ": cut", any(re.search(r"ranks? [23] on host h2.* lost .*phase solve, step \d+", x) for x in lines.get(0, [])),
          f"rank 0 said {lines.get(0)}")
    for r in (2, 3):
        check(family + ": cut", any(re.search(r"rank 0 on host h1 was lost .*phase solve, step \d+", x) for x in lines.get(r, [])),
              f"rank {r} said {lines.get(r)}")
    rest = [x for x in os.listdir(".") if x.startswith((".", "cut"))]
    check(family + ": cut", not rest, f"left {rest}")
    for x in rest + ["stamp"]:
        if os.path.exists(x):
            os.unlink(x)
    connect("up")


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
families = {"gf2": "gf2 rref in.h5:/bits", "band": "band solve in.h5:/band --rhs :/band_b",
            "dense": "dense solve in.h5:/A --rhs :/b --block 32", "cg": "cg in.h5:/spd --rhs :/b"}
try:
    make_hosts()
    for family, arguments in families.items():
        solve(f"{arguments} -o {family}.h5")
        if not os.path.exists(f"{family}.h5"):
            continue
        test.run(f"verify {family}.h5", 2, 0)
        test.run(f"{arguments} -o {family}1.h5", 4, 0)
        if family != "cg":
            check(family, data(f"{family}.h5") == data(f"{family}1.h5"), "other bits than on one host")
    for family, arguments in families.items():
        cut(family, arguments)
finally:
    remove_hosts()
test.finish()
