#!/usr/bin/env python3
"""clang-tidy on the sources that changed, or on all; what .clang-tidy calls an error fails.

tidy.py ROOT BUILD [--all] [--since REF]

  --all      every source of src, kernels, distrib and io that the build compiles with C++
  --since    sources that differ from this commit (default: tests/changed.py), of many the first 8
Exit 77 without clang-tidy or without a history.
"""
import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys

from changed import changed, first_of
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


built = entries(options.root, options.build)
wanted = sorted(path for path in built if path.endswith(".cpp") and path.split("/")[0] in ("src", "kernels", "distrib", "io"))
if not options.all:
    since = changed(options.root, options.since)
    wanted = first_of([path for path in wanted if path in since], 8)  # 20 s of a core each


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
            print("\n".join(dict.fromkeys(warnings)), flush=True)
        failed += code != 0
print(f"{len(wanted)} files, {failed} with errors")
sys.exit(failed > 0)
