"""Slurm's accounting on this machine: MariaDB, slurmdbd, and two accounts of a cluster."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.slurm import Slurm, free_port, slurm

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr")
_START_S = 60.0
_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
_LINES = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations,limits,qos
"""


@contextmanager
def slurm_with_accounts(folder: Path, user: str) -> Iterator[Slurm]:
    """A cluster of one node whose *user* may use the accounts "lab" (its default) and "vision".

    The QOS "short" is for both; "vision" has "normal" besides.
    """
    data, socket = folder / "mysql", folder / "mysql.sock"
    port, database = free_port(), free_port()
    (folder / "slurmdbd.conf").touch(0o600)
    (folder / "slurmdbd.conf").write_text(_CONF.format(folder=folder, port=port, database=database))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    own = ["--no-defaults", f"--datadir={data}", "--user=root"]
    made = ["mariadb-install-db", *own, "--skip-test-db"]
    subprocess.run(made, check=True, capture_output=True)
    served = ["mariadbd", *own, f"--socket={socket}", f"--port={database}"]
    served += ["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M"]
    with subprocess.Popen(served, **quiet) as server:  # type: ignore[call-overload]
        try:
            _may(socket)
            with _cluster(folder, port, user) as cluster:
                yield cluster
        finally:
            server.terminate()


def _may(socket: Path) -> None:
    """Let slurmdbd in, once the database answers."""
    sql = (
        "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@'127.0.0.1'"
    )
    deadline = time.monotonic() + _START_S
    while True:
        asked = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "-e", sql]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


@contextmanager
def _cluster(folder: Path, port: int, user: str) -> Iterator[Slurm]:
    lines = _LINES.format(folder=folder, port=port)
    with slurm(folder, cpus=2, more=lines, beside=["slurmdbd", "-D"]) as cluster:
        for words in (
            "add account lab vision Description=x Organization=x",
            "add qos short",
            f"add user {user} Account=lab QOS=short DefaultQOS=short",
            f"add user {user} Account=vision QOS=normal,short DefaultQOS=normal",
            f"modify user {user} set DefaultAccount=lab",
        ):
            cluster.ask("sacctmgr", "--immediate", *words.split())
        yield cluster
