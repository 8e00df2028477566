#!/usr/bin/env python3
"""The job scripts of jobs/ on a real SLURM: two nodes, checkpoint on the signal, requeue, restart, the same bits.

slurm.py TERRACE [FAMILY ...]     Needs root, munge, slurmctld, slurmd, slurm-client; without them it fails, it does not skip.
"""
import json
import os
import shutil
import signal
import stat
import sys
import time
import traceback

import h5py
import numpy as np

import slurm_cluster
from terrace import JOBS, Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
began = time.time()
stuck = []  # processes of SLURM that may be left
two_nodes = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--gres=gpu:1"]
one_node = ["--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--gres=none"]


def say(text):
    print(f"{time.time() - began:6.1f} s  {text}", flush=True)


def plain(arguments, n=2):
    """An undisturbed run, outside SLURM."""
    done = test.run(arguments, n)
    if done.code:
        raise RuntimeError(f"terrace {arguments}: exit {done.code}: {done.err}")


def same(a, b):
    """The datasets of two result files, bit for bit; their names."""
    if not os.path.exists(a) or not os.path.exists(b):
        return None
    with h5py.File(a) as f, h5py.File(b) as g:
        names = sorted(k for k in f if isinstance(f[k], h5py.Dataset))
        return names if names and names == sorted(k for k in g if isinstance(g[k], h5py.Dataset)) and all(
            f[k].dtype == g[k].dtype and f[k][...].tobytes() == g[k][...].tobytes() for k in names) else None


def read(name):
    return open(name).read() if os.path.exists(name) else ""


def wait_for(what, done, seconds=60):
    end = time.time() + seconds
    while not done():
        if time.time() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


# name: the script, its arguments, milliseconds that each step is held up, so that the signal meets the loop
families = {
    "gf2": ("gf2", "rref gf2.h5", 500),
    "band": ("band", "solve band.h5:/A --rhs :/b", 30),
    "dense": ("dense", "invert dense.h5 --block 32", 400),
    "cg": ("cg", "cg.h5:/A --rhs :/b", 40),
}
if len(sys.argv) > 2:
    families = {name: families[name] for name in sys.argv[2:]}


def prepare():
    plain("generate gf2-random --rows 4000 --columns 4000 --seed 1 -o gf2.h5 --quiet")
    plain("generate band-spd --n 6000 --half-bandwidth 200 --rhs 1 --seed 2 -o band.h5 --quiet")
    plain("generate dense-random --n 600 --seed 3 -o dense.h5 --quiet")
    plain("generate csr-laplace --dim 2 --points 120 --rhs 1 --seed 4 -o cg.h5 --quiet")
    plain("gf2 rank gf2.h5 -o rank_plain.h5 --quiet --backend cpu")
    with h5py.File("singular.h5", "w") as f:
        f["A"] = np.diag(np.arange(50.0))
    for name, (script, arguments, _) in families.items():
        plain(f"{script} {arguments} -o {name}_plain.h5 --quiet --backend cpu")


def start(cluster, name):
    script, arguments, delay = families[name]
    return cluster.submit(*two_nodes, f"{JOBS}/{script}.sbatch", *arguments.split(), "-o", f"{name}_job.h5", "--backend", "cpu", cwd=".",
                          env={"TERRACE_CHECKPOINT_EVERY": "1s", "TERRACE_TEST_STEP_DELAY_MS": str(delay)})


def serve(cluster, running):
    """USR2 to each that has a checkpoint; whichever has one, so that none ends while another is waited for."""
    waiting = dict(running)

    def served():
        for name, job in list(waiting.items()):
            if os.path.exists(f"terrace-{job}.checkpoint.h5"):
                cluster.run("scancel", "--signal=USR2", job, check=True)
                say(f"{name}: job {job} has a checkpoint and gets USR2")
                del waiting[name]
        return not waiting

    wait_for("a first checkpoint of every family", served)


