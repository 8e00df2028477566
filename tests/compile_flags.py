"""With which flags each source is compiled, from compile_commands.json: also those that unity builds put together."""
import json
import os
import re
import shlex


def entries(root, build):
    """{path below root: (folder, the words of its command)}"""
    with open(os.path.join(build, "compile_commands.json")) as f:
        commands = json.load(f)
    found = {}
    for entry in commands:
        sources = [entry["file"]]
        if "/Unity/" in entry["file"]:
            with open(entry["file"]) as f:
                sources = re.findall(r'^#include "(.*)"', f.read(), re.M)
        for source in sources:
            found[os.path.relpath(source, root)] = (entry["directory"], shlex.split(entry["command"]))
    return found


def flags(words):
    """The compiler and its flags, without source, outputs and precompiled headers."""
    left_out, with_value = ("-c", "-MD", "-Winvalid-pch"), ("-o", "-MT", "-MF", "-include")
    first = next(i for i, word in enumerate(words) if word.startswith("-"))
    kept, skip = [words[first - 1]], False
    for word in words[first:]:
        if skip or word in with_value or word in left_out:
            skip = word in with_value
        elif word.startswith("-") or not word.endswith((".cpp", ".cxx", ".c")):
            kept.append(word)
    return kept
