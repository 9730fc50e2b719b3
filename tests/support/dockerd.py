"""A container engine for the tests: the machine's, else one that we start; and private ones."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import docker
import psutil
from docker.errors import DockerException

from tests.support.whitelist import Watch

_START_S = 40.0
_STOP_S = 30.0
_IDS = ("subuid", "subgid")


def why_none() -> str:
    """Why no engine can be had here; empty when one answers or can be started."""
    if answers(None):
        return ""
    if os.environ.get("DOCKER_HOST"):
        return f"no engine answers at {os.environ['DOCKER_HOST']}"
    if os.geteuid() != 0:
        return "no container engine answers, and only root can start one"
    if shutil.which("dockerd") is None:
        return "dockerd is not installed (root on Debian: make test-deps)"
    return ""


def answers(host: str | None) -> bool:
    """Does an engine answer there?"""
    address = host or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if address.startswith("unix://"):
        # The SDK leaks its socket where nobody listens, and warnings are errors here.
        with socket.socket(socket.AF_UNIX) as knock:
            if knock.connect_ex(address.removeprefix("unix://")):
                return False
    try:
        client = (
            docker.DockerClient(base_url=host, timeout=5) if host else docker.from_env(timeout=5)
        )
    except DockerException:
        return False
    client.close()
    return True


@contextmanager
def engine() -> Iterator[None]:
    """An engine at the default address: the machine's, else one that is started here.

    Several processes of tests share it: the first starts it and the last stops it.
    """
    folder = Path(tempfile.gettempdir(), "headway-tests-dockerd")
    folder.mkdir(exist_ok=True)
    with (folder / "users").open("w") as users:
        with _alone(folder):
            if not answers(None):
                _start_shared(folder)
            fcntl.flock(users, fcntl.LOCK_SH)
        yield
        with _alone(folder), suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _stop_shared(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start_shared(folder: Path) -> None:
    daemon = Daemon(folder)
    # A pid file of an engine that was killed would stop the next one.
    Path("/var/run/docker.pid").unlink(missing_ok=True)
    daemon.process = _spawn(["dockerd"], daemon.log)
    (folder / "pid").write_text(str(daemon.process.pid))
    daemon.wait(None)
    # It goes on while tests use it, in this process or another: `_stop_shared` ends it, and
    # Popen is not to complain that nobody has waited for it.
    daemon.process.returncode = 0


def _stop_shared(folder: Path) -> None:
    """Stop the engine if tests have started it."""
    started = folder / "pid"
    if not started.exists():
        return
    with suppress(psutil.NoSuchProcess):
        daemon = psutil.Process(int(started.read_text()))
        daemon.terminate()
        give_up_s = time.monotonic() + _STOP_S
        # The process that started it may not have waited for it yet.
        while daemon.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up_s:
            time.sleep(0.1)
    started.unlink()


def _spawn(
    command: list[str], log: Path, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with log.open("ab") as words:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=env,
            start_new_session=True,
        )  # fmt: skip


@dataclass
class Daemon:
    """A private dockerd in a network namespace of its own, below one folder."""

    folder: Path
    live_restore: str = "off"
    path_first: Path | None = None
    """Searched before PATH: where a stub hook lies."""
    namespace: str = ""
    """Named network namespace to run in, with the engine's own packet rules; else a bare one."""
    options: tuple[str, ...] = ()
    ids: Path | None = None
    """Folder whose files subuid and subgid it finds in /etc, in a mount namespace of its own."""
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)
    watches: list[Watch] = field(default_factory=list)
    """One for each start: what containers get, also where tests break the engine."""

    def __post_init__(self) -> None:
        self.log = self.folder / "dockerd.log"

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def start(self) -> None:
        """Start and wait until it answers."""
        pid_file = self.folder / "docker.pid"
        pid_file.unlink(missing_ok=True)
        # The engine's own containerd dies with it and leaves this behind.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)
        inside = ["unshare", "--net"]
        if self.namespace:
            inside = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        if self.ids is not None:
            binds = [f"mount --bind '{self.ids}/{name}' /etc/{name}" for name in _IDS]
            script = " && ".join([*binds, 'exec "$0" "$@"'])
            inside += ["unshare", "--mount", "sh", "-c", script]
        command = [
            *inside, "dockerd", *self.options, "--data-root", f"{self.folder}/data",
            "--exec-root", f"{self.folder}/exec", "-H", self.host, "--pidfile", str(pid_file),
            "--bridge=none", f"--iptables={'true' if self.namespace else 'false'}",
            f"--live-restore={'true' if self.live_restore == 'on' else 'false'}",
        ]  # fmt: skip
        path = os.environ["PATH"]
        env = dict(os.environ, PATH=f"{self.path_first}:{path}" if self.path_first else path)
        self.process = _spawn(command, self.log, env)
        self.wait(self.host)
        self.watches.append(Watch(self.host))

    def wait(self, host: str | None) -> None:
        give_up_s = time.monotonic() + _START_S
        while not answers(host):
            if time.monotonic() > give_up_s or (self.process and self.process.poll() is not None):
                raise RuntimeError(f"dockerd did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        """To the engine alone (it is the very process: unshare and env only exec)."""
        assert self.process is not None
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop every thread of the engine; returns when all of them are."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        threads = Path(f"/proc/{self.process.pid}/task")
        while any(
            (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
            for task in threads.iterdir()
        ):
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL to the engine alone; containers and their shims live on."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> None:
        """Stop the engine and what it started; unmount what it mounted."""
        self._stop_engine()
        wrong = [each for watch in self.watches for each in watch.end()]
        # With live-restore, containers and their shims outlive the engine.
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.folder / "exec") in word for word in process.info["cmdline"] or ()):
                for child in (*process.children(recursive=True), process):
                    child.kill()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)
        assert not wrong, wrong

    def _stop_engine(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
