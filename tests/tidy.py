#!/usr/bin/env python3
"""clang-tidy on the sources that changed, or on all; what .clang-tidy calls an error fails.

tidy.py ROOT BUILD [--all] [--since REF]

  --all      every source of src, kernels, distrib and io that the build compiles with C++
  --since    sources that differ from this commit, and those not committed (default: where this branch left origin/main; on main
             itself the commit before); those that were moved are left out, and of many the first 20 are taken
Exit 77 without clang-tidy or without a history.
"""
import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys

from compile_flags import entries, flags

parser = argparse.ArgumentParser()
parser.add_argument("root", type=os.path.abspath)
parser.add_argument("build")
parser.add_argument("--all", action="store_true")
parser.add_argument("--since")
options = parser.parse_args()
if not shutil.which("clang-tidy"):
    print("skipped: clang-tidy is not here")
    sys.exit(77)


def git(*words):
    done = subprocess.run(["git", *words], cwd=options.root, capture_output=True, text=True)
    return done.stdout.split("\n") if done.returncode == 0 else None


built = entries(options.root, options.build)
wanted = sorted(path for path in built if path.endswith(".cpp") and path.split("/")[0] in ("src", "kernels", "distrib", "io"))
if not options.all:
    head, since = git("rev-parse", "HEAD") or [None], options.since or (git("merge-base", "origin/main", "HEAD") or [None])[0]
    if not options.since and (since is None or since == head[0]):
        since = (git("rev-parse", "HEAD~1") or [None])[0]
    if not since:
        print("skipped: no git history here")
        sys.exit(77)
    changed = set(git("diff", "--name-only", "-M", "--diff-filter=AM", since) or []) | set(git("ls-files", "--others", "--exclude-standard") or [])
    wanted = [path for path in wanted if path in changed]
    if len(wanted) > 20:
        print(f"20 of {len(wanted)} changed files; --all takes all")
    wanted = wanted[:20]


def tidy(path):
    directory, words = built[path]
    done = subprocess.run(["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option", os.path.join(options.root, path), "--", *flags(words)[1:]],
                          cwd=directory, capture_output=True, text=True)
    return path, done.returncode, done.stdout


failed = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for path, code, text in pool.map(tidy, wanted):
        warnings = [line for line in text.splitlines() if ": warning:" in line or ": error:" in line]
        if warnings:
            print("\n".join(dict.fromkeys(warnings)))
        failed += code != 0
print(f"{len(wanted)} files, {failed} with errors")
sys.exit(failed > 0)
