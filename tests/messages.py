#!/usr/bin/env python3
"""Every message of an Error in the sources has three parts, what; where; what to do: messages.py ROOT

The literals of a message are joined; where a part comes from a variable or from a function, the call is named below.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
start = re.compile(r"\b(?:Error|fail_together)\(\s*Exit::\w+\s*,|\bfail_together\(\s*Exit\(")
literal = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Internal errors, of kernels and of devices: the program gives them their where and what to do when they are printed.
internal = re.compile(r"kernels/|distrib/(communicator_nccl|peer_line|control|faults|agree)|src/bench/")
wrong = []
count = 0
for folder in ("distrib", "io", "src"):
    for path in sorted(root.glob(folder + "/**/*.?pp")):
        if internal.match(str(path.relative_to(root))):
            continue
        source = path.read_text()
        for found in start.finditer(source):
            depth, at = 1, found.end()
            while depth and at < len(source):
                if source[at] == '"':
                    at = literal.match(source, at).end()
                    continue
                depth += {"(": 1, ")": -1}.get(source[at], 0)
                at += 1
            arguments = source[found.end():at - 1]
            said = "".join(literal.findall(arguments))
            rest = literal.sub("", arguments).strip()
            parts = said.count("; ") + 1
            if not said or (parts < 3 and re.search(r"\bwhat\b|\bhdf5_reason\b|\btodo\b|\bmessage\b", rest)):
                continue  # parts of a variable: the run-time tests see those
            count += 1
            if parts != 3:
                wrong.append(f"{path.relative_to(root)}:{source.count(chr(10), 0, found.start()) + 1}: {parts} parts: {said}")
print("\n".join(wrong))
print(f"{count} messages, {len(wrong)} not of three parts")
sys.exit(bool(wrong) or count < 150)
