#!/usr/bin/env python3
"""The reference of the library, made by Doxygen: reference_test.py SOURCE BUILD. Every function of C, C++, Fortran and Python is in it, with what
the heads of the files say; no warning. Skipped where Doxygen is not here."""
import html
import os
import re
import shutil
import subprocess
import sys

source, build = sys.argv[1:3]
if not shutil.which("doxygen"):
    print("skipped: doxygen is not here")
    sys.exit(77)
api, made = os.path.join(source, "src", "api"), os.path.join(build, "reference", "html")
shutil.rmtree(made, ignore_errors=True)
done = subprocess.run(["cmake", "--build", build, "--target", "terrace_docs"], capture_output=True, text=True)
if done.returncode != 0:
    sys.exit(f"failed: {done.stdout[-3000:]}{done.stderr[-3000:]}")


def words(text):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


def page(name):
    with open(os.path.join(made, name)) as file:
        return words(file.read())


def code(*path):
    with open(os.path.join(api, *path)) as file:
        return file.read()


def says(found, phrase, where):
    if phrase not in found:
        sys.exit(f"failed: {where} does not say {phrase!r}")


def need(found, names, where):
    names = set(names)
    missing = sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", found))
    if missing or not names:
        sys.exit(f"failed: {where} does not name {', '.join(missing) or 'anything'}")
    return len(names)


count = 0
for header, pages in (("c.h", ["c_8h.html"]), ("hdf5.h", ["hdf5_8h.html"])):
    count += need(" ".join(map(page, pages)), re.findall(r"\b(terrace_\w+)\(", re.sub(r"/\*.*?\*/", "", code("terrace", header), flags=re.S)), header)
classes = " ".join(page(name) for name in os.listdir(made) if re.fullmatch(r"(class|struct|namespace)terrace(_1_1\w+)*\.html", name))
for header in ("band", "cg", "dense", "gf2", "hdf5", "context"):
    text = re.sub(r"//[^\n]*", "", code("terrace", header + ".hpp"))
    count += need(classes, re.findall(r"^ *TERRACE_API [\w:<>&\[\], ]*?(\w+)\(", text, flags=re.M), header + ".hpp")
    head = re.match(r"// ([^\n]*?)[.:;,]", code("terrace", header + ".hpp"))[1]
    says(page(header + "_8hpp.html"), head, header + ".hpp")
fortran = page("terrace_8f90_source.html")  # Doxygen leaves interfaces out
count += need(fortran, re.findall(r"function (terrace_\w+)\(", code("fortran", "terrace.f90")), "terrace.f90")
for module, name in (("gf2.py", "gf2"), ("linalg.py", "linalg"), ("io.py", "io"), ("sparse/linalg.py", "sparse_1_1linalg")):
    found = page(f"namespaceterrace_1_1{name}.html")
    count += need(found, re.findall(r"^def ([a-z]\w*)\(", code("python", "terrace", module), flags=re.M), module)
says(page("c_8h.html"), "Every function with a context is collective over its ranks", "c.h")
says(page("namespaceterrace_1_1linalg.html"), "SciPy's pair", "linalg.py")
archive = [name for name in os.listdir(build) if re.fullmatch(r"terrace-reference-[\d.]+\.tar\.gz", name)]
if len(archive) != 1 or os.path.getsize(os.path.join(build, archive[0])) < 100000:
    sys.exit(f"failed: no archive of the reference, {archive}")
print(f"{count} names, {archive[0]}")
