#!/usr/bin/env python3
"""Every header compiles by itself.

headers.py ROOT BUILD [--all]: those that changed (tests/changed.py), or all. BUILD/compile_commands.json has the flags; exit 1 when
a header needs what it does not include, 77 without a history.
"""
import concurrent.futures
import os
import subprocess
import sys

from changed import changed, first_of
from compile_flags import entries, flags

root, build = os.path.abspath(sys.argv[1]), sys.argv[2]
commands = entries(root, build)


def flags_for(folder):
    """Of the first source of C++ in the folder."""
    directory, words = next(commands[path] for path in sorted(commands) if path.startswith(folder) and path.endswith(".cpp"))
    return directory, flags(words) + ["-fsyntax-only", "-O0", "-w", "-x", "c++"]


def headers(folder):
    for where, _, names in os.walk(os.path.join(root, folder)):
        for name in sorted(names):
            if name.endswith(".hpp"):
                yield os.path.relpath(os.path.join(where, name), root)


def compile_alone(work):
    header, (directory, command) = work
    done = subprocess.run(command + ["-include", os.path.join(root, header), "/dev/null"], cwd=directory, capture_output=True, text=True)
    return header, done.returncode, next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])


work = []
rooms = sorted("src/" + name for name in os.listdir(os.path.join(root, "src")) if "." not in name and name != "api")
for folder in ["kernels", "distrib", "io"] + rooms:
    alone = flags_for(folder)
    work += [(header, alone) for header in headers(folder)]
if "--all" not in sys.argv:
    since = changed(root)
    work = first_of([job for job in work if job[0] in since])
failed = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for header, code, error in pool.map(compile_alone, work):
        if code != 0:
            failed += 1
            print(f"{header} does not compile by itself: {error}")
print(f"{len(work)} headers, {failed} do not compile by themselves")
sys.exit(failed > 0)
