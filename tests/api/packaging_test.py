#!/usr/bin/env python3
"""The recipes of jobs/packaging and jobs/terrace.def: their syntax, and that what they name is there. Nothing is built."""
import ast
import os
import re
import subprocess
import sys

source = sys.argv[1]


def text(*path):
    with open(os.path.join(source, *path)) as file:
        return file.read()


def check(truth, what):
    if not truth:
        sys.exit(f"failed: {what}")


# Spack: a class named as the package, whose options CMakeLists.txt knows.
recipe = text("jobs", "packaging", "spack", "package.py")
tree = ast.parse(recipe)
cmake = text("CMakeLists.txt")
classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
check([c.name for c in classes] == ["Terrace"], "the recipe of Spack has the class Terrace")
calls = [node.value for node in classes[0].body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
variants = {c.args[0].value for c in calls if c.func.id == "variant"} | {"cuda"}  # CudaPackage's
for option, variant in re.findall(r'define_from_variant\("(\w+)", "(\w+)"\)', recipe):
    check(variant in variants, f"the recipe of Spack has the variant {variant}")
    check(option in cmake, f"CMakeLists.txt knows {option}")
check(any(c.func.id == "depends_on" and c.args[0].value.startswith("hdf5") and "+mpi" in c.args[0].value for c in calls), "HDF5 with MPI")

# Docker: known instructions, the base first, files that are there.
lines = re.sub(r"\\\n", " ", text("jobs", "packaging", "Dockerfile")).splitlines()
steps = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
known = {"ARG", "FROM", "COPY", "WORKDIR", "RUN", "ENV", "ENTRYPOINT", "CMD", "LABEL", "USER"}
check(all(step[0] in known and len(step) == 2 for step in steps), "the Dockerfile has known instructions alone")
check(next(s[0] for s in steps if s[0] != "ARG") == "FROM", "the Dockerfile begins with FROM")
scripts = [step[1] for step in steps if step[0] == "RUN"]

# Apptainer: known sections.
definition = text("jobs", "terrace.def")
check(re.match(r"Bootstrap: \w+\nFrom: \S+\n", definition), "the definition of Apptainer names its base")
sections = re.split(r"^%(\w+)", definition, flags=re.M)[1:]
check(set(sections[::2]) <= {"files", "post", "environment", "test", "runscript", "help", "labels"}, "known sections of Apptainer")
scripts += [body for name, body in zip(sections[::2], sections[1::2]) if name in ("post", "environment", "test", "runscript")]
for script in scripts:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    check(done.returncode == 0, f"a script of a recipe: {done.stderr}")
    for name in re.findall(r"\bjobs/[\w./]+\w", script):
        check(os.path.exists(os.path.join(source, name)), f"a recipe names {name}, which is not there")
    for option in re.findall(r"-D(TERRACE_\w+)=", script):
        check(option in cmake, f"CMakeLists.txt knows {option}")
check("terrace_install" in text("jobs", "setup.sh"), "jobs/setup.sh has terrace_install")
print(f"{len(scripts)} scripts, {len(variants)} variants")
