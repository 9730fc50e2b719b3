"""Debian's Slurm with one node, for comparisons."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
_START_S = 60.0
_CONF = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={controller}
SlurmdPort={node}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mib} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_none() -> str | None:
    """Why Slurm cannot run here; None where it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)"
    return None if os.geteuid() == 0 else "Slurm's services need root"


@contextmanager
def slurm(folder: Path, cpus: int, memory_mib: int = 4096) -> Iterator[dict[str, str]]:
    """A cluster of this machine alone while inside; the variables by which its commands find it."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(1024))
    conf = folder / "slurm.conf"
    controller, node = _free_port(), _free_port()
    conf.write_text(
        _CONF.format(
            host=socket.gethostname().partition(".")[0],
            folder=folder,
            controller=controller,
            node=node,
            cpus=cpus,
            memory_mib=memory_mib,
        )
    )
    env = {**os.environ, "SLURM_CONF": str(conf)}
    files = {"key": key} | {each: folder / "munge" / each for each in ("socket", "pid", "log")}
    munged = ["munged", "--force", "--foreground", f"--key-file={files['key']}"]
    munged += [f"--socket={files['socket']}", f"--pid-file={files['pid']}"]
    munged += [f"--log-file={files['log']}", f"--seed-file={folder / 'munge/seed'}"]
    services = []
    try:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            services.append(
                subprocess.Popen(
                    command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            time.sleep(0.5)
        _until_idle(env, folder)
        yield env
    finally:
        for service in reversed(services):
            service.terminate()
            service.wait()


def _until_idle(env: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        asked = ["sinfo", "--noheader", "--format=%T"]
        done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    logs = "\n".join(path.read_text()[-500:] for path in folder.glob("*.log"))
    raise RuntimeError(f"Slurm's node is not idle after {_START_S:.0f} s:\n{logs}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
