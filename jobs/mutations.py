#!/usr/bin/env python3
"""Would a test notice? Applies one-line mutations to a copy of the tree, one at a time, and runs the tests that should fail.

mutations.py [--check] [--list] [--only K[,K...]] [--tree FOLDER] [--results FILE] [--backend cpu|cuda] [--minutes M] [--again]
             [--table FILE.md]

  --check    every old text is found exactly once, and every named test exists in tests/; builds nothing; exit 1 when more than a
             tenth does not apply, as code moves
  --tree     the copy, a git worktree at HEAD (default build-mutations/tree), kept for the next run
  --results  one JSON object a line (default build-mutations/results.jsonl); mutations that stand there are not tried again (--again)
  --table    writes the table of all results

A mutation is `killed` by the first test that fails, `survived` when all pass, or `does not compile`. Each test is run without a
mutation first. Exit 1 when more than a tenth of what compiled survived.
"""
import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time

from mutation_list import MUTATIONS

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
parser = argparse.ArgumentParser()
parser.add_argument("--check", action="store_true")
parser.add_argument("--list", action="store_true")
parser.add_argument("--only", type=lambda x: [int(k) for k in x.split(",")])
parser.add_argument("--tree", type=os.path.abspath, default=os.path.join(root, "build-mutations", "tree"))
parser.add_argument("--results", type=os.path.abspath, default=os.path.join(root, "build-mutations", "results.jsonl"))
parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--minutes", type=float, default=1e9)
parser.add_argument("--again", action="store_true")
parser.add_argument("--table", type=os.path.abspath)
parser.add_argument("--without", default="", help="passed on to differential.py")
options = parser.parse_args()
FAMILIES = {"gf2", "band", "dense", "cg", "generate", "convert", "all"}


def tests_of(text):
    """[(kind, name)]: kind is "", "lanes" or "gpu"."""
    result, kind = [], ""
    for word in text.split():
        if word in ("lanes", "gpu"):
            kind = word
        else:
            result.append((kind, word))
            kind = ""
    return result


def key_of(mutation):
    return hashlib.sha256("\0".join(mutation).encode()).hexdigest()[:16]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def check(tree):
    """What is wrong with the list."""
    wrong, lists = [], ""
    for name in sorted(os.listdir(os.path.join(root, "tests"))):
        if name.endswith(".cmake"):
            lists += read(os.path.join(root, "tests", name))
    for k, (file, old, new, tests) in enumerate(MUTATIONS):
        path = os.path.join(tree, file)
        found = read(path).count(old) if os.path.exists(path) else -1
        if found != 1:
            wrong.append(f"mutation {k}: {file}: {'no such file' if found < 0 else f'found {found} times'}: {old.strip()!r}")
        if old == new:
            wrong.append(f"mutation {k} changes nothing")
        for _, name in tests_of(tests):
            if name.split(":")[0] in FAMILIES:
                continue
            if name.startswith("program/"):
                there = re.search(r"terrace_program_test\(" + name.split("/")[1] + r"\b", lists)
            else:
                there = os.path.exists(os.path.join(root, "tests", name.rsplit(".", 1)[0] + "_test.cpp"))
            if not there:
                wrong.append(f"mutation {k}: no test {name}")
    return wrong


def command(words, log, timeout, env=None):
    """Exit code; 124 past the limit."""
    with open(log, "a") as out:
        out.write(f"== {' '.join(words)}\n")
        out.flush()
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, cwd=options.tree, env=env, start_new_session=True)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return 124
        finally:  # of a hung test, its ranks too
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


