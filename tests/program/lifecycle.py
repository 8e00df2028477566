#!/usr/bin/env python3
"""No lost file and no unclean end: whose clock counts, what is never replaced, signals, damaged and impossible inputs,
restarts after a change: lifecycle.py TERRACE

Needs h5py, numpy and a C compiler; runs in a temporary folder.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

from terrace import Done, Program, left_over, read_json

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(20)


def run(command, ranks=0, env=None, timeout=60):
    try:
        return test.run(command, ranks, env=env, timeout=timeout, text=False)
    except subprocess.TimeoutExpired as e:
        return Done("hung", e.stdout or b"", e.stderr or b"")


def accepted(command, ranks=0, env=None):
    done = run(command, ranks, env)
    check(command, done.code == 0, f"exit {done.code}: {done.err[:300]}")
    return done


def state():
    """Every file here: what it is, and its bytes."""
    found = {}
    for name in sorted(os.listdir(".")):
        link = os.readlink(name) if os.path.islink(name) else None
        found[name] = (link, open(name, "rb").read() if os.path.isfile(name) else None)
    return found


def refused(command, code, *words, ranks=0):
    """Exit `code`, one line of three parts in plain letters, and no file touched."""
    before, start = state(), time.time()
    done = run(command, ranks)
    lines = [x for x in done.err.split(b"\n") if x.startswith(b"terrace: ")]
    check(command, done.code == code, f"exit {done.code}, not {code}: {done.err[:300]}")
    check(command, len(lines) == 1, f"{len(lines)} lines: {done.err[:300]}")
    line = (lines or [b""])[0]
    check(command, line.count(b"; ") == 2, f"not three parts: {line}")
    check(command, all(32 <= c < 127 for c in line), f"raw bytes: {line}")
    for word in words:
        check(command, word.encode() in line, f"no '{word}': {line}")
    after = state()
    check(command, before == after, f"touched: {[k for k in set(before) | set(after) if before.get(k) != after.get(k)]}")
    check(command, time.time() - start < 10, f"{time.time() - start:.1f} s")


n = 500
with h5py.File("in.h5", "w") as f:
    f["A"] = rng.normal(size=(n, n)) + n * np.eye(n)
    f["b"] = rng.normal(size=n)
    f["g/inner"] = np.eye(4)
    f["soft"] = h5py.SoftLink("/nowhere")
    f["to_group"] = h5py.SoftLink("/g")
    f["outside"] = h5py.ExternalLink("other.h5", "/g")
with h5py.File("other.h5", "w") as f:
    f.create_group("g")
with h5py.File("bits.h5", "w") as f:
    f["A"] = rng.integers(0, 2, (1100, 1177), dtype=np.uint8)
    f["B"] = rng.integers(0, 2, (1177, 1000), dtype=np.uint8)
invert = "dense invert in.h5:/A"
often = "--block 16 --checkpoint c.h5 --checkpoint-every 0.001s"

# --- the clocks of the ranks apart (D2) ------------------------------------------------------------
with open("clocks.c", "w") as f:
    f.write("""#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
