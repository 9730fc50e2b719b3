"""One PostgreSQL cluster in a folder of its own: made, started, asked, stopped.

It listens on a socket in that folder and on no port, so no container and no other
machine can reach it. Who comes by the socket needs its password, too.
"""

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from headway.admin.database.binaries import Account, Binaries
from headway.admin.processes import StartFailed, await_ready
from headway.clock import Clock
from headway.home import have_passable
from headway.ledger import hosting
from headway.node.daemon import Daemon

LONGEST_FOLDER = 90
"""Characters: a socket's path has at most 107, and its name takes 14."""
UNFINISHED = "unfinished"
"""File in a cluster's folder until all that belongs there is in it."""
_INIT_S = 300.0
_START_S = 300.0
"""After a power loss the log is replayed first."""
_STOP_S = 60.0
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "300",  # each flow process holds one or two
    "jit": "off",  # it costs more than it gives for statements as short as these
    "wal_level": "minimal",  # there is no replica
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %d ",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster: its folder, the programs that suit it, whose it is, its process."""

    folder: Path
    binaries: Binaries
    account: Account | None
    daemon: Daemon

    @property
    def data(self) -> Path:
        """PostgreSQL's own folder."""
        return self.folder / "data"

    def have_folder(self) -> None:
        """Have its folder, its account's alone, with nothing of a try that went no further."""
        have_passable(self.folder.parent)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        (self.folder / UNFINISHED).touch()
        self.give(self.folder)

    def make(self, password: str) -> None:
        """Make the cluster; *password* is that of its owner.

        Raises:
            StartFailed: ``initdb`` did not succeed.
        """
        secret = self.folder / "password"
        secret.unlink(missing_ok=True)
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{password}\n")
        self.give(secret)
        command = [self.binaries.path("initdb"), "-D", str(self.data), "-U", hosting.OWNER]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C"]
        try:
            self.run([*command, "--data-checksums"], _INIT_S)
        finally:
            secret.unlink()

    def change_password(self, password: str) -> None:
        """Let *password* be that of its owner from now on; it must not run.

        Raises:
            StartFailed: It could not be opened.
        """
        server, *given = self.command()
        said = f"ALTER ROLE {hosting.OWNER} PASSWORD '{password}'\n"
        self.run([server, "--single", *given, "postgres"], _START_S, said)

    def command(self) -> list[str]:
        """The command that is the server."""
        settings = _SETTINGS | {"unix_socket_directories": str(self.folder)}
        given = [word for name, to in settings.items() for word in ("-c", f"{name}={to}")]
        return [self.binaries.path("postgres"), "-D", str(self.data), *given]

    def start(self, url: str, clock: Clock) -> None:
        """Start it and wait until it answers at *url*, be it that the password there is wrong.

        Raises:
            StartFailed: It ended, or does not answer.
        """
        if self.daemon.process() is None:
            self.daemon.start(self.command(), environment(), user=self._user, cwd=Path("/"))
        await_ready(self.daemon, "the database", lambda: hosting.speaks(url), _START_S, clock)

    def become(self) -> NoReturn:
        """Let this process be the server."""
        os.chdir("/")
        if self.account is not None:
            os.setgroups([])
            os.setgid(self.account.gid)
            os.setuid(self.account.uid)
        command = self.command()
        os.execve(command[0], command, environment())  # noqa: S606 - no shell, our own path

    def stop(self) -> bool:
        """Stop it; False when it did not run."""
        return self.daemon.stop(signal.SIGINT, _STOP_S)  # ends connections, writes all to disk

    def give(self, path: Path) -> None:
        """Let *path* be the account's."""
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def run(self, command: list[str], limit_s: float, said: str = "") -> None:
        """Run one of its programs as its owner, which is *said* something; its answer is logged.

        Raises:
            StartFailed: It did not succeed.
        """
        self.daemon.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.daemon.log.open("ab") as log:
            done = subprocess.run(
                command, env=environment(), cwd="/", input=said.encode(), stdout=log,
                stderr=subprocess.STDOUT, check=False, timeout=limit_s, user=self._user,
                group=self.account.gid if self.account is not None else None,
                extra_groups=[] if self.account is not None else None,
            )  # fmt: skip
        if done.returncode != 0:
            cause = f"{Path(command[0]).name}: exit status {done.returncode}"
            raise StartFailed("the database", self.daemon.log, cause)

    @property
    def _user(self) -> str | None:
        return self.account.name if self.account is not None else None


def environment() -> dict[str, str]:
    """That of PostgreSQL's programs: nothing of what this process knows."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