class Bench:
    """The copy and its build."""

    def __init__(self):
        self.build, self.log = os.path.join(options.tree, "build"), options.results + ".log"
        if subprocess.run([sys.executable, "-c", "import h5py, numpy, scipy"], capture_output=True).returncode != 0:
            sys.exit(f"{sys.executable} has no h5py, NumPy and SciPy, which the tests need: start this with one that has, as /usr/bin/python3")
        self.baseline, self.limit = {}, {}
        os.makedirs(os.path.dirname(options.results), exist_ok=True)
        if not os.path.exists(options.tree):
            subprocess.run(["git", "worktree", "prune"], cwd=root, check=True)
            subprocess.run(["git", "worktree", "add", "--detach", "--force", options.tree, "HEAD"], cwd=root, check=True, stdout=subprocess.DEVNULL)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run(["git", "checkout", "-q", "--detach", "--force", head], cwd=options.tree, check=True)
        launcher = os.environ.get("TERRACE_LAUNCHER", "ccache" if subprocess.run(["which", "ccache"], capture_output=True).returncode == 0 else "")
        words = ["cmake", "-S", ".", "-B", self.build, "-G", "Ninja", "-DTERRACE_TESTS=ON", "-DTERRACE_WERROR=ON", f"-DTERRACE_CUDA={'ON' if options.backend == 'cuda' else 'OFF'}"]
        words += [f"-DCMAKE_{x}_COMPILER_LAUNCHER={launcher}" for x in ("C", "CXX", "CUDA") if launcher]
        os.environ.setdefault("CCACHE_NOHASHDIR", "1")
        os.environ.setdefault("OMPI_MCA_pml", "ob1")  # other ones look for a network first, 0.2 s a run
        os.environ["CCACHE_BASEDIR"] = options.tree
        if command(words, self.log, 600) != 0:
            sys.exit(f"configuring failed; {self.log}")

    def target(self, name):
        if name.split(":")[0] in FAMILIES or name.startswith("program/"):
            return "terrace"
        return name.rsplit(".", 1)[0].replace("/", "_") + "_test"

    def make(self, name):
        return command(["ninja", "-C", self.build, f"-j{os.cpu_count()}", self.target(name)], self.log, 3600)

    def run(self, kind, name, limit=900.0):
        """`limit`: seconds; a mutation that hangs is noticed."""
        env = dict(os.environ)
        if kind == "lanes":
            env.update(TERRACE_CPU_LANES="threads", TERRACE_CPU_DELAY_US="500")
        family, _, count = name.partition(":")
        if family in FAMILIES:
            words = [sys.executable, os.path.join(options.tree, "tests", "program", "differential.py"), os.path.join(self.build, "terrace"), "--seed", "11",
                     "--count", count or "60", "--jobs", "2", "--limit", "60", "--backend", options.backend, "--stop"]
            words += (["--family", family] if family != "all" else []) + (["--without", options.without] if options.without else [])
            return command(words, self.log, limit, env)
        return command(["ctest", "--test-dir", self.build, "--timeout", "300", "-R", f"^{re.escape(name)}$", "--no-tests=error"], self.log, limit, env)

    def sound(self, kind, name):
        """Passes without a mutation. Cases of a family are those of a longer run of it that passed."""
        family, _, count = name.partition(":")
        for (k, longer), passed in self.baseline.items():
            other, _, more = longer.partition(":")
            if family in FAMILIES and passed and (k, other) == (kind, family) and int(more or 60) >= int(count or 60):
                self.baseline.setdefault((kind, name), True)
                self.limit.setdefault((kind, name), self.limit[kind, longer])
                break
        if (kind, name) not in self.baseline:
            made, start = self.make(name) == 0, time.time()
            self.baseline[kind, name] = made and self.run(kind, name) == 0
            self.limit[kind, name] = 30 + 6 * (time.time() - start)
            if not self.baseline[kind, name]:
                print(f"    {kind} {name} fails without a mutation: left out", flush=True)
        return self.baseline[kind, name]


