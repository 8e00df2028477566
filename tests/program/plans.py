#!/usr/bin/env python3
"""--plan: what it says is there and true. Memory against the peak of the run, seconds within a factor of three (not
judged on a busy machine), and what would make a matrix fit: the advice is tried.

plans.py TERRACE     Needs h5py and numpy; runs in a temporary folder.
"""
import json
import os
import re
import subprocess
import sys
import time

import h5py

from terrace import Program, read_json, remove

test = Program(sys.argv[1], TERRACE_THREADS="1", OPENBLAS_NUM_THREADS="")  # its second thread is part of what the limits below were chosen for
test.environment["TERRACE_PROFILE"] = os.path.abspath("profile.json")
if os.cpu_count() >= 2:  # this test runs alone: no rank shares a core, and none is to sleep while it waits, three times as long as the plan says
    test.environment["OMPI_MCA_mpi_yield_when_idle"] = "0"
check = test.check


def run(command, ranks=1, limit=0, code=0):
    """The report; `limit`: bytes of address space of each rank."""
    remove("r.json")
    # By mpirun on one rank too: what MPI itself takes then is part of what the limits below were chosen for.
    wrapper = ["mpirun", "-n", "1", "/bin/sh", "-c", f"ulimit -v {limit // 1024}; exec \"$@\"", "sh"] if limit else []
    done = test.run(command + " --report r.json --backend cpu", ranks, code, timeout=300, wrapper=wrapper)
    report = read_json() if os.path.exists("r.json") else {}
    report["text"] = done.out
    return report


def generate(what):
    test.run(f"generate {what} -o in.h5 --force --quiet", code=0)


def peak(command):
    """Peak of resident memory in bytes, and the report. Measured in a child of its own."""
    code = ("import resource, subprocess, sys; r = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode; "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024); sys.exit(r)")
    done = test.run(command + " --report r.json --backend cpu", 1, 0, timeout=300, wrapper=[sys.executable, "-c", code])
    return int(done.out.split()[-1]), read_json()


PHASES = ("start", "read", "solve", "check", "write", "total")


def structure(what, plan):
    for key in ("memory_per_rank", "memory_per_host", "seconds", "fits", "advice", "profile", "model"):
        check(f"{what}: result.plan.{key}", key in plan, plan.keys())
    if plan.get("seconds"):
        for phase in PHASES:
            check(f"{what}: seconds.{phase} {plan['seconds'][phase]}", plan["seconds"][phase] >= 0)
        total = sum(plan["seconds"][phase] for phase in PHASES[:-1])
        check(f"{what}: the total is the sum", abs(total - plan["seconds"]["total"]) <= 1e-9 + 1e-6 * total)


ONE_DIGIT = r"(0|0\.0*[1-9]|[1-9]0*|[1-9]e-\d\d)"
SECONDS = re.compile(rf"^seconds    about {ONE_DIGIT}: start {ONE_DIGIT}, read {ONE_DIGIT}, solve {ONE_DIGIT}, check {ONE_DIGIT}, write {ONE_DIGIT}$", re.M)


def planned(command, ranks=1, said=""):
    """The plan; its line of seconds has one digit for each phase, and it says where the rates are from."""
    r = run(command + " --plan", ranks)
    plan = r["result"]["plan"]
    structure(command, plan)
    line = SECONDS.search(r["text"])
    check(f"{command}: the line of seconds", line, r["text"])
    if line:
        check(f"{command}: {line[1]} is {plan['seconds']['total']}", 0.6 < float(line[1]) / plan["seconds"]["total"] < 1.6)
    rates = re.search(r"^rates      (.*)$", r["text"], re.M)
    check(f"{command}: rates, {said}", rates and said in rates[1], r["text"])
    check(f"{command}: an estimate", plan["seconds"]["solve"] > 0, plan)
    return plan


# 1. Without a profile: says so.
generate("dense-random --n 600 --rhs 1")
for said in ("built in", "bench profile"):
    planned("dense invert in.h5:/A -o out.h5", said=said)
check("--plan writes nothing", not os.path.exists("out.h5"))

# 2. A profile, of 2 ranks and of 1; the second keeps the first.
for ranks in (2, 1):
    start = time.time()
    r = run("bench --profile", ranks)
    print(f"bench --profile, {ranks} ranks: {time.time() - start:.1f} s")
    rates = r["result"]["rates"]
    for name in ["product", "bits", "tables", "memory", "file_read", "file_write", "launch", "start"] + ["message", "exchange"] * (ranks > 1):
        check(f"profile: {name}", rates.get(name, {}).get("value", 0) > 0 and rates[name]["unit"] and f"\n{name} " in r["text"], rates)
    check("profile: nothing else", not {"models", "integers"} & set(rates), rates)