def ended(cluster, name, job):
    """The job, and what is known of its end. One that is stuck is shown and submitted once more, alone: two nodes on one host
    share its ports, and one job of about 400 was stuck after its restart, beside three others; why is not known."""
    try:
        return job, cluster.finish(job, 120)
    except RuntimeError as stuck:
        say(f"NOTE {name}: {stuck}\n{read(f'slurm-{job}.out')[-1000:]}")
        cluster.run("scancel", job, check=True)
        cluster.finish(job, 60)
    for left in (f"{name}_job.h5", f"terrace-{job}.checkpoint.h5"):
        remove(left)
    job = start(cluster, name)
    serve(cluster, {name: job})
    return job, cluster.finish(job, 120)


def signalled(cluster):
    """Every family: the signal in mid-solve, back into the queue, restart, done."""
    running = {name: start(cluster, name) for name in families}
    serve(cluster, running)
    for name, job in running.items():
        job, end = ended(cluster, name, job)
        log = read(f"slurm-{job}.out")
        good = end["JobState"] == "COMPLETED" and end["Restarts"] == "1" and end["NodeList"] == "n[1-2]"
        check(f"{name}: done after one requeue, on two nodes", good, f"{end}\n{log}")
        starts = [line for line in log.splitlines() if ": start " in line]
        check(f"{name}: exit 75, then a restart", len(starts) == 2 and "exit code 75: back into the queue" in log and
              "--restart" not in starts[0] and f"--restart terrace-{job}.checkpoint.h5" in starts[1], log)
        check(f"{name}: the checkpoints are gone", not os.path.exists(f"terrace-{job}.checkpoint.h5"))
        names = same(f"{name}_plain.h5", f"{name}_job.h5") if os.path.exists(f"{name}_job.h5") else None
        check(f"{name}: the bits of an undisturbed run", names, log)
        report = read_json(f"terrace-{job}.json")
        hosts = [r["host"] for r in report.get("ranks_detail", [])]
        check(f"{name}: a rank on each node", report["exit_code"] == 0 and hosts == ["n1", "n2"], json.dumps(report)[:400])
        say(f"{name}: job {job} done, {names} equal")


def time_limit(cluster):
    """--signal before the time limit, as SLURM itself sends it; the job is fetched later."""
    return cluster.submit(*two_nodes, "--time=1", "--signal=USR2@50", f"{JOBS}/terrace.sbatch", "gf2", "rank", "gf2.h5",
                          "-o", "limit.h5", "--backend", "cpu", cwd=".", env={"TERRACE_TEST_STEP_DELAY_MS": "3000"})


def other_ranks(cluster):
    """No requeue is left: the job ends with 75; another on one rank goes on from its checkpoint."""
    env = {"TERRACE_CHECKPOINT": "shared.checkpoint.h5", "TERRACE_CHECKPOINT_EVERY": "1s", "TERRACE_REQUEUES": "0",
           "TERRACE_TEST_STEP_DELAY_MS": "500"}
    arguments = [f"{JOBS}/dense.sbatch", "invert", "dense.h5", "--block", "32", "-o", "ranks.h5", "--backend", "cpu"]
    job = cluster.submit(*two_nodes, *arguments, cwd=".", env=env)
    wait_for("other ranks: a first checkpoint", lambda: os.path.exists("shared.checkpoint.h5"))
    cluster.run("scancel", "--signal=USR2", job, check=True)
    end = cluster.finish(job, 60)
    check("no requeue is left", end["JobState"] == "FAILED" and end["ExitCode"] == "75:0" and end["Restarts"] == "0",
          f"{end}\n{read(f'slurm-{job}.out')}")
    del env["TERRACE_TEST_STEP_DELAY_MS"]
    job = cluster.submit(*one_node, *arguments, cwd=".", env=env)
    end = cluster.finish(job, 60)
    log = read(f"slurm-{job}.out")
    check("one rank goes on from two ranks' checkpoint", end["JobState"] == "COMPLETED" and "--restart" in log, log)
    check("the same bits on another number of ranks", os.path.exists("ranks.h5") and same("dense_plain.h5", "ranks.h5"), log)
    say("another number of ranks")


