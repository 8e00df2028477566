#!/usr/bin/env python3
"""The examples of the pages run and print what the pages say: pages.py TERRACE [PAGE ...]

Blocks marked `sh` and `python` are run in their order, those of a page in one folder. A line `# ...` of a block of `sh` must
have been printed by its commands: numbers with a point or an exponent may differ, all other words may not. Options that
pages name are options of the program.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

terrace = os.path.abspath(sys.argv[1])
root = pathlib.Path(__file__).resolve().parents[2]
pages = sys.argv[2:] or ["README.md", "jobs/README.md", "io/README.md"] + [f"src/{name}/README.md" for name in ("gf2", "band", "dense", "cg")]
# Options of mpirun, SLURM, CMake, ctest and our scripts.
OTHERS = """--array --bind-to --build --built-in --compare --cpu-bind --cpus-per-task --disk --gpu-bind --gres --inputs --install --large --limit --mpi --minutes --nodes
--ntasks-per-node --only --oversubscribe --prefix --preset --rounds --scale --seconds --signal --static --steps --table --tables --target --test-dir --touch --wait""".split()
# An example that is over before its first checkpoint is due would have none to restart from.
HASTE = {"--checkpoint-every 10m": "--checkpoint-every 0.001s"}
failures = count = 0


def measured(line):
    """The line without what differs from run to run."""
    return " ".join(re.sub(r"[-+]?\d+\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|\d+(?= iterations/s)", "~", line).split())


for page in pages:
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", (root / page).read_text(), flags=re.S | re.M)
    if not blocks:
        failures += 1
        print(f"FAILED  {page}: no example")
    with tempfile.TemporaryDirectory(prefix="terrace-pages-") as folder:
        os.symlink(terrace, os.path.join(folder, "terrace"))
        environment = {**os.environ, "PATH": folder + ":" + os.environ["PATH"], "PYTHONPATH": str(root / "src/api/python"),
                       "PYTHONDONTWRITEBYTECODE": "1", "TERRACE_LIBRARY": os.path.join(os.path.dirname(terrace), "libterrace.so")}
        for language, block in blocks:
            count += 1
            for usual, quick in HASTE.items():
                block = block.replace(usual, quick)
            start = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
            done = subprocess.run(start + [block], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            printed = [measured(line) for line in done.stdout.split("\n")]
            lacking = [line for line in block.split("\n") if language == "sh" and line.startswith("# ") and measured(line[2:]) not in printed]
            if done.returncode != 0 or lacking:
                failures += 1
                print(f"FAILED  {page}: exit {done.returncode}, not printed: {lacking}\n{block}{done.stdout}", flush=True)
completion = subprocess.run([terrace, "--completion", "bash"], capture_output=True, text=True).stdout  # all options of all commands
options = set(OTHERS) | set(re.findall(r"--[a-z][\w-]*", completion))
for page in sorted(root.glob("*/**/README.md")) + [root / "README.md"] + sorted(root.glob("jobs/results/[!m]*.md")):
    if page.relative_to(root).parts[0].startswith(("build", ".")):
        continue
    for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text())) - options):
        failures += 1
        print(f"FAILED  {page.relative_to(root)}: terrace has no option {option}")
print(f"{count} examples, {failures} failed")
sys.exit(bool(failures) or count == 0)