profile = read_json("profile.json")
check("profile: both machines", sum("rank" in name for name in profile) == 2, list(profile))
check("profile: dated", all(re.fullmatch(r"\d{4}-\d\d-\d\d", m["rates"]["date"]) and m["rates"]["version"] for m in profile.values()), profile)
check("no file is left", not [f for f in os.listdir(".") if f.startswith("terrace-profile")])
planned("dense invert in.h5:/A -o out.h5", said="measured on " + r["result"]["machine"])
planned("dense invert in.h5:/A -o out.h5", 3, "mpirun -n 3 terrace bench profile")
# An old one, fits of seconds, is named and not misread; a broken one is none.
machine = r["result"]["machine"]
for old in ({"models": {"dense invert, fp64": {"solve": {"flops": 1e9}}}}, {"rates": {"gemm_gflops": [[512, 1e-9]]}},
            {"rates": {"form": "x"}}, {"rates": {"form": 2, "per_second": 3}}):
    json.dump({machine: old}, open("profile.json", "w"))
    plan = planned("dense invert in.h5:/A -o out.h5", said="is an old one, and not used; terrace bench profile measures it anew")
    check(f"old profile {old}: built in", "built in" in plan["profile"]["source"] and plan["seconds"]["solve"] < 10, plan)
json.dump({machine: {"rates": {"form": 2, "per_second": {"product": {"value": "x"}, "memory": 4, "bits": {"value": -1}, "tables": {"value": 1e99}}}}},
          open("profile.json", "w"))
check("rates that are none", 1e-4 < planned("dense invert in.h5:/A -o out.h5", said="measured")["seconds"]["solve"] < 10)
json.dump({**profile, machine: {"models": {}, **profile[machine]}}, open("profile.json", "w"))

# Every method has an estimate, and knows what changes the time.
generate("gf2-random --rows 4096 --rhs 64")
GF2 = [f"gf2 {command} {method}" for command in ("rref in.h5:/A", "rref in.h5:/A --echelon", "rank in.h5:/A", "solve in.h5:/A --rhs :/b",
                                                 "kernel in.h5:/A", "inverse in.h5:/A")
       for method in ("", "--method tables", "--method columns", "--k 5")] + ["gf2 multiply in.h5:/A :/A --levels 1"]
for command in GF2:
    planned(command + " -o out.h5")
for command in ("gf2 rref in.h5:/A", "gf2 multiply in.h5:/A :/A"):
    stored = ["--tables local", "--tables broadcast", "--k 10 --tables broadcast"] * ("rref" in command)  # products have none
    seconds = {more: planned(f"{command} -o out.h5 {more}")["seconds"]["solve"]
               for more in ["", "--k 8", "--k 1", "--k 4", "--k 14"] + stored}
    check(f"{command}: tables of 8 are the default", seconds[""] == seconds["--k 8"] == seconds.get("--tables local", seconds[""]), seconds)
    check(f"{command}: --k", seconds["--k 1"] > seconds["--k 4"] > seconds["--k 8"] < seconds["--k 14"], seconds)
    check(f"{command}: --tables", not stored or seconds["--k 8"] < seconds["--tables broadcast"] < seconds["--k 10 --tables broadcast"], seconds)
generate("dense-random --n 12 --rhs 1")
for command in ("dense invert in.h5:/A --method textbook", "dense solve in.h5:/A --rhs :/b --method cramer", "dense solve in.h5:/A --rhs :/b"):
    planned(command + " -o out.h5")
generate("band-spd --n 3000 --half-bandwidth 40 --rhs 1")
for method, ranks in (("tile-columns", 1), ("streamed --diagonal cpu", 1), ("streamed", 2)):
    planned(f"band solve in.h5:/A --rhs :/b -o out.h5 --method {method}", ranks)
