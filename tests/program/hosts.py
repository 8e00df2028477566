"""Two hosts made of one machine: two network namespaces with one cable between them, a name and shared memory for each,
and an `mpirun` that starts the first half of its ranks on one and the second half on the other.

    with TwoHosts(folder) as two:               # needs root, ip and unshare
        subprocess.run([two.mpirun, "-n", "2", ...])
        two.connect("down", (2,))               # the cable of host 2

Where there are GPUs, each host sees half of them, and NCCL is told that they are two hosts (NCCL_HOSTID).
"""
import os
import shlex
import shutil
import signal
import subprocess
import sys

from terrace import gpus as seen_gpus


def need(gpus):
    """Ends the test as skipped, with the reason, where there can be no two hosts, or fewer than `gpus` GPUs."""
    why = None
    if os.environ.get("TERRACE_NO_NETNS") == "1":
        why = "told off by TERRACE_NO_NETNS=1"
    elif os.geteuid() != 0:
        why = "two hosts need root"
    elif not shutil.which("ip") or not shutil.which("unshare"):
        why = "two hosts need ip (iproute2) and unshare"
    elif seen_gpus() < gpus:
        why = f"{seen_gpus()} GPUs are seen, {gpus} needed"
    if why:
        print(f"skipped: {why}")
        sys.exit(77)


def ip(*arguments, **how):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, **how)


class TwoHosts:
    def __init__(self, folder):
        mark = f"{os.getpid() % 100000}"
        self.space = {1: f"ta{mark}", 2: f"tb{mark}"}  # namespaces
        self.link = {1: f"va{mark}", 2: f"vb{mark}"}
        self.address = {1: "10.99.0.1", 2: "10.99.0.2"}
        self.bin = os.path.join(folder, "two-hosts")
        self.mpirun = os.path.join(self.bin, "mpirun")
        os.makedirs(self.bin)
        inside = {h: f"hostname h{h}; mount -t tmpfs none /dev/shm; export NCCL_HOSTID=h{h}" for h in (1, 2)}
        gpus = seen_gpus()
        if gpus > 1:
            for h in (1, 2):
                inside[h] += " CUDA_VISIBLE_DEVICES=" + ",".join(str(g) for g in range(gpus) if (g >= gpus // 2) == (h == 2))
        # The agent that mpirun starts the other host's daemon with, in a session of its own as ssh does.
        self._script("agent", f"""while [[ $1 == -* ]]; do shift; done
host=$1; shift
case $host in {self.address[1]}) space={self.space[1]}; inside={shlex.quote(inside[1])};; *) space={self.space[2]}; inside={shlex.quote(inside[2])};; esac
exec setsid --wait ip netns exec $space unshare --uts --mount bash -c "$inside; $*"
""")
        self._script("mpirun", f"""ranks=1
[[ $1 == -n ]] && {{ ranks=$2; shift 2; }}
half=$(((ranks + 1) / 2))
exec ip netns exec {self.space[1]} unshare --uts --mount bash -c {shlex.quote(inside[1] + '; exec "$@"')} mpirun \\
  {shutil.which("mpirun")} --bind-to none --mca plm rsh --mca plm_rsh_agent {self.bin}/agent --mca btl self,vader,tcp \\
  -H {self.address[1]}:$half,{self.address[2]}:$half -n $ranks "$@"
""")

    def _script(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w") as f:
            f.write("#!/bin/bash\n" + text)
        os.chmod(path, 0o755)

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the hosts are removed then, too
        try:
            for h in (1, 2):
                ip("netns", "add", self.space[h], check=True)
            ip("link", "add", self.link[1], "type", "veth", "peer", "name", self.link[2], check=True)
            for h in (1, 2):
                ip("link", "set", self.link[h], "netns", self.space[h], check=True)
                ip("-n", self.space[h], "addr", "add", self.address[h] + "/24", "dev", self.link[h], check=True)
                ip("-n", self.space[h], "link", "set", "lo", "up", check=True)
            self.connect("up")
            ask = subprocess.run([self.mpirun, "-n", "2", "hostname"], capture_output=True, text=True, timeout=60)
            if sorted(ask.stdout.split()) != ["h1", "h2"]:
                raise RuntimeError(f"mpirun does not start a rank on each host: {ask.stdout} {ask.stderr}")
        except Exception:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.end_all()
        for h in (1, 2):
            ip("netns", "del", self.space[h])

    def connect(self, state, hosts=(1, 2)):
        """Plugs the cable of each of `hosts` in ("up") or out ("down")."""
        for h in hosts:
            ip("-n", self.space[h], "link", "set", self.link[h], state, check=True)

    def processes(self):
        """(pid, name) of what lives on the two hosts."""
        found = []
        for h in (1, 2):
            for pid in ip("netns", "pids", self.space[h]).stdout.split():
                try:
                    with open(f"/proc/{pid}/comm") as f:
                        name = f.read().strip()
                    with open(f"/proc/{pid}/stat") as f:
                        state = f.read().rsplit(")", 1)[1].split()[0]
                except OSError:
                    continue
                if state != "Z":
                    found.append((int(pid), name))
        return found

    def end_all(self):
        for pid, _ in self.processes():
            try:
                os.kill(pid, 9)
            except OSError:
                pass
