"""Debian's Slurm on this machine, with one node or several, and pretended GPUs."""

import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.site import let_through

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "srun")
_START_S = 60.0
_CONF = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort={controller}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MaxJobCount=30000
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_NODE = """\
NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} \
RealMemory={memory_mib} Gres=gpu:{kind}{gpus} State=UNKNOWN
"""


def why_none() -> str | None:
    """Why Slurm cannot run here; None where it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)"
    return None if os.geteuid() == 0 else "Slurm's services need root"


class Slurm:
    """A cluster of this machine alone; what its users and operators do there is a method here."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Sequence[str],
        cpus: int,
        memory_mib: int,
        gpus: int,
        gpu_types: Mapping[str, str],
        more: str = "",
        beside: Sequence[str] = (),
    ) -> None:
        self._folder, self._beside = folder, beside
        self._nodes = nodes
        self._services: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("munge", "state", *(f"spool.{node}" for node in nodes)):
            (folder / name).mkdir()
        self._key = folder / "munge.key"
        self._key.touch(0o600)
        self._key.write_bytes(os.urandom(1024))
        host = socket.gethostname().partition(".")[0]
        size = {"host": host, "cpus": cpus, "memory_mib": memory_mib, "gpus": gpus}
        kinds = {node: f"{kind}:" for node, kind in gpu_types.items()}
        lines = [
            _NODE.format(name=node, kind=kinds.get(node, ""), port=free_port(), **size)
            for node in nodes
        ]
        conf = _CONF.format(host=host, folder=folder, controller=free_port())
        self._conf = folder / "slurm.conf"
        self._conf.write_text(
            conf.replace("PartitionName", more + "".join(lines) + "PartitionName")
        )
        for number in range(gpus):  # what a GPU looks like to Slurm
            os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        files = f"File={folder}/gpu[0-{gpus - 1}]" if gpus else "Count=0"
        (folder / "gres.conf").write_text(
            "".join(
                f"NodeName={node} Name=gpu {f'Type={kind} ' if kind else ''}{files}\n"
                for node in nodes
                for kind in [gpu_types.get(node, "")]
            )
        )
        self.env = {**os.environ, "SLURM_CONF": str(self._conf)}

    def start(self) -> None:
        """Start its services; its nodes are idle then."""
        munge = self._folder / "munge"
        munged = ["munged", "--force", "--foreground", f"--key-file={self._key}"]
        munged += [f"--socket={munge / 'socket'}", f"--pid-file={munge / 'pid'}"]
        munged += [f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}"]
        self._start("munged", munged)
        if self._beside:
            self._start("beside", [*self._beside])
            self._register()
        self._start("slurmctld", ["slurmctld", "-D"])
        for node in self._nodes:
            self._start(node, ["slurmd", "-D", "-N", node])
        self._until_idle()
        let_through(self._folder)
        munge.chmod(0o755)
        self._conf.chmod(0o644)

    def stop(self) -> None:
        """End what was started."""
        for service in reversed(self._services.values()):
            service.terminate()
            service.wait()

    def restart(self, *options: str) -> None:
        """End the controller as its operators do, if it is there, and start it again."""
        self._services["slurmctld"].terminate()
        self._services["slurmctld"].wait()
        self._start("slurmctld", ["slurmctld", "-D", *options])
        self._until_answers()

    def kill_controller(self) -> None:
        """End it as a power cut would."""
        self._services["slurmctld"].kill()
        self._services["slurmctld"].wait()

    def forget_ended(self) -> None:
        """Let it know nothing more of jobs that have ended: as of all, when its state is lost."""
        self.restart("-c")

    def hold(self, engine_id: str) -> None:
        """Let a job that waits not start."""
        self.ask("scontrol", "hold", engine_id)

    def release(self, engine_id: str) -> None:
        """Let it start."""
        self.ask("scontrol", "release", engine_id)

    def cancel(self, engine_id: str) -> None:
        """End it."""
        self.ask("scancel", engine_id)

    def end_all(self) -> None:
        """Let nothing be left of a test."""
        self.ask("scancel", "--me", "--state=PENDING")
        self.ask("scancel", "--me", "--signal=KILL")
        self.ask("scancel", "--me")

    def requeue(self, engine_id: str) -> None:
        """End it and put it into the queue again; at once, not in two minutes."""
        self.ask("scontrol", "requeue", engine_id)
        deadline = time.monotonic() + _START_S
        while "PENDING" not in self.ask("squeue", "-h", "-j", engine_id, "-o", "%T"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(3.0)  # else the end of the first start is taken for that of the second
        self.ask("scontrol", "update", f"JobId={engine_id}", "StartTime=now")

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands answers."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def _start(self, name: str, command: list[str]) -> None:
        self._services[name] = subprocess.Popen(
            command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(0.5)

    def _register(self) -> None:
        """Have its accounts know it, as soon as they answer."""
        asked = ["sacctmgr", "--immediate", "add", "cluster", "bench"]
        deadline = time.monotonic() + _START_S
        while True:
            done = subprocess.run(asked, env=self.env, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.5)

    def _until_idle(self) -> None:
        self._until("sinfo", "--noheader", "--format=%T %D", answer=f"idle {len(self._nodes)}")

    def _until_answers(self) -> None:
        self._until("scontrol", "ping", "--quiet", answer="UP")
        self.ask("scontrol", "reconfigure")  # nodes register again, which else takes minutes
        deadline = time.monotonic() + _START_S
        while re.search(r"\*|unk|down", self.ask("sinfo", "-h", "-o", "%T")):
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _until(self, *command: str, answer: str) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            done = subprocess.run(
                command, env=self.env, capture_output=True, text=True, check=False
            )
            if answer in done.stdout:
                return
            time.sleep(0.2)
        logs = "\n".join(path.read_text()[-500:] for path in self._folder.glob("*.log"))
        raise RuntimeError(f"Slurm does not answer {answer} within {_START_S:.0f} s:\n{logs}")


@contextmanager
def slurm(
    folder: Path,
    cpus: int,
    memory_mib: int = 4096,
    *,
    nodes: Sequence[str] = ("n1",),
    gpus: int = 0,
    gpu_types: Mapping[str, str] = MappingProxyType({}),
    more: str = "",
    beside: Sequence[str] = (),
) -> Iterator[Slurm]:
    """A cluster of this machine alone while inside; *more* are lines of its slurm.conf.

    *beside* is the service of its accounts, if it has one, which knows it before it starts.
    """
    cluster = Slurm(
        folder, nodes=nodes, cpus=cpus, memory_mib=memory_mib, gpus=gpus, gpu_types=gpu_types,
        more=more, beside=beside,
    )  # fmt: skip
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def account(home: Path) -> Iterator[pwd.struct_passwd]:
    """An ordinary user of this machine, whose home is *home*, while inside."""
    name = f"headway-{token_hex(4)}"
    made = ["useradd", "--no-create-home", f"--home-dir={home}", name]
    for _ in range(20):  # another one may hold the lock of the accounts
        if subprocess.run(made, check=False, capture_output=True).returncode == 0:
            break
        time.sleep(0.2)
    user = pwd.getpwnam(name)
    let_through(home.parent)
    home.mkdir(exist_ok=True)
    os.chown(home, user.pw_uid, user.pw_gid)
    try:
        yield user
    finally:
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)


def as_user(user: pwd.struct_passwd, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What *command* says, typed by *user*."""
    env = {"HOME": user.pw_dir, "PATH": os.environ["PATH"], **env}
    return subprocess.run(
        command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], env=env, cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def logins(team: str, there: Mapping[str, str], **more: str) -> dict[str, Any]:
    """What an operator says in the block of the queue: as whom members of *team* go to Slurm."""
    return {"teams": {team: {"engines": {"slurm": {"logins": dict(there), **more}}}}}


def free_port() -> int:
    """One on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


MEMORY_KILLS = """\
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
"""
"""Lines of slurm.conf by which Slurm itself ends a job that holds more than it has asked for."""


def two_nodes(
    folder: Path, gpu_types: Mapping[str, str] = MappingProxyType({}), more: str = ""
) -> Iterator[Slurm]:
    """For a fixture: a cluster of two nodes with GPUs; its tests are skipped where none can be.

    *gpu_types* says of which type those of a node are, by its name: n1 or n2.
    """
    if missing := why_none():
        pytest.skip(missing)
    with slurm(
        folder, cpus=2, nodes=("n1", "n2"), gpus=2, gpu_types=gpu_types, more=more
    ) as cluster:
        yield cluster