for form in ("band-spd --n 3000 --half-bandwidth 40", "dense-spd --n 300", "csr-laplace --dim 2 --points 30"):
    generate(form + " --rhs 1")
    for more in ["", "--method single-reduction", "--method pipelined"] + [
            f"--preconditioner {p}" for p in ("jacobi", "block-jacobi", "ic", "chebyshev", "amg") if p not in ("ic", "amg") or "dense" not in form] + [
            "--layout rows"] * ("dense" in form) + ["--precision mixed"]:
        check(f"{form} {more}: an iteration", planned(f"cg in.h5:/A --rhs :/b -o out.h5 {more}")["seconds"]["iteration"] > 0)

# 3. Memory and time of each family, by 1 rank and 2.
problems = [
    ("dense-random --n 1500 --rhs 1", "dense invert in.h5:/A"),
    ("dense-random --n 1800 --rhs 1", "dense solve in.h5:/A --rhs :/b"),
    ("gf2-random --rows 9000 --rhs 64", "gf2 rref in.h5:/A"),
    ("gf2-random --rows 9000 --rhs 64", "gf2 solve in.h5:/A --rhs :/b"),
    ("gf2-random --rows 8000", "gf2 multiply in.h5:/A :/A"),
    ("band-spd --n 30000 --half-bandwidth 300 --rhs 1", "band solve in.h5:/A --rhs :/b"),
    ("band-spd --n 30000 --half-bandwidth 300 --rhs 1", "band factor in.h5:/A"),
    ("dense-spd --n 2500 --rhs 1", "cg in.h5:/A --rhs :/b"),
    ("csr-laplace --dim 2 --points 900 --rhs 1", "cg in.h5:/A --rhs :/b --rtol 1e-1 --condition 40000"),  # more than a cache holds
]
idle, _ = peak("generate dense-random --n 2 -o tiny.h5 --force")


loaded = []


def in_time(command, ranks):
    """The solve takes as long as the plan says, within a factor of three. Others may use the machine: of some runs the quickest, and
    before a miss counts the profile is measured again, twice, as the machine is by then."""
    for turn in range(3):
        if turn > 0:
            time.sleep(2)
            run("bench --profile", ranks)
        plan = run(command + " -o out.h5 --force --plan", ranks)["result"]["plan"]
        structure(f"{command} on {ranks}", plan)
        check(f"{command}: fits", plan["fits"] and not plan["advice"])
        check(f"{command}: a host holds {ranks}",
              plan["memory_per_host"]["host_bytes"] == ranks * plan["memory_per_rank"]["host_bytes"])
        check(f"{command}: from the profile", f"{ranks} rank" in plan["profile"]["source"], plan["profile"])
        seen = float("inf")
        for _ in range(5):
            done = run(command.split(" --condition")[0] + " -o out.h5 --force", ranks)  # the plan's alone
            if "iteration" in plan["seconds"]:
                steps = done["result"]["iterations"] - plan["iterations_assumed"]
                once, said = done["seconds"]["solve"], plan["seconds"]["solve"] + steps * plan["seconds"]["iteration"]
            else:
                once, said = done["seconds"]["solve"], plan["seconds"]["solve"]
            seen = min(seen, once)
            good = said < 3 * seen + 0.02 and seen < 3 * said + 0.02
            if good:
                break
        print(f"{command:48} {ranks} ranks: solve {said:9.3g} s predicted, {seen:9.3g} s measured{'' if good else '  (!)'}")
        if good:
            return
    if os.getloadavg()[0] > 1.5 * os.cpu_count():
        loaded.append(command)
    else:
        check(f"{command} on {ranks}: as long as the plan says", False, (said, seen))


for make, command in problems:
    generate(make)
    for ranks in (1, 2):
        in_time(command, ranks)
    most, _ = peak(command.split(" --condition")[0] + " -o out.h5 --force")
    plan = run(command + " -o out.h5 --force --plan")["result"]["plan"]
    said = plan["memory_per_rank"]["host_bytes"]
    print(f"{command:48} memory {said / 2**20:7.1f} MiB said, {(most - idle) / 2**20:7.1f} MiB above an idle run")
    check(f"{command}: peak {most - idle} above idle, {said} said", most - idle < 1.4 * said + (48 << 20))
    check(f"{command}: {said} said, peak {most}", said < 2.5 * (most - idle) + (256 << 20))
# --guard of cg keeps the right-hand sides on the host a second time, and compares them with a third copy.
generate("band-spd --n 400000 --half-bandwidth 1 --rhs 16")
command = "cg in.h5:/A --rhs :/b -o out.h5 --force --rtol 1e-2 --preconditioner jacobi"
said, most = [], []
for more in ("", " --guard"):
    said.append(run(command + more + " --plan")["result"]["plan"]["memory_per_rank"]["host_bytes"])
    most.append(peak(command + more)[0])