def attempt(bench, mutation):
    file, old, new, tests = mutation
    wanted = [(kind, name) for kind, name in tests_of(tests) if kind != "gpu" or options.backend == "cuda"]
    usable = [x for x in wanted if bench.sound(*x)]
    if not usable:
        return "no test", ""
    path = os.path.join(options.tree, file)
    text = read(path)
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        for kind, name in usable:
            if bench.make(name) != 0:
                return "does not compile", ""
            code = bench.run(kind, name, bench.limit[kind, name])
            if code != 0:
                return "killed", f"{kind} {name}".strip() + (" (time)" if code == 124 else "")
        return "survived", " ".join(f"{k} {n}".strip() for k, n in usable)
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def results():
    found = {}
    if os.path.exists(options.results):
        with open(options.results) as f:
            for line in f:
                entry = json.loads(line)
                found[entry["key"]] = entry
    return found


def summary(found):
    told = [found[key_of(m)] for m in MUTATIONS if key_of(m) in found]
    count = {v: sum(e["verdict"] == v for e in told) for v in ("killed", "survived", "does not compile", "no test")}
    compiled = count["killed"] + count["survived"]
    share = 100 * count["survived"] / compiled if compiled else 0.0
    return count, share, (f"{len(told)} of {len(MUTATIONS)} tried: {count['killed']} killed, {count['survived']} survived ({share:.1f} %), "
                          f"{count['does not compile']} do not compile, {count['no test']} without a usable test")


def table(found, path):
    lines = ["| # | file | old | new | verdict |", "|---|---|---|---|---|"]
    for k, m in enumerate(MUTATIONS):
        e = found.get(key_of(m))
        cell = lambda t: "`" + " ".join(t.split()).replace("|", "\\|").replace("`", "'")[:110] + "`" if t.strip() else "(nothing)"
        verdict = "not tried (GPU)" if e is None and "gpu" in m[3] else "not tried" if e is None else e["verdict"] + (f" by {e['by']}" if e["verdict"] == "killed" else "")
        lines.append(f"| {k} | {m[0]} | {cell(m[1])} | {cell(m[2])} | {verdict} |")
    with open(path, "w") as f:
        f.write(f"{datetime.date.today()}, {platform.node()}, {os.cpu_count()} cores: {summary(found)[2]}.\n\n" + "\n".join(lines) + "\n")


def main():
    if options.list:
        for k, m in enumerate(MUTATIONS):
            print(k, m[0], repr(m[1].strip()), "->", repr(m[2].strip()), "|", m[3])
        return 0
    wrong = check(root)
    for line in wrong:
        print(line)
    if options.check:
        print(f"{len(MUTATIONS)} mutations, {len(wrong)} do not apply")
        return 1 if 10 * len(wrong) > len(MUTATIONS) else 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the mutated file is put back
    found, begin = results(), time.time()
    numbers = [k for k in (options.only or range(len(MUTATIONS)))]
    if any(options.again or key_of(MUTATIONS[k]) not in found for k in numbers):
        bench = Bench()
        for k in numbers:
            m = MUTATIONS[k]
            if (not options.again and key_of(m) in found) or time.time() - begin > 60 * options.minutes:
                continue
            if options.backend == "cpu" and all(kind == "gpu" for kind, _ in tests_of(m[3])):
                continue
            if read(os.path.join(options.tree, m[0])).count(m[1]) != 1:
                print(f"{k:3} does not apply  {m[0]}", flush=True)
                continue
            start = time.time()
            verdict, by = attempt(bench, m)
            entry = {"key": key_of(m), "file": m[0], "verdict": verdict, "by": by, "seconds": round(time.time() - start, 1)}
            found[entry["key"]] = entry
            with open(options.results, "a") as f:
                f.write(json.dumps(entry) + "\n")
            print(f"{k:3} {verdict:17} {entry['seconds']:6.1f} s  {m[0]}: {m[1].strip()[:70]!r} {'by ' + by if verdict == 'killed' else ''}", flush=True)
    print(summary(found)[2])
    if options.table:
        table(found, options.table)
    return 1 if summary(found)[1] > 10 else 0


if __name__ == "__main__":
    sys.exit(main())