static long apart(void) { const char* r = getenv("OMPI_COMM_WORLD_RANK"); return r ? 7 * atol(r) : 0; }
time_t time(time_t* t) {
  time_t (*real)(time_t*) = (time_t(*)(time_t*))dlsym(RTLD_NEXT, "time");
  time_t v = real(0) + apart();
  if (t) *t = v;
  return v;
}
int gethostname(char* name, size_t size) {
  int (*real)(char*, size_t) = (int (*)(char*, size_t))dlsym(RTLD_NEXT, "gethostname");
  return real(name, size);
}
""")
subprocess.run(["cc", "-shared", "-fPIC", "-o", "clocks.so", "clocks.c", "-ldl"], check=True)
apart = {"LD_PRELOAD": os.path.abspath("clocks.so")}
for ranks in (3, 5):
    accepted(f"{invert} -o out.h5 {often} --force --quiet", ranks, apart)
    check("clocks apart: verify", b"PASS" in run("verify out.h5").out, run("verify out.h5").out)
    shutil.copy("c.h5", "k.h5")
    for name in ("c.h5", "c.h5.old"):
        done = accepted(f"{invert} -o again.h5 --force --block 16 --restart {name}")
        check("clocks apart: " + name, b"restart " in done.out and b"refused" not in done.out, done.out)
        with h5py.File("out.h5") as a, h5py.File("again.h5") as b:
            check("clocks apart: same bits", a["inverse"][:].tobytes() == b["inverse"][:].tobytes())
check("nothing left", not left_over(), left_over())

# --- a crash in a thread of MPI's own while MPI ends: all is done, and the exit code is the work's ---------
with open("crash.c", "w") as f:
    f.write(r"""
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static void* crash(void* unused) {
  raise(SIGSEGV);
  return unused;
}
int opal_progress_thread_finalize(const char* name) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *who = getenv("CRASHES");
  pthread_t thread;
  if (rank && who && strchr(who, *rank) && open("crashed", O_CREAT | O_WRONLY, 0644) >= 0 && pthread_create(&thread, 0, crash, 0) == 0)
    pthread_join(thread, 0);
  return name != 0;
}
""")
subprocess.run(["cc", "-shared", "-fPIC", "-o", "crash.so", "crash.c", "-lpthread"], check=True)
for who in ("1", "02", "012"):
    for command, code in ((f"{invert} -o late.h5 --force --quiet", 0), ("dense invert gone.h5 -o late.h5", 3)):
        if os.path.exists("crashed"):
            os.remove("crashed")
        done = run(command, 3, {"LD_PRELOAD": os.path.abspath("crash.so"), "CRASHES": who})
        check(f"a crash of {who} while MPI ends: {command}", done.code == code and b"lost" not in done.err and b"signal" not in done.err, f"exit {done.code}: {done.err[:300]}")
        if not os.path.exists("crashed"):
            print("this MPI does not end its threads so: a late crash was not tried")
        elif code == 0:
            check("a late crash: verify", b"PASS" in run("verify late.h5").out, "fails")
            os.remove("late.h5")
if os.path.exists("crashed"):
    os.remove("crashed")

# --- what --checkpoint and --report may replace (D5, D6) -------------------------------------------
with open("notes.txt", "w") as f:
    f.write("precious\n")
shutil.copy("out.h5", "result.h5")
os.mkdir("folder")
os.mkfifo("pipe")
for name in ("notes.txt", "result.h5", "folder", "pipe"):
    refused(f"{invert} -o u.h5 --checkpoint {name}", 2, name)
    refused(f"{invert} -o u.h5 --restart {name}", 3, name)
os.remove("pipe")
shutil.copy("notes.txt", "d.h5.old")
refused(f"{invert} -o u.h5 --checkpoint d.h5", 2, "d.h5.old")
os.remove("d.h5.old")
open("empty", "w").close()
accepted(f"{invert} -o u.h5 --checkpoint c.h5 --checkpoint-every 1h --quiet")
accepted(f"{invert} -o u.h5 --force --checkpoint empty --quiet")
for command in (invert + " -o v.h5", "info", "verify u.h5", "generate dense-random --n 5 -o v.h5", "bench dense --n 20 --repeat 1 --backend cpu"):
    for name in ("notes.txt", "result.h5", "folder", "nowhere/r.json"):
        refused(f"{command} --report {name}", 2, name)
refused(f"{invert} -o v.h5 --force --report result.h5", 2, "HDF5")
accepted(f"{invert} -o v.h5 --force --report r.json --quiet")
accepted(f"{invert} -o v.h5 --force --report r.json --quiet")  # a report of ours
accepted(f"{invert} -o v.h5 --force --report empty --quiet")
check("a report", read_json("empty")["exit_code"] == 0)
shutil.copy("notes.txt", "n2.txt")
accepted(f"{invert} -o v.h5 --force --report n2.txt --quiet")
check("a forced report", read_json("n2.txt")["exit_code"] == 0)
if os.path.isdir("/dev/shm"):  # a folder like others
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        accepted(f"{invert} -o v.h5 --force --report {folder}/r.json --quiet")
        check("a report in /dev/shm", os.listdir(folder) == ["r.json"] and json.load(open(f"{folder}/r.json"))["exit_code"] == 0)
done = accepted(f"{invert} -o v.h5 --force --report /dev/stdout --quiet")
check("a report to stdout", json.loads(done.out)["exit_code"] == 0, done.out[:200])
with open("redirected", "w") as f:
    f.write("before\n")
    f.flush()
    subprocess.run(test.words(f"{invert} -o v.h5 --force --report /dev/stdout --quiet"), stdout=f)
check("a report to a redirected stdout", open("redirected").read().startswith("before\n{") and os.path.islink("/dev/stdout"))
accepted(f"{invert} -o v.h5 --force --report /dev/null --quiet")
os.remove("v.h5")

# --- two names, one file, also with --force ----------------------------------------------------------
os.link("in.h5", "hard.h5")
os.symlink("in.h5", "soft.h5")
for name in ("in.h5", "./in.h5", "hard.h5", "soft.h5", "folder/../in.h5", os.path.abspath("in.h5")):
    refused(f"{invert} -o {name} --force", 2, "one file")
refused("gf2 rref bits.h5:/A -o bits.h5 --force", 2, "one file")
refused("gf2 multiply bits.h5:/A :/B -o bits.h5 --force", 2, "one file", ranks=2)
refused("dense solve in.h5:/A --rhs hard.h5:/b -o soft.h5 --force", 2, "one file")
refused("cg in.h5:/A --rhs other.h5:/b -o other.h5 --force", 3)  # what it reads is looked at first
refused(f"{invert} -o in.h5:/A --force", 2, "/A")
refused("dense invert in.h5:/g/inner -o in.h5:/g --force", 2, "/g")
refused(f"{invert} -o new.h5 --report new.h5", 2, "one file")
refused(f"{invert} -o new.h5 --report ./folder/../new.h5 --force", 2, "one file")
refused(f"{invert} -o new.h5 --checkpoint new.h5", 2, "one file")
refused(f"{invert} -o new.h5.old --checkpoint new.h5", 2, "one file")
refused(f"{invert} -o u.h5 --force --checkpoint new.h5 --report new.h5.old", 2, "one file")
refused(f"{invert} -o u.h5 --force --checkpoint in.h5", 2, "in.h5")
refused("dense invert c.h5:/rows -o u.h5 --force --checkpoint c.h5", 2, "one file")
refused("dense invert c.h5.old:/rows -o u.h5 --force --checkpoint c.h5", 2, "one file")
refused(f"{invert} -o c.h5 --force --restart c.h5", 2, "one file")
refused("generate dense-random --n 5 -o new.h5 --report new.h5", 2, "one file")
np.savetxt("t.txt", np.eye(3), header="3", comments="")
os.link("t.txt", "t2.h5")
refused("convert t.txt t2.h5 --force", 2, "one file")
refused("convert t.txt new.h5 --report new.h5", 2, "one file")
refused("convert t.txt new.h5 --force --report t.txt", 2, "one file")
accepted("convert t.txt new.h5 --report new.json --quiet")
accepted(f"{invert} -o hard.h5:/more --quiet")  # a group of its own; the other name keeps the older file
check("a group beside the input", "more" in h5py.File("hard.h5") and "more" not in h5py.File("in.h5"))
accepted(f"{invert} -o k.h5.x --block 16 --restart c.h5 --checkpoint c.h5 --quiet")
for name in ("hard.h5", "soft.h5", "t2.h5", "new.h5", "new.json", "k.h5.x"):
    os.remove(name)

# --- outputs that are links ----------------------------------------------------------------------------
os.symlink("folder/real.h5", "link.h5")  # dangling
accepted(f"{invert} -o link.h5 --report link.json --quiet")
check("a dangling link is followed", os.path.islink("link.h5") and os.path.exists("folder/real.h5"))
refused(f"{invert} -o link.h5", 2, "exists")
accepted(f"{invert} -o link.h5 --force --quiet")
accepted(f"{invert} -o link.h5:/more --quiet")
check("the link stays", os.path.islink("link.h5") and "more" in h5py.File("folder/real.h5"))
os.symlink("ring2", "ring1")
os.symlink("ring1", "ring2")
refused(f"{invert} -o ring1", 2, "ring1")
os.symlink("folder/c", "linked_c.h5")
accepted(f"{invert} -o u.h5 --force --block 16 --checkpoint linked_c.h5 --checkpoint-every 0.001s --quiet")
check("checkpoints behind a link", os.path.islink("linked_c.h5") and {"c", "c.old"} <= set(os.listdir("folder")), os.listdir("folder"))
accepted(f"{invert} -o u.h5 --force --block 16 --restart linked_c.h5 --quiet")
for name in ("ring1", "ring2", "link.h5", "link.json", "linked_c.h5"):
    os.remove(name)
shutil.rmtree("folder")

# --- groups that cannot be (D12) -------------------------------------------------------------------------
for group in ("A/below", "A/below/more", "soft/below", "outside/below", "g/inner/x", "terrace", "g/terrace/x", ".", "g/./x", "g//x"):
    for name in ("in.h5", "fresh.h5") if group in ("terrace", "g/terrace/x", ".", "g/./x", "g//x") else ("in.h5",):
        refused(f"{invert} -o {name}:/{group}", 2, ranks=2 if group == "A/below" else 0)
refused(f"{invert} -o in.h5:/soft", 2, "exists")
refused(f"{invert} -o notes.txt:/group", 2, "notes.txt")
refused(f"{invert} -o notes.txt:/group --force", 2, "notes.txt")
shutil.copy("in.h5", "grow.h5")
accepted(f"{invert} -o grow.h5:/to_group/new/one --quiet")
check("through a soft link", "inverse" in h5py.File("grow.h5")["g/new/one"])
accepted(f"{invert} -o grow.h5:/soft --force --quiet")
check("a broken link is replaced", "inverse" in h5py.File("grow.h5")["soft"])

# --- signals (D7, D8) ----------------------------------------------------------------------------------------
np.save("large.npy", np.zeros((3000, 3000)))


def unfinished():
    """Bytes of the unfinished outputs; files that go while we look do not count."""
    total = 0
    for name in os.listdir("."):
        try:
            total += os.path.getsize(name) if ".tmp" in name else 0
        except FileNotFoundError:
            pass
    return total


def during_write(command, number, ranks=0, ignored=False):
    """Sends the signal while the unfinished output has some bytes: whether it ran then, its code, what it said.

    What ended before the signal came proves nothing: it is started again, five times at most.
    """
    before = (lambda: signal.signal(number, signal.SIG_IGN)) if ignored else None
    for _ in range(5):
        process = subprocess.Popen(test.words(command + " --force", ranks), preexec_fn=before, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.time() + 30
        while process.poll() is None and time.time() < end and unfinished() <= 1 << 16:
            time.sleep(0.001)
        running = process.poll() is None
        if running:
            process.send_signal(number)
        err = process.communicate(timeout=60)[1]
        if running:
            break
    return running, process.returncode, err


for ranks, numbers in ((0, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT, signal.SIGUSR1, signal.SIGXCPU)), (3, (signal.SIGTERM,))):
    for number in numbers:
        for _ in range(5):
            running, code, err = during_write("convert large.npy large.h5", number, ranks)
            check(f"{number!r}, {ranks} ranks: files", running and not left_over(), f"{running} {code} {err} {left_over()}")
            if not os.path.exists("large.h5"):
                break
            check(f"{number!r}, {ranks} ranks: too late", b"PASS" in run("verify large.h5").out)  # then the file is whole
            os.remove("large.h5")
        check(f"{number!r}, {ranks} ranks", code == -number if ranks == 0 else code != 0, f"{code} {err}")
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
    for command, output in (("convert large.npy large.h5", "large.h5"), ("convert large.h5 large2.npy", "large2.npy")):
        running, code, err = during_write(command, number, ignored=True)
        check(f"{number!r} ignored: {output}", running and code == 0 and os.path.exists(output) and not left_over(), f"{running} {code} {err} {left_over()}")
run("generate gf2-random --rows 600 --columns 1000000 -o wide.h5")
for number in (signal.SIGTERM, signal.SIGUSR2):  # asked for a checkpoint while the result is written: it is written
    running, code, err = during_write("gf2 rref wide.h5:/A --no-check --backend cpu -o made.h5 --checkpoint made_c.h5", number)
    check(f"{number!r} with --checkpoint", running and code == 0 and os.path.exists("made.h5") and not left_over(), f"{running} {code} {err}")
for name in ("large.npy", "large2.npy", "large.h5", "made.h5", "wide.h5"):
    os.remove(name)

# --- impossible sizes (D9) and raw bytes (D16) -----------------------------------------------------------------


def npy(name, shape, descr="<f8", data=bytes(800)):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)


impossible = []
for k, shape in enumerate(("(2305843009213693952, 8)", "(4294967296, 4294967296)", "(9223372036854775808, 1)", "(36893488147419103232,)",
                           "(0, 9223372036854775807)", "(4611686018427387904, 0)", "(-1, 5)", "(11, 10)", "(101,)")):
    npy(f"big{k}.npy", shape)
    impossible.append(f"big{k}.npy")
npy("bits.npy", "(9223372036854775807, 9223372036854775807)", "|u1")
impossible.append("bits.npy")
market = "%%MatrixMarket matrix "
texts = {"a.txt": "4294967296\n1 2 3\n", "b.txt": "9223372036854775807\n1 2 3\n", "d.txt": "3\n1 2 3\n4 5 6\n7 8\n",
         "a.mtx": market + "array real general\n3037000500 3037000500\n1.0\n", "b.mtx": market + "array real general\n4294967296 4294967296\n1.0\n",
         "c.mtx": market + "coordinate real general\n1000000000000 1 0\n", "d.mtx": market + "coordinate real general\n3 3 9223372036854775807\n1 1 1\n",
         "e.mtx": market + "coordinate pattern symmetric\n9223372036854775807 9223372036854775807 0\n", "f.mtx": market + "array real symmetric\n9000000000 9000000000\n1\n",
         "g.mtx": market + "array real skew-symmetric\n6074001000 6074001000\n1\n", "h.mtx": market + "coordinate real general\n99999999999999999999 1 1\n1 1 1\n",
         "i.mtx": market + "coordinate real general\n5 5 4\n1 1 1\n"}
for name, text in texts.items():
    with open(name, "w") as f:
        f.write(text)
for k, name in enumerate(impossible + list(texts)):
    for ranks in (0, 3) if k % 3 == 0 or name in ("c.mtx", "a.txt") else (0,):
        refused(f"convert {name} x.h5", 3, name, ranks=ranks)
for text in ("3037000500\n1\n", "9223372036854775807\n1\n", "2\n1\n2\n3\n"):  # a column of numbers, or a matrix that was cut off
    with open("column.txt", "w") as f:
        f.write(text)
    done = run("convert column.txt column.h5 --force")
    check("a column", done.code == 0 and b"terrace: warning: the first number" in done.err and b"column.txt" in done.err, done.err)
raw = {"nul.txt": b"2\n1 2\n3 4\x00\x01\xff5\n", "tab.txt": b"2\n1 2\n3 x\vy\n", "long.txt": b"2\n1 2\n3 " + b"9" * 5000 + b"\n",
       "esc.txt": b"2\n1 \x1b[2Jx\n3 4\n", "semi.txt": b"2\n1 2; 3; 4\n3 4\n", "utf.txt": "2\n1 ä\n3 4\n".encode(), "cr.txt": b"2\n1 2\n3 \x7f\x80\xc3\xa9\n",
       "raw.mtx": b"%%MatrixMarket matrix array real general\n\x01\x02 \xff\n1\n"}
for name, data in raw.items():
    with open(name, "wb") as f:
        f.write(data)
    refused(f"convert {name} x.h5", 3, name)
npy("descr.npy", "(2, 2)", "\x07\xff")
refused("convert descr.npy x.h5", 3, "descr.npy")
for name in ("a\nb.txt", "a\x1b[31m.h5", "ä.h5"):
    done = run(["dense", "invert", name + ":/A", "-o", "x.h5"])
    lines = done.err.strip().split(b"\n")
    check("a name", done.code == 3 and len(lines) == 1 and all(c >= 32 for c in lines[0]), done.err)
check("a name that can be read", "ä.h5".encode() in run(["dense", "invert", "ä.h5:/A", "-o", "x.h5"]).err)
done = run(["frob\nnicate\x00".replace("\x00", "")])
check("a word", done.code == 2 and done.err.count(b"\n") == 1, done.err)

# --- restarts after a change (D11) --------------------------------------------------------------------------------
ranks = 2
with h5py.File("small.h5", "w") as f:
    f.create_dataset("A", data=rng.normal(size=(1000, 1000)))
    f["link"] = h5py.ExternalLink("far.h5", "/A")
with h5py.File("far.h5", "w") as f:
    f.create_dataset("A", data=rng.normal(size=(1000, 1000)), chunks=(100, 1000))


def change(name):
    with h5py.File(name, "r+") as f:
        f["A"][200, 7] += 0.5


def touched_back(name):
    status = os.stat(name)
    change(name)
    os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns))


def copied(name):
    shutil.copy(name, "copy")
    os.remove(name)
    shutil.copy("copy", name)
    os.utime(name)


for dataset, changes in (("A", ((change, 3), (touched_back, 3), (copied, 0), (lambda name: os.utime(name), 0))),
                         ("link", ((lambda name: touched_back("far.h5"), 3), (lambda name: copied("far.h5"), 0)))):
    for how, code in changes:
        job = f"dense invert small.h5:/{dataset} --block 32 --no-check"
        accepted(f"{job} -o first.h5 --force --checkpoint s.h5 --checkpoint-every 0.001s --quiet", ranks)
        how("small.h5")
        if code:
            refused(f"{job} -o second.h5 --restart s.h5", 3, "the input was changed", "small.h5", ranks=ranks)
        else:
            accepted(f"{job} -o second.h5 --restart s.h5 --quiet", ranks)
            with h5py.File("first.h5") as a, h5py.File("second.h5") as b:
                check("same bits after a restart", a["inverse"][:].tobytes() == b["inverse"][:].tobytes())
            os.remove("second.h5")
job = "gf2 multiply bits.h5:/A :/B --levels 2 --guard"
accepted(f"{job} -o p.h5 --checkpoint p_c.h5 --checkpoint-every 0.0005s --quiet", 4)
with h5py.File("bits.h5", "r+") as f:
    f["A"][200, 7] ^= 1
refused(f"{job} -o p2.h5 --restart p_c.h5", 3, "changed", ranks=4)

# --- memory, in three parts (D19) ------------------------------------------------------------------------------------
with h5py.File("huge.h5", "w") as f:
    f.create_dataset("A", (3_000_000, 3_000_000), "f8")
refused("dense invert huge.h5:/A -o x.h5 --backend cpu", 5, "memory")
refused("dense invert huge.h5:/A -o x.h5 --backend cpu", 5, "memory", ranks=2)
refused("generate dense-random --n 9223372036854775807 -o x.h5", 5, "entries")

check("nothing left behind", not left_over(), left_over())

test.finish()
