"""The frame of the tests here: a folder of their own, the program started in it, failures counted, the last line.

    test = Program(sys.argv[1])                     # from here on the current folder is a temporary one
    done = test.run("dense invert in.h5:/A -o out.h5", ranks=2, code=0)      # done.code, done.out, done.err
    test.check("the inverse", np.allclose(...), "what was seen")
    test.finish()                                   # exit 0, 1 after failures, 77 where something was skipped
"""
import atexit
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

import schema

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOBS = os.path.join(ROOT, "jobs")
os.environ.setdefault("TERRACE_TEST_BOUNDS", "1")  # bench measures its bounds at small sizes
ALL = "TERRACE_TEST_ALL" in os.environ  # every case: the nightly run


_own = threading.local()


def launcher_folder():
    """What the environment of an mpirun gets: a folder of Open MPI's for this thread alone. Of two at once in one folder, one removes what
    the other has just made."""
    if not hasattr(_own, "folder"):
        base = os.environ.get("OMPI_MCA_orte_tmpdir_base")
        if base:
            os.makedirs(base, exist_ok=True)
        _own.folder = tempfile.mkdtemp(prefix="terrace-mpi-", dir=base)
        atexit.register(shutil.rmtree, _own.folder, ignore_errors=True)
    return {"OMPI_MCA_orte_tmpdir_base": _own.folder}


class Done(collections.namedtuple("Done", "code out err")):
    """One run that has ended."""

    @property
    def said(self):
        """The program's own lines on standard error."""
        return [line for line in self.err.splitlines() if line.startswith("terrace: ")]


class Program:
    def __init__(self, path, folder=None, **environment):
        """`folder`: where the temporary one is made; `environment`: of every run."""
        self.path, self.environment, self.failures, self.runs, self.asked = os.path.abspath(path), environment, 0, 0, 0
        self.folder = tempfile.mkdtemp(prefix="terrace-test-", dir=folder)
        os.chdir(self.folder)

    def words(self, command, ranks=1, wrapper=()):
        """The whole command line; one rank starts without mpirun, ranks=0 too."""
        launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        return launcher + [*wrapper, self.path] + (command.split() if isinstance(command, str) else list(command))

    def env(self, more=None):
        return {**os.environ, **self.environment, **(more or {})}

    def turn(self):
        """Numbers of ranks for one run after the other; a run of several takes four times the processor time of one."""
        return (1, 2, 1, 3, 1, 1, 2, 1, 5, 1, 3, 1, 1, 2, 1, 4, 1)[self.runs % 17]

    def some(self, *choices):
        """One of the `choices`; calls in any loop get each of them (the Thue-Morse sequence, of two); in the nightly run all."""
        k, n, self.asked = 0, self.asked, self.asked + 1
        while n > 0 and len(choices) > 1:
            k, n = k + n, n // len(choices)
        return choices if ALL else (choices[k % len(choices)],)

    def part(self, items):
        """One in three of the items, of two one: calls in any loop get each; in the nightly run all."""
        items = list(items)
        step = min(3, len(items))
        return items if ALL or step < 2 else items[self.some(*range(step))[0] :: step]

    def run(self, command, ranks=1, code=None, env=None, timeout=120, wrapper=(), **how):
        """Runs to the end; `code`: the exit code that it must have; `how`: for subprocess.run."""
        self.runs += 1
        for _ in range(3):
            done = subprocess.run(self.words(command, ranks, wrapper), timeout=timeout,
                                  env=self.env({**(launcher_folder() if ranks > 1 else {}), **(env or {})}),
                                  **{"capture_output": True, "text": True, **how})
            # mpirun 4.1 itself may crash while it passes its standard input on.
            if not (ranks > 1 and "input" in how and done.returncode < 0 and "mca_iof_hnp" in str(done.stderr)):
                break
        if code is not None:
            self.check(command, done.returncode == code, f"{ranks} ranks: exit {done.returncode}, not {code}: {(done.stderr or '')[:400]}")
        return Done(done.returncode, done.stdout, done.stderr)

    def reported(self, command, ranks=1, code=0, env=None):
        """As `run`, with --report: standard output, standard error, the report."""
        remove("report.json")
        done = self.run(command + " --report report.json", ranks, code, env)
        report = read_json("report.json") if os.path.exists("report.json") else {}
        wrong = schema.faults(report) if report else []
        self.check(command, not wrong, f"not as report.schema.json has it: {wrong}")
        return done.out, done.err, report

    def refused(self, command, code, *words, ranks=1, env=None):
        """Exit `code`, one message with all `words`, and no file appears or changes."""
        before = {f: os.stat(f).st_mtime_ns for f in os.listdir(".")}
        done = self.run(command, ranks, code, env)
        self.check(command, len(done.said) == 1, f"{len(done.said)} messages: {done.err.strip()[:300]}")
        for word in words:
            self.check(command, done.said and word in done.said[0], f"no '{word}' in: {done.said[:1]}")
        after = {f: os.stat(f).st_mtime_ns for f in os.listdir(".")}
        self.check(command, before == after, f"left behind: {sorted(set(after.items()) ^ set(before.items()))}")
        return done

    def script(self, *words, timeout=300, **environment):
        """Runs another program, as a rule a script of jobs/, which finds this one in TERRACE."""
        words = [sys.executable] * words[0].endswith(".py") + list(words)
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, "TERRACE": self.path, **environment})
        return Done(done.returncode, done.stdout, done.stderr)

    def check(self, what, condition, detail=""):
        if not condition:
            self.failures += 1
            print(f"FAILED  {what}: {detail}", flush=True)
        return bool(condition)

    def skipped(self, why):
        """Says why a part was not tried; all else was."""
        print(f"skipped: {why}", flush=True)
        return True

    def finish(self, skipped=False):
        os.chdir("/")
        shutil.rmtree(self.folder, ignore_errors=True)
        print(f"{self.failures} failed" if self.failures else "all passed")
        sys.exit(1 if self.failures else 77 if skipped else 0)


def read_json(name="r.json"):
    with open(name) as f:
        return json.load(f)


def remove(*names):
    for name in names:
        if os.path.exists(name):
            os.remove(name)


def left_over():
    """Unfinished files of the current folder."""
    return [f for f in os.listdir(".") if "tmp" in f or f.startswith(".")]


def drawn(name, done):
    """{line or bar of a figure: its points}; None, as the script must say, where matplotlib is not there."""
    if "not drawn" in done.out and not os.path.exists(name):
        return None
    with open(name) as f:
        parts = f.read().split('<g id="')
    return {part.partition('"')[0]: part.count("<use ") for part in parts if part.startswith(("line-", "bar-"))}


def gpus():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    except OSError:
        return 0
