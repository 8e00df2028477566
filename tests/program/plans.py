#!/usr/bin/env python3
"""--plan: what it says is there and true. Memory against the peak of the run, seconds within a factor (a busy
machine is no clock), and what would make a matrix fit: the advice is tried.

plans.py TERRACE     Needs h5py and numpy; runs in a temporary folder.
"""
import os
import re
import subprocess
import sys
import time

from terrace import Program, read_json, remove

test = Program(sys.argv[1], TERRACE_THREADS="1")
test.environment["TERRACE_PROFILE"] = os.path.abspath("profile.json")
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


# 1. Without a profile: says so.
generate("dense-random --n 600 --rhs 1")
r = run("dense invert in.h5:/A -o out.h5 --plan")
structure("no profile", r["result"]["plan"])
check("no profile is said", "bench --profile" in r["text"], r["text"])
check("--plan writes nothing", not os.path.exists("out.h5"))

# 2. A short profile, of 2 ranks and of 1; the second keeps the first.
for ranks in (2, 1):
    r = run("bench --profile --seconds 12", ranks)
    check("profile: models", len(r["result"]["models"]) >= 12, list(r["result"]["models"]))
profile = read_json("profile.json")
check("profile: both machines", sum("rank" in name for name in profile) == 2, list(profile))
check("no folder is left", not [f for f in os.listdir(".") if f.startswith("terrace-profile")])

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
    ("csr-laplace --dim 2 --points 300 --rhs 1", "cg in.h5:/A --rhs :/b --rtol 1e-6 --condition 40000"),
]
idle, _ = peak("generate dense-random --n 2 -o tiny.h5 --force")


def in_time(make, command, ranks):
    """Whether the solve took as long as the plan said. Of three runs the quickest: others may use the machine."""
    plan = run(command + " -o out.h5 --force --plan", ranks)["result"]["plan"]
    structure(f"{command} on {ranks}", plan)
    check(f"{command}: fits", plan["fits"] and not plan["advice"])
    check(f"{command}: a host holds {ranks}",
          plan["memory_per_host"]["host_bytes"] == ranks * plan["memory_per_rank"]["host_bytes"])
    check(f"{command}: from the profile", f"{ranks} rank" in plan["profile"]["source"], plan["profile"])
    seen = float("inf")
    for _ in range(3):
        done = run(command.split(" --condition")[0] + " -o out.h5 --force", ranks)  # the plan's alone
        if "iteration" in plan["seconds"]:
            once, said = done["seconds"]["solve"] / done["result"]["iterations"], plan["seconds"]["iteration"]
        else:
            once, said = done["seconds"]["solve"], plan["seconds"]["solve"]
        seen = min(seen, once)
        if said < 4 * seen + 0.05 and seen < 4 * said + 0.05:
            break
    good = said < 4 * seen + 0.05 and seen < 4 * said + 0.05
    print(f"{command:48} {ranks} ranks: solve {said:9.3g} s predicted, {seen:9.3g} s measured{'' if good else '  (!)'}")
    return good


wrong = []
for make, command in problems:
    generate(make)
    wrong += [(make, command, ranks) for ranks in (1, 2) if not in_time(make, command, ranks)]
    most, _ = peak(command.split(" --condition")[0] + " -o out.h5 --force")
    plan = run(command + " -o out.h5 --force --plan")["result"]["plan"]
    said = plan["memory_per_rank"]["host_bytes"]
    print(f"{command:48} memory {said / 2**20:7.1f} MiB said, {(most - idle) / 2**20:7.1f} MiB above an idle run")
    check(f"{command}: peak {most - idle} above idle, {said} said", most - idle < 1.4 * said + (48 << 20))
    check(f"{command}: {said} said, peak {most}", said < 2.5 * (most - idle) + (256 << 20))
# A profile of few seconds is as good as those seconds were: what it got wrong must be right by a longer one.
for ranks in sorted({ranks for _, _, ranks in wrong}):
    run("bench --profile --seconds 40", ranks)
for make, command, ranks in wrong:
    generate(make)
    check(f"{command} on {ranks}: as long as the plan says", in_time(make, command, ranks))

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

# 5. Options of bench.
for words in ("bench", "bench --profile gf2"):
    test.run(words, code=2)

test.finish()