def cancelled(cluster):
    """scancel means it: no requeue."""
    job = cluster.submit(*two_nodes, f"{JOBS}/gf2.sbatch", "rref", "gf2.h5", "-o", "cancelled.h5", "--backend", "cpu", cwd=".",
                         env={"TERRACE_TEST_STEP_DELAY_MS": "1000"})
    wait_for("the job to be cancelled runs", lambda: ": start 1" in read(f"slurm-{job}.out"))
    time.sleep(1)
    cluster.run("scancel", job, check=True)
    end = cluster.finish(job, 60)
    time.sleep(1)
    log = read(f"slurm-{job}.out")
    check("a cancelled job stays cancelled", cluster.job(job)["JobState"] == "CANCELLED" and end["Restarts"] == "0" and
          "back into the queue" not in log and not os.path.exists("cancelled.h5"), f"{end}\n{log}")
    say("a cancelled job")


def failing(cluster):
    job = cluster.submit(*two_nodes, f"{JOBS}/dense.sbatch", "invert", "singular.h5", "-o", "never.h5", cwd=".")
    end = cluster.finish(job, 60)
    log = read(f"slurm-{job}.out")
    check("a failing job is not requeued", end["JobState"] == "FAILED" and end["ExitCode"] == "4:0" and end["Restarts"] == "0" and
          "singular" in log and not os.path.exists("never.h5"), f"{end}\n{log}")
    say("a failing job")


def dead_at_start(cluster):
    """A rank that dies before MPI has begun: the other waits for it, and SLURM ends both."""
    with open("dies", "w") as f:
        f.write(f'#!/bin/sh\n[ "$SLURM_PROCID" = 1 ] && kill -SEGV $$\nexec {test.path} "$@"\n')
    os.chmod("dies", 0o755)
    job = cluster.submit(*two_nodes, f"{JOBS}/dense.sbatch", "invert", "dense.h5", "-o", "never.h5", "--backend", "cpu", cwd=".",
                         env={"TERRACE": os.path.abspath("dies"), "SLURM_WAIT": "2"})
    end = cluster.finish(job, 60)
    log = read(f"slurm-{job}.out")
    check("a rank that dies at the start ends the job", end["JobState"] == "FAILED" and end["Restarts"] == "0" and
          not os.path.exists("never.h5"), f"{end}\n{log}")
    say("a rank that dies at the start")
    stuck.append(f"slurmstepd: [{job}.0]")  # SLURM's own, with PMIx 4.2: waits for the peers of the dead rank


def sweep(cluster):
    with open("commands.txt", "w") as f:
        f.write("# seed by seed\n\n" + "".join(
            f"generate dense-random --n 50 --seed {k} -o 'a sweep {k}.h5' --quiet\n" for k in (1, 2)) +
            "gf2 rref gf2.h5 -o sweep_3.h5 --backend cpu\n")
    job = cluster.submit(*one_node, "--array=1-3", f"{JOBS}/sweep.sbatch", "commands.txt", cwd=".")
    for task in (1, 2, 3):
        end = cluster.finish(f"{job}_{task}", 60)
        check(f"sweep, task {task}", end["JobState"] == "COMPLETED", f"{end}\n{read(f'slurm-{job}_{task}.out')}")
    check("sweep: one line a task", os.path.exists("a sweep 1.h5") and os.path.exists("a sweep 2.h5") and
          same("sweep_3.h5", "gf2_plain.h5"), str(os.listdir(".")))
    job = cluster.submit(*one_node, "--array=4", f"{JOBS}/sweep.sbatch", "commands.txt", cwd=".")
    end = cluster.finish(f"{job}_4", 60)
    check("sweep: a line too far", end["ExitCode"] == "2:0", f"{end}")
    # One task is stopped: it alone goes back into the queue. The last task has the number of the whole array.
    with open("commands.txt", "w") as f:
        f.write("".join(f"gf2 rref gf2.h5 -o task_{k}.h5 --backend cpu\n" for k in (1, 2)))
    job = cluster.submit(*one_node, "--array=1-2", f"{JOBS}/sweep.sbatch", "commands.txt", cwd=".",
                         env={"TERRACE_CHECKPOINT_EVERY": "1s", "TERRACE_TEST_STEP_DELAY_MS": "500"})
    wait_for("a task's checkpoint", lambda: os.path.exists(f"terrace-{job}_2.checkpoint.h5"))
    cluster.run("scancel", "--signal=USR2", f"{job}_2", check=True)
    for task, restarts in ((1, "0"), (2, "1")):
        end = cluster.finish(f"{job}_{task}", 90)
        check(f"task {task} of a sweep, {restarts} restarts", end["JobState"] == "COMPLETED" and end["Restarts"] == restarts and
              same(f"task_{task}.h5", "gf2_plain.h5"), f"{end}\n{read(f'slurm-{job}_{task}.out')}")
    say("a sweep")


