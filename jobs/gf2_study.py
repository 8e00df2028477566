#!/usr/bin/env python3
"""What the seed of 2013 measured over GF(2), on this machine, unattended: one run of some minutes.

    jobs/gf2_study.py FOLDER [--terrace build/terrace] [--m4ri m4ri_bench] [--m4ri-all m4ri_bench_omp]
                      [--backend cuda|cpu] [--first 10] [--last 17] [--m4ri-last 16] [--m4ri-all-last 16]
                      [--seconds 420] [--parts table,search,...]

Writes FOLDER/gf2_seed.csv (the table of times), FOLDER/gf2_study.csv (everything else), FOLDER/reports (the
program's own reports) line by line, so that a run that is stopped keeps what it has. Parts, in this order:

    table      N = first .. last: column by column, k = 1, 4, 8, 14, block form; without and with transfers
    search     whole eliminations column by column, dense and sparse, by threads of the pivot search
    paths      the pivot row read plainly, through shared, constant and texture memory
    rows       rows swapped in memory, or behind an index array
    codes      tables built in computed order, from a whole or half table of codes, in two passes
    panels     pivots of a panel chosen by the device or the host, n <= 2^13
    candidates l: rows tried first for a panel's pivots
    energy     joules of a matrix: column by column, k = 1, 14, block form, M4RI
    calibrate  launch shapes for several matrix shapes, and what the choice gains
    cpu        the block form on the CPU, all cores, alone
    m4ri-all   M4RI on all cores, alone
    m4ri       M4RI on one core, beside all the parts above (a core each for m4ri and pluq)

Answers that were not checked, or are wrong, count as failed: "# failed" in the tables, exit 1. What a limit of
time leaves out is "# left out". Standard library only; pages: jobs/gf2_seed_plot.py FOLDER/gf2_seed.csv
jobs/gf2_seed_2013.csv OUTPUT --study FOLDER/gf2_study.csv.
"""
import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

PARTS = ["table", "search", "paths", "rows", "codes", "panels", "candidates", "energy", "calibrate", "cpu", "m4ri-all", "m4ri"]
METHODS = [("GPU block form", []), ("GPU k = 8", ["--method", "tables", "--k", "8"]),
           ("GPU k = 4", ["--method", "tables", "--k", "4"]), ("GPU k = 1", ["--method", "tables", "--k", "1"]),
           ("GPU k = 14", ["--method", "tables", "--k", "14"]), ("GPU Gauss", ["--method", "columns"])]
# A line of `bench gf2`: ... n=1024 ... RANKS SECONDS RATE bit-MAC/s FRACTION CERTIFICATE
LINE = re.compile(r"^terrace .*\bn=(\d+)\b.*?\s+\d+\s+([0-9.]+)\s+[0-9.e+]+\s+bit-MAC/s\s+\S+\s+(passed|failed)")