print(f"cg --guard: {(said[1] - said[0]) / 2**20:.1f} MiB more said, {(most[1] - most[0]) / 2**20:.1f} MiB more taken")
check("cg --guard: its copies are said", said[1] - said[0] >= 8 * 400000 * (2 * 16 + 1) and most[1] - most[0] < said[1] - said[0] + (24 << 20), (said, most))
# --reorder has the whole pattern, parts and rows on their way.
generate("csr-laplace --dim 3 --points 70 --rhs 1")
command = "cg in.h5:/A --rhs :/b -o out.h5 --force --rtol 1e-1 --reorder"
said, most = run(command + " --plan")["result"]["plan"]["memory_per_rank"]["host_bytes"], peak(command)[0] - idle
print(f"cg --reorder: {said / 2**20:.1f} MiB said, {most / 2**20:.1f} MiB taken")
check("cg --reorder: its memory is said", most < said + (24 << 20) and said < 2.5 * most + (256 << 20), (said, most))
if loaded:
    print(f"others used the machine: {len(loaded)} times were not judged")

# Address space that the program takes before it works: the CUDA libraries reserve much.
waiting = subprocess.Popen(test.words("generate dense-random --n 2 -o wait.h5"), stderr=subprocess.DEVNULL,
                           env=test.env({"TERRACE_TEST_FAULT": "0:write:hang"}))
base = 0
for _ in range(200):
    with open(f"/proc/{waiting.pid}/status") as f:
        base = max([base] + [int(x.split()[1]) << 10 for x in f if x.startswith("VmPeak")])
    if waiting.poll() is not None:
        break
    time.sleep(0.01)
waiting.kill()
waiting.wait()
print(f"address space before the work: {base / 2**20:.0f} MiB")
room = max(0, base - (450 << 20))  # above the limits below

# 4. What does not fit, and the options that the plan says would: tried by the plan itself.
for make, command, limit in [
    ("dense-random --n 6000", "dense invert in.h5:/A", 900 << 20),
    ("gf2-random --rows 60000", "gf2 rref in.h5:/A", 800 << 20),
    ("band-spd --n 60000 --half-bandwidth 800 --rhs 1", "band solve in.h5:/A --rhs :/b", 900 << 20),
]:
    generate(make)
    limit += room
    r = run(command + " -o out.h5 --force --plan", 1, limit)
    plan = r["result"]["plan"]
    structure(command, plan)
    check(f"{command}: does not fit", not plan["fits"] and "does not fit" in r["text"], r["text"])
    check(f"{command}: the run is refused", run(command + " -o out.h5 --force", 1, limit, 5)["exit_code"] == 5)
    ranks = plan.get("ranks_needed", 0)
    check(f"{command}: ranks that would do", 1 < ranks < 64 and any(f"{ranks} ranks" in a for a in plan["advice"]), plan)
    # The advised ranks are not tried: under a limit of the process each rank more takes address space of the others.
    for advice in plan["advice"]:
        option = re.match(r"with (--\S+(?: [a-z0-9]\S*)?)$", advice)
        if option:
            other = run(f"{command} -o out.h5 --force --plan {option[1]}", 1, limit)["result"]["plan"]
            check(f"{command} {option[1]}: fits as advised", other["fits"], other)

# Parts of a band that no machine holds, nor its file: nothing of it is written. Each method, on each number of ranks.
n, m = 2_000_000, 200_000
with h5py.File("in.h5", "w") as f:
    f.create_dataset("A", (m + 1, n), "f8").attrs["format"] = "band"
    f.create_dataset("b", (n,), "f8")
for ranks in (1, 2):
    for method in ("one-end", "two-ends", "partition --parts 3"):
        command = f"band solve in.h5:/A --rhs :/b -o out.h5 --method {method}"
        r = run(command + " --plan", ranks)  # once a crash, where other methods were asked for their memory
        plan = r["result"]["plan"]
        structure(command, plan)
        check(f"{command}: does not fit", not plan["fits"] and "does not fit" in r["text"], r["text"])

# 5. Options of bench.
for words in ("bench", "bench --profile gf2"):
    test.run(words, code=2)
done = test.run("bench --profile --folder /nowhere/at/all")
check("bench --profile --folder /nowhere is exit 2 or 5", done.code in (2, 5) and "/nowhere" in done.err, done.err)

test.finish()
