#!/usr/bin/env python3
"""The GPU suite on two hosts made of one machine with two GPUs (hosts.py): a GPU for each, no peer memory, NCCL through its
network transport. Every family, a pulled cable, faults, restarts, and the cases of devices of every test on two ranks.

two_hosts_gpu.py TERRACE [--only families,suite,tests] [--tests FOLDER] [--seconds 900]     FOLDER has the test programs.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import time

import hosts
from terrace import ROOT, Program, launcher_folder

parser = argparse.ArgumentParser()
parser.add_argument("terrace")
parser.add_argument("--only", default="families,suite,tests")
parser.add_argument("--tests", help="default: tests beside the program")
parser.add_argument("--seconds", type=float, default=900)
options = parser.parse_args()
hosts.need(2)
test = Program(options.terrace)
folder = os.path.abspath(options.tests or os.path.join(os.path.dirname(test.path), "tests"))
here = os.path.dirname(os.path.abspath(__file__))


def run(words, limit, **environment):
    begin = time.time()
    done = subprocess.run(["timeout", "-k", "5", str(int(limit)), *words], capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr, time.time() - begin


def families():
    code, said, seconds = run([sys.executable, here + "/two_hosts.py", test.path, "--backend", "cuda"], 400)
    print(said, flush=True)
    test.check("families, and a pulled cable", code == 0, f"exit {code}, {seconds:.0f} s")


def suite(two):
    code, said, seconds = run([sys.executable, here + "/gpu.py", test.path, "--only", "faults,checkpoints", "--ranks", "2", "--seconds",
                               str(options.seconds)], options.seconds + 200, PATH=two.bin + ":" + os.environ["PATH"])
    print(said, flush=True)
    test.check("faults and restarts", code == 0 and "stopped for time" not in said, f"exit {code}, {seconds:.0f} s")


def on_two_ranks():
    """Test programs that the lists of tests/*.cmake start on two ranks and that have cases of devices."""
    for name in sorted(glob.glob(ROOT + "/tests/*.cmake")):
        with open(name) as f:
            for test_name, ranks in re.findall(r"^\s*terrace_test\((\S+) RANKS ([\d ]+)", f.read(), re.M):
                with open(f"{ROOT}/tests/{test_name}_test.cpp") as source:
                    program = f"{folder}/{test_name.replace('/', '_')}_test"
                    if "2" in ranks.split() and re.search(r"BACKENDS|Cuda|\[gpu\]", source.read()) and os.path.exists(program):
                        yield program


def tests(two):
    def one(program):
        return program, *run([two.mpirun, "-n", "2", program, "*cuda*,[gpu]"], 300, TERRACE_OVERSUBSCRIBE="0", **launcher_folder())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = list(pool.map(one, on_two_ranks()))
    test.check("tests", done, f"no test program in {folder}")
    for program, code, said, seconds in done:
        passed = re.search(r"All tests passed.*", said)
        print(f"{os.path.basename(program)}: {seconds:.1f} s, {passed[0] if passed else f'exit {code}'}", flush=True)
        test.check(program, code == 0 and passed, said[-1500:])


begin = time.time()
if "families" in options.only:
    families()
if "suite" in options.only or "tests" in options.only:
    with hosts.TwoHosts(test.folder) as two:
        if "suite" in options.only:
            suite(two)
        if "tests" in options.only:
            tests(two)
print(f"{time.time() - begin:.0f} s")
test.finish()
