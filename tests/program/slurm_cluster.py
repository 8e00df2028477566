"""A SLURM cluster on this machine for the time of a `with`: its own munged, slurmctld and one slurmd a node, all in one
temporary folder and on free ports, beside whatever SLURM the machine has. Needs root (namespaces) and the packages
munge, slurmctld, slurmd, slurm-client.
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

programs = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
search = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"

devices = ("null", "zero", "full", "random", "urandom", "tty")  # they stand for GPUs


def missing():
    """What this machine lacks for a cluster, as a list of words."""
    return [p for p in programs if not shutil.which(p, path=search)] + ([] if os.geteuid() == 0 else ["root"])


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    def __init__(self, nodes=2, cpus=2):
        self.nodes = [f"n{i}" for i in range(1, nodes + 1)]
        self.cpus = cpus
        self.folder = tempfile.mkdtemp(prefix="slurm.")
        self.daemons = []
        self.env = {**os.environ, "PATH": search, "SLURM_CONF": self.path("slurm.conf")}
        for name in [n for n in self.env if n.startswith(("SLURM_", "SBATCH_", "SRUN_")) and n != "SLURM_CONF"]:
            del self.env[name]

    def path(self, name):
        return os.path.join(self.folder, name)

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def _spawn(self, log, *command):
        """A daemon in the foreground of a session of its own, so that it can be ended whole."""
        with open(self.path(log), "ab") as out:
            self.daemons.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.env,
                                                 start_new_session=True))

    def _start(self):
        os.chmod(self.folder, 0o755)
        for name in ("state", "munge", *(f"{kind}.{n}" for kind in ("spool", "tmp") for n in self.nodes)):
            os.mkdir(self.path(name))
        with open(self.path("munge.key"), "wb") as f:
            os.chmod(f.fileno(), 0o600)
            f.write(os.urandom(1024))
        host, ports = socket.gethostname(), free_ports(1 + len(self.nodes))
        lines = [
            "ClusterName=test", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", "CryptoType=crypto/munge",
            # A requeued job waits for cred_expire seconds, 5 at least.
            f"AuthInfo=socket={self.path('munge/socket')},cred_expire=5", f"StateSaveLocation={self.path('state')}",
            f"SlurmdSpoolDir={self.path('spool.%n')}", f"SlurmctldPidFile={self.path('slurmctld.pid')}",
            f"SlurmdPidFile={self.path('slurmd.%n.pid')}", f"SlurmctldLogFile={self.path('slurmctld.log')}",
            f"SlurmdLogFile={self.path('slurmd.%n.log')}", "ProctrackType=proctrack/linuxproc",
            f"TmpFS={self.path('tmp.%n')}", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core", "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,requeue_setup_env_fail", "MpiDefault=none",
            "ReturnToService=2", "SlurmdParameters=config_overrides", "MailProg=/bin/true", "KillWait=5", "GresTypes=gpu"]
        for node, port in zip(self.nodes, ports[1:]):
            lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} "
                         f"RealMemory=4000 Gres=gpu:{len(devices)} State=UNKNOWN")
        lines.append("PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        with open(self.path("slurm.conf"), "w") as f:
            f.write("\n".join(lines) + "\n")
        version = [int(part) for part in self.run("slurmctld", "-V").split()[-1].split(".")[:2]]
        if version >= [23, 2]:  # older ones do without cgroups by themselves; of v1's nothing is asked here, so that none need be there
            with open(self.path("cgroup.conf"), "w") as f:
                f.write(f"CgroupPlugin={'disabled' if version >= [24, 5] else 'cgroup/v1'}\n")
        with open(self.path("gres.conf"), "w") as f:
            for node in self.nodes:
                for device in devices:
                    f.write(f"NodeName={node} Name=gpu File=/dev/{device}\n")
        self._spawn("munged.log", "munged", "--foreground", "--force", f"--socket={self.path('munge/socket')}",
                    f"--key-file={self.path('munge.key')}", f"--pid-file={self.path('munge/pid')}",
                    f"--seed-file={self.path('munge/seed')}", f"--log-file={self.path('munge/log')}")
        self._wait(lambda: os.path.exists(self.path("munge/socket")), 10, "munged made no socket")
        self._spawn("slurmctld.out", "slurmctld", "-D")
        for node in self.nodes:  # a host name and shared memory of its own, as on a real host
            self._spawn("slurmd.out", "unshare", "--mount", "--uts", "sh", "-c",
                        f"hostname {node}; mount -t tmpfs none /dev/shm; exec slurmd -D -N {node}")
        self._wait(lambda: len(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) == len(self.nodes), 40,
                   "the nodes are not idle")

    def _wait(self, done, seconds, what):
        end = time.time() + seconds
        while not done():
            if time.time() > end:
                raise RuntimeError(f"{what} after {seconds} s\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        """The ends of the daemons' logs."""
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(self.path(name), errors="replace") as f:
                    text += f"--- {name}\n" + "".join(f.readlines()[-15:])
        return text

    def run(self, *command, check=False, timeout=60, **more):
        done = subprocess.run(command, capture_output=True, text=True, env=self.env, timeout=timeout, **more)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, *arguments, cwd, env=None):
        """sbatch; the job's number."""
        done = subprocess.run(["sbatch", "--parsable", *arguments], capture_output=True, text=True, cwd=cwd, timeout=60,
                              env={**self.env, **(env or {})})
        if done.returncode:
            raise RuntimeError(f"sbatch {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def job(self, number):
        """What scontrol knows of a job, KEY=VALUE."""
        words = self.run("scontrol", "show", "job", str(number), "-o").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def finish(self, number, seconds):
        """Waits for the end of a job; what is known of it then."""
        end = time.time() + seconds
        while True:
            job = self.job(number)
            if job.get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"):
                return job
            if time.time() > end:
                raise RuntimeError(f"job {number} is {job.get('JobState')} ({job.get('Reason')}) after {seconds} s\n" +
                                   self.waiting())
            time.sleep(0.2)

    def waiting(self):
        """What the jobs' processes wait in: of each thread its name and where the kernel has it."""
        lines = []
        for pid in self._ours():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    command = f.read().replace(b"\0", b" ").decode(errors="replace")
                if "slurmctld" in command or "slurmd -D" in command:
                    continue
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{thread}/wchan") as f, open(f"/proc/{pid}/task/{thread}/syscall") as g:
                        lines.append(f"{pid} {thread} {f.read()} {g.read().split()[0]} {command[:100]}")
            except OSError:
                pass
        return "\n".join(lines)

    def _ours(self):
        """Processes that carry this cluster's configuration: daemons, slurmstepd and what jobs started."""
        mark, pids = f"SLURM_CONF={self.path('slurm.conf')}".encode(), []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as f:
                        if mark in f.read().split(b"\0"):
                            pids.append(int(name))
                except OSError:
                    pass
        return pids

    def stop(self):
        """Ends everything that was started; what had to be killed the hard way, as a list of command lines."""
        if len(self.daemons) > 1:
            try:
                self.run("scancel", "-u", "root", timeout=10)
                end = time.time() + 10
                while self.run("squeue", "-h", timeout=10).strip() and time.time() < end:
                    time.sleep(0.2)
            except (OSError, subprocess.SubprocessError):
                pass
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                pass
        self.daemons = []
        killed = []
        for pid in self._ours():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    killed.append(f.read().replace(b"\0", b" ").decode(errors="replace").strip() or str(pid))
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
        return killed