def surroundings(cluster):
    """modules.sh and an image: what the scripts make of them. Apptainer itself is a stand-in here."""
    shutil.copytree(JOBS, "other_jobs", ignore=shutil.ignore_patterns("results"))
    with open("other_jobs/modules.sh", "w") as f:
        f.write('module() { echo "module $*"; }\n')
    os.mkdir("bin")
    with open("bin/apptainer", "w") as f:
        f.write('#!/bin/sh\n[ "$1 $2 $3" = "exec --nv image.sif" ] || exit 9\nshift 3\nexec "$@"\n')
    os.chmod("bin/apptainer", os.stat("bin/apptainer").st_mode | stat.S_IXUSR)
    path = os.path.abspath("bin") + ":" + os.path.dirname(test.path) + ":" + cluster.env["PATH"]
    job = cluster.submit(*two_nodes, "other_jobs/terrace.sbatch", "info", cwd=".", env={
        "TERRACE": "terrace", "TERRACE_IMAGE": "image.sif", "TERRACE_MODULES": "gcc openmpi", "PATH": path})
    end = cluster.finish(job, 60)
    log = read(f"slurm-{job}.out")
    check("modules are loaded", "module load gcc openmpi" in log, log)
    check("terrace in an image", end["JobState"] == "COMPLETED" and "apptainer exec --nv image.sif terrace info" in log, log)
    check("info: a rank on each host", "rank 0     n1" in log and "rank 1     n2" in log, log)
    say("modules and an image")


def main():
    lacks = slurm_cluster.missing()
    if lacks:
        test.check("this machine", False, f"it lacks {', '.join(lacks)}: jobs/setup.sh names the packages")
        test.finish()
    cluster = slurm_cluster.Cluster(nodes=2, cpus=8)
    cluster.env["TERRACE"] = test.path
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):  # the cluster ends with this test
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    signal.alarm(840)  # before ctest's own limit, which leaves no time to clean up
    try:
        prepare()
        say("undisturbed runs done")
        with cluster:
            say("the cluster is up")
            limit = time_limit(cluster)
            try:
                for part in (signalled, other_ranks, cancelled, failing, dead_at_start, sweep, surroundings):
                    part(cluster)
                end = cluster.finish(limit, 150)
                log = read(f"slurm-{limit}.out")
                check("stopped before the time limit, requeued, done", end["JobState"] == "COMPLETED" and
                      int(end["Restarts"]) >= 1 and "exit code 75: back into the queue" in log and os.path.exists("limit.h5") and
                      same("limit.h5", "rank_plain.h5"), f"{end}\n{log}")
                say("the time limit")
            except Exception:
                print(cluster.logs())
                for name in sorted(os.listdir(".")):
                    if name.startswith("slurm-"):
                        print(f"--- {name}\n{read(name)[-700:]}")
                raise
            left = cluster.stop()
            left = [line for line in left if line not in stuck]
            check("nothing is left behind", not left, "\n".join(left))
    except (Exception, SystemExit):
        check("to the end", False, traceback.format_exc())
    say("the end")
    test.finish()


main()
