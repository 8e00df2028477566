#!/usr/bin/env python3
"""The pages can be read and are in their places: pages.py ROOT [--words]

README.md and CONTRIBUTING.md are short; sentences are short; links lead somewhere, and every page can be reached from
README.md; commit ids stand in jobs/results alone; README.md's program is that of src/api/examples; the version of CMakeLists.txt
is that of CITATION.cff and CHANGELOG.md. --words prints the words per sentence of each page.
"""
import pathlib
import re
import shutil
import subprocess
import sys

root = pathlib.Path(sys.argv[1]).resolve()
LINES = {"README.md": 150, "CONTRIBUTING.md": 80}
AVERAGE, LONGEST = {"README.md": 18}, {"README.md": 30}  # words per sentence; others: 20, and 45
MADE = re.compile(r"jobs/results/(\w+_seed|mutations)\.md$|^CHANGELOG\.md$")  # by scripts, or lists: words are not counted
failures = []


def pages():
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=root, capture_output=True, text=True)
        if listed.returncode == 0:
            return sorted(root / name for name in listed.stdout.split() if (root / name).exists())
    return sorted(p for p in root.rglob("*.md") if not p.relative_to(root).parts[0].startswith(("build", ".")))


def prose(text):
    """The text without blocks of code, as lines."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M).split("\n")


def sentences(text):
    """Sentences outside code, tables and headings; a list's item begins a new one, and code in backquotes is one word."""
    paragraphs, current = [], []
    for line in prose(text):
        if not line.strip() or line.startswith(("#", "|", "![")):
            paragraphs.append(current)
            current = []
            continue
        if re.match(r"\s*([-*]|\d+\.) ", line):
            paragraphs.append(current)
            current = []
            line = re.sub(r"^\s*([-*]|\d+\.) ", "", line)
        current.append(line)
    for paragraph in paragraphs + [current]:
        plain = re.sub(r"`[^`]*`", "code", " ".join(paragraph))
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain).replace("**", "")
        for sentence in re.split(r"(?<=[.?!])\s+", plain):
            words = re.findall(r"[^\s]*\w[^\s]*", sentence)
            if words:
                yield len(words), sentence


def anchors(text):
    found = set()
    for line in prose(text):
        heading = re.match(r"#+ +(.*)", line)
        if heading:
            slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()).replace(" ", "-")
            number = 0
            while slug + (f"-{number}" if number else "") in found:
                number += 1
            found.add(slug + (f"-{number}" if number else ""))
    return found


def check(condition, what):
    if not condition:
        failures.append(what)


texts = {page: page.read_text() for page in pages()}
linked = {}
for page, text in texts.items():
    name = str(page.relative_to(root))
    if name in LINES:
        check(text.count("\n") <= LINES[name], f"{name}: {text.count(chr(10))} lines, at most {LINES[name]}")
    if not MADE.search(name):
        found = list(sentences(text))
        average = sum(n for n, _ in found) / max(len(found), 1)
        if "--words" in sys.argv:
            print(f"{average:5.1f} words per sentence, {max(n for n, _ in found):3} at most, {sum(n for n, _ in found):5} words  {name}")
        check(average <= AVERAGE.get(name, 20), f"{name}: {average:.1f} words per sentence")
        for words, sentence in found:
            check(words <= LONGEST.get(name, 45), f"{name}: {words} words: {sentence}")
    if not name.startswith("jobs/results/"):
        for word in re.findall(r"\b[0-9a-f]{7}\b", "\n".join(prose(text))):
            check(re.fullmatch(r"\d+|[a-f]+", word), f"{name}: a commit id, {word}")
    linked[page] = set()
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", "\n".join(prose(text)))):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        if not check(to.exists(), f"{name}: a dead link, {target}") and to in texts:
            linked[page].add(to)
            check(not anchor or anchor in anchors(texts[to]), f"{name}: no such heading, {target}")

reached, waiting = set(), [root / "README.md"]
while waiting:
    page = waiting.pop()
    if page not in reached:
        reached.add(page)
        waiting += linked.get(page, [])
for page in texts:
    check(page in reached, f"{page.relative_to(root)}: no way leads to it from README.md")

bare = lambda text: [line.strip() for line in text.split("\n") if line.strip()]
program = "\n".join(bare((root / "src/api/examples/invert.cpp").read_text()))
shown = re.findall(r"^```cpp\n(.*?)^```$", texts[root / "README.md"], flags=re.S | re.M)
check(shown, "README.md: no program")
for block in shown:
    check("\n".join(bare(block)) in program, "README.md: its program is not a part of src/api/examples/invert.cpp")

version = re.search(r"project\(Terrace VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]
cited = re.search(r"^version: *\"?([\d.]+)", (root / "CITATION.cff").read_text(), flags=re.M)[1]
released = re.search(r"^date-released: *\"?([\d-]+)", (root / "CITATION.cff").read_text(), flags=re.M)
releases = re.findall(r"^## ([\d.]+) \((.*)\)$", texts[root / "CHANGELOG.md"], flags=re.M)
check(cited == version, f"CITATION.cff has version {cited}, CMakeLists.txt {version}")
dates = dict(releases)
check(version in dates, f"CHANGELOG.md: no release {version}")
number = lambda words: tuple(int(word) for word in words.split("."))
for name, date in releases:
    check(number(name) <= number(version) or date == "not released", f"CHANGELOG.md: {name} is beyond {version}, and released")
check([name for name, _ in releases] == sorted(dates, key=number, reverse=True), "CHANGELOG.md: the newest release comes first")
if released:
    check(dates.get(version) == released[1], f"CITATION.cff: released {released[1]}; CHANGELOG.md: {dates.get(version)}")

print("\n".join(failures))
print(f"{len(texts)} pages, {len(failures)} faults")
sys.exit(bool(failures))