class Study:
    def __init__(self, options):
        self.o = options
        self.start = time.monotonic()
        self.lock = threading.Lock()
        self.failed = False
        self.ranks = {}  # of the matrix of each size, by a run whose certificate held
        os.makedirs(os.path.join(options.folder, "reports"), exist_ok=True)
        self.table = open(os.path.join(options.folder, "gf2_seed.csv"), "w", buffering=1)
        self.study = open(os.path.join(options.folder, "gf2_study.csv"), "w", buffering=1)
        gpu = subprocess.run("nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1", shell=True,
                             capture_output=True, text=True).stdout.strip() or "none"
        cpu = "unknown"
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    cpu = line.split(":", 1)[1].strip()
                    break
        self.table.write(f"# Seconds of terrace and M4RI, medians; square 2^N, random, echelon form; "
                         f"{time.strftime('%Y-%m-%d', time.gmtime())}\n"
                         f"# CPU: {cpu}, {os.cpu_count()} cores; GPU: {gpu}; ranks: 1\n"
                         "# M4RI on one core ran beside the GPU's runs, on cores of its own; on all cores alone\n"
                         "source,method,transfers,N,seconds\n")
        self.study.write(f"# GPU: {gpu}; CPU: {cpu}, {os.cpu_count()} cores; "
                         f"{time.strftime('%Y-%m-%d', time.gmtime())}\n")
        self.rows = csv.writer(self.study, lineterminator="\n")
        self.rows.writerow(["study", "n", "variant", "setting", "value", "unit", "check"])

    def left(self):
        return self.o.seconds - (time.monotonic() - self.start)

    def say(self, text):
        print(f"{time.monotonic() - self.start:7.1f} s  {text}", flush=True)

    def note(self, file, text, failed=False):
        with self.lock:
            self.failed |= failed
            file.write(("# failed: " if failed else "# left out: ") + text + "\n")
        self.say(("failed: " if failed else "left out: ") + text)

    def row(self, study, n, variant, setting, value, unit, check):
        with self.lock:
            self.rows.writerow([study, n, variant, setting, "" if value is None else f"{value:.9g}", unit, check])

    def bench(self, name, arguments, limit, file, backend=None):
        """The runs of one start of `bench gf2`; those that it had printed where it was stopped."""
        limit = min(limit, self.left())
        if limit < 5:
            self.note(file, f"{name}: no time left")
            return [], {}
        report = os.path.join(self.o.folder, "reports", name + ".json")
        log = os.path.join(self.o.folder, "reports", name + ".log")
        command = [*self.o.launcher.split(), self.o.terrace, "bench", "gf2", "--backend", backend or self.o.backend, "--progress",
                   "never", "--report", report, *arguments]
        if os.path.exists(report):
            os.remove(report)
        self.say(" ".join(arguments))
        environment = dict(os.environ, TERRACE_PROFILE=os.path.join(self.o.folder, "profile.json"))
        with open(log, "w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
            try:
                status = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                status = None
                process.terminate()
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        with open(log) as text:
            lines = text.read().splitlines()
        for line in lines:
            print("           " + line[:200], flush=True)
        if status == 0:
            with open(report) as text:
                found = json.load(text)
            return found.get("runs", []), found
        runs = [{"who": "terrace", "n": int(m[1]), "seconds": float(m[2]), "certificate": m[3]}
                for m in map(LINE.match, lines) if m]
        if status is None:
            self.note(file, f"{name}: beyond {limit:.0f} s")
        else:
            self.note(file, f"{name}: exit {status}, {lines[-1] if lines else 'no output'}",
                      failed=status not in (2, 5))
        return runs, {}

    # --- parts --------------------------------------------------------------------------------

    def part_table(self):
        for transfers in ("no", "yes"):
            if transfers == "yes" and self.o.backend == "cpu":
                continue
            for name, options in METHODS:
                self.column(name, transfers, options + (["--transfers"] if transfers == "yes" else []))

    def part_cpu(self):
        if self.o.backend != "cpu":
            self.column("CPU all cores", "no", [], "cpu")

    def column(self, name, transfers, options, backend=None):
        """A column of the table: a start for the sizes that take no time, one for the others."""
        sizes = range(self.o.first, self.o.last + 1)
        for group, repeat in (([n for n in sizes if n < 16], 3), ([n for n in sizes if n >= 16], 1)):
            if not group:
                continue
            label = f"{name}, transfers {transfers}, {group[0]}".replace(" ", "_").replace(",", "")
            runs, _ = self.bench(label, ["--n", ",".join(str(1 << n) for n in group), "--echelon", "--repeat",
                                         str(repeat), *options], 120, self.table, backend)
            for run in runs:
                n = run["n"].bit_length() - 1
                if run.get("certificate") != "passed":
                    self.note(self.table, f"{name}, N = {n}: certificate", failed=True)
                    continue
                if "rank" in run:
                    self.ranks.setdefault(n, run["rank"])
                with self.lock:
                    self.table.write(f"measured,{name},{transfers},{n},{run['seconds']:.9g}\n")

    def sizes(self, *sizes):
        return ",".join(str(n) for n in sizes) if not self.o.small else "64,130"

    def study_part(self, part, sizes, limit, variant, setting):
        runs, _ = self.bench("study_" + part, [f"--study={part}", "--n", sizes], limit, self.study)
        for run in runs:
            if run.get("study") != part:
                continue
            self.row(part, run["n"], variant(run), setting(run), run["seconds"], "s",
                     run.get("certificate") or run.get("bits") or run.get("reason", ""))

    def part_search(self):
        self.study_part("search", self.sizes(4096, 8192), 110, lambda r: f"{r['threads']} threads",
                        lambda r: f"density {r['density']:g}")

    def part_paths(self):
        self.study_part("paths", self.sizes(4096, 16384, 32768), 40, lambda r: r["path"], lambda r: "dense")

    def part_rows(self):
        self.study_part("rows", self.sizes(4096, 16384), 40, lambda r: f"{r['rows']}, {r['threads']} threads",
                        lambda r: f"density {r['density']:g}")

    def part_codes(self):
        self.study_part("codes", self.sizes(4096, 16384, 65536), 30, lambda r: r["order"], lambda r: f"k = {r['k']}")

    def eliminations(self, study, sizes, variants, setting, limit=20):
        for variant, options in variants:
            runs, _ = self.bench(f"{study}_{variant}".replace(" ", "_"),
                                 ["--n", sizes, "--echelon", "--repeat", "5", *options], limit, self.study)
            for run in runs:
                self.row(study, run["n"], variant, setting, run["seconds"], "s", run.get("certificate", ""))

    def part_panels(self):
        for panels in ("device", "host"):
            self.eliminations("panels", self.sizes(1024, 2048, 4096, 8192, 16384, 32768),
                              [(f"{panels}, {block} columns", ["--method", "tables", "--panels", panels, "--block", block])
                               for block in ("64", "512")], "tables, k = 8")

    def part_candidates(self):
        for block in ("64", "320"):
            self.eliminations("candidates", self.sizes(4096, 16384),
                              [(f"l = {l}, {block} columns", ["--candidates", l, "--block", block])
                               for l in ("1", "2", "3")] +
                              [(f"default, {block} columns", ["--method", "tables", "--block", block])], "tables, k = 8")

    def part_energy(self):
        n = 1 << min(16, self.o.last)
        if self.o.small:
            n = 256
        for name, options in (("column by column", ["--method", "columns"]), ("k = 1", ["--method", "tables", "--k", "1"]),
                              ("k = 14", ["--method", "tables", "--k", "14"]), ("block form", [])):
            runs, _ = self.bench("energy_" + name.replace(" ", "_"), ["--n", str(n), "--echelon", "--repeat", "1", "--energy",
                                                                     *options], 40, self.study)
            for run in runs:
                energy = run.get("energy")
                if energy:
                    for key, unit in (("joules_per_solve", "J"), ("joules_above_idle", "J"), ("watts", "W"),
                                      ("idle_watts", "W")):
                        self.row("energy", n, name, key, energy[key], unit, run.get("certificate", ""))
                else:
                    self.row("energy", n, name, "joules_per_solve", None, "J",
                             "null: " + run.get("energy_reason", "not reported"))
        for name, program in (("M4RI m4ri", self.o.m4ri), ("M4RI all cores", self.o.m4ri_all)):
            if program:
                self.m4ri_energy(name, program, n)

    def m4ri_energy(self, name, program, n):
        method = "m4ri" if name == "M4RI m4ri" else "auto"
        found = self.m4ri_run(program, method, 64, 10)
        if found is not None and found[2] is None:  # no counter: no need to wait
            self.row("energy", n, name, "joules_per_solve", None, "J", "null: " + found[3])
            return
        found = self.m4ri_run(program, method, n, 120)
        if found is None:
            self.note(self.study, f"energy, {name}")
            return
        seconds, _, joules, why = found
        self.row("energy", n, name, "seconds", seconds, "s", "")
        self.row("energy", n, name, "joules_per_solve", joules, "J", "RAPL, all packages" if joules is not None
                 else "null: " + why)

    def part_calibrate(self):
        if self.o.backend == "cpu":
            self.note(self.study, "calibrate: launch shapes are a GPU's")
            return
        for what in ("columns", "tables"):
            _, report = self.bench("calibrate_" + what, [f"--calibrate={what}"], 60, self.study)
            for gain in report.get("gains", {}).get(what, []):
                shape = f"{gain['rows']} x {gain['columns']}"
                for key, unit in (("default_seconds", "s"), ("chosen_seconds", "s"), ("fastest_seconds", "s"),
                                  ("slowest_seconds", "s"), ("gain", "times"), ("most_gain", "times")):
                    if key in gain:
                        self.row("calibrate", gain["rows"], what, f"{shape}: {key}", gain[key], unit,
                                 "every shape gives the same bits")

    # --- M4RI ---------------------------------------------------------------------------------

    def m4ri_run(self, program, method, n, limit):
        """Seconds, rank, joules or None, why not."""
        limit = min(limit, self.left())
        if limit < 2:
            return None
        try:
            done = subprocess.run([program, str(n), "1", "full", method, str(n), "0.5", "-1", "echelon"],
                                  capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None
        match = re.match(r"seconds (\S+) threads \d+ rank (\d+) checksum \S+(?: joules (none, )?(.*))?", done.stdout)
        if done.returncode != 0 or not match:
            self.note(self.table, f"{program}: exit {done.returncode}, {done.stderr.strip()[-200:]}", failed=True)
            return None
        joules = float(match[4]) if match[4] and not match[3] else None
        return float(match[1]), int(match[2]), joules, match[4] if match[3] else "the program gives none"

    def m4ri(self, name, program, method, sizes):
        for n in sizes:
            seconds = []
            for _ in range(3 if n < 15 else 1):
                found = self.m4ri_run(program, method, 1 << n, self.left())
                if found is None:
                    self.note(self.table, f"{name}, N = {n}: no time left")
                    return
                # The rank is terrace's; where it is not known yet, one that random matrices have.
                known = self.ranks.get(n)
                if found[1] != known if known is not None else not (1 << n) - 16 <= found[1] <= 1 << n:
                    self.note(self.table, f"{name}, N = {n}: rank {found[1]}, terrace's {known}", failed=True)
                    return
                seconds.append(found[0])
            with self.lock:
                self.table.write(f"measured,{name},no,{n},{statistics.median(seconds):.9g}\n")
            self.say(f"{name}, N = {n}: {statistics.median(seconds):.6g} s")

    def m4ri_threads(self):
        """m4ri and pluq, a thread each; the largest size first in threads of its own."""
        last = min(self.o.m4ri_last, 17)
        threads = []
        for name, method in (("M4RI m4ri", "m4ri"), ("M4RI pluq", "pluq")):
            groups = [[n for n in range(self.o.first, last + 1) if n <= 16]] + ([[17]] if last >= 17 else [])
            for sizes in groups:
                threads.append(threading.Thread(target=self.m4ri, args=(name, self.o.m4ri, method, sizes)))
        for thread in threads:
            thread.start()
        return threads

    def run(self):
        threads = []
        if "m4ri" in self.o.parts:
            if self.o.m4ri:
                threads = self.m4ri_threads()
            else:
                self.note(self.table, "M4RI on one core: no program, --m4ri")
        for part in self.o.parts:
            if part in ("cpu", "m4ri", "m4ri-all"):
                continue
            self.say(f"--- {part}")
            getattr(self, "part_" + part)()
        for thread in threads:
            thread.join()
        if "cpu" in self.o.parts:
            self.part_cpu()
        if "m4ri-all" in self.o.parts:
            if self.o.m4ri_all:
                self.m4ri("M4RI all cores", self.o.m4ri_all, "auto", range(self.o.first, self.o.m4ri_all_last + 1))
            else:
                self.note(self.table, "M4RI on all cores: no program, --m4ri-all")
        self.say("done")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description="The seed's studies over GF(2), unattended")
    parser.add_argument("folder")
    parser.add_argument("--terrace", default="build/terrace")
    parser.add_argument("--launcher", default="", help='before the program, such as "mpirun -n 1"')
    parser.add_argument("--m4ri", default="", help="tests/m4ri_bench of a build")
    parser.add_argument("--m4ri-all", default="", help="what tests/rivals/m4ri_openmp.sh builds")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--last", type=int, default=17)
    parser.add_argument("--m4ri-last", type=int, default=16, help="17 takes some 7 minutes")
    parser.add_argument("--m4ri-all-last", type=int, default=16, help="17 takes some 5 minutes")
    parser.add_argument("--seconds", type=float, default=420, help="of all parts together")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--small", action="store_true", help="sizes of a test")
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'; --parts; use {', '.join(PARTS)}")
    for program in (options.terrace, options.m4ri, options.m4ri_all):
        if program and not os.path.exists(program):
            parser.error(f"there is no program {program}")
    return Study(options).run()


if __name__ == "__main__":
    sys.exit(main())
