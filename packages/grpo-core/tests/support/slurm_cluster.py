"""A SLURM cluster of this machine alone: two nodes, preemption by priority, started from Debian's packages."""

import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")

CONFIG = """
ClusterName=grpo
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=60
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=low Nodes=ALL Default=YES MaxTime=60 PriorityTier=1 GraceTime=60
PartitionName=high Nodes=ALL MaxTime=60 PriorityTier=2 PreemptMode=OFF
"""


class ClusterError(Exception):
    """The cluster does not start here; the message says why."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        environment: Environment of commands that use it.
    """

    environment: dict[str, str]

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of SLURM; its output."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def job(self, job_id: str) -> dict[str, str]:
        """What `scontrol show job` says of a job; it keeps ended ones for five minutes."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", "--oneliner", job_id)))

    def ended(self, job_id: str) -> str:
        """Wait until a job has ended; its state."""
        going = ("PENDING", "RUNNING", "COMPLETING", "REQUEUED")
        until(lambda: self.job(job_id)["JobState"] not in going, 200, lambda: str(self.job(job_id)))
        return self.job(job_id)["JobState"]


def until(look: Callable[[], Any], timeout_s: float, problem: Callable[[], str]) -> Any:
    """Look until there is something to see."""
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, problem()
        time.sleep(0.3)
    return seen


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """Start a cluster, and end it with everything that runs on it.

    Raises:
        ClusterError: a program is missing, or a daemon does not come up.
    """
    path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        raise ClusterError(f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o400)
        names = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": folder, "ports": _ports(3)}
        (folder / "slurm.conf").write_text(CONFIG.format(**names))
        environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
        munge = [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("key-file", "socket", "pid-file")]
        munge += [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("log-file", "seed-file")]
        commands = [["munged", "--foreground", "--force", *munge], ["slurmctld", "-D"]]
        commands += [["slurmd", "-D", "-N", node] for node in ("n1", "n2")]
        output = stack.enter_context((folder / "daemons.log").open("wb"))
        for command in commands:
            daemon = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
            stack.callback(_end, daemon)
            if command[0] == "munged":
                _come_up((folder / "munge.socket").exists, folder, daemon)
        cluster = Cluster(environment)
        _come_up(lambda: cluster.run("sinfo", "--noheader", "--format=%T", check=False) == "idle\n", folder, daemon)
        stack.callback(_cancel_all, cluster)
        yield cluster


def _come_up(is_up: Callable[[], bool], folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not is_up():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(f"SLURM does not start here: {(folder / 'daemons.log').read_text()[-500:]}")
        time.sleep(0.2)


def _cancel_all(cluster: Cluster) -> None:
    cluster.run("scancel", "--user", getpass.getuser())
    cluster.run("scancel", "--signal=KILL", "--full", "--user", getpass.getuser(), check=False)
    until(lambda: not cluster.run("squeue", "--noheader"), 60, lambda: cluster.run("squeue"))


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
