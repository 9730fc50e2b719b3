"""Flow processes through the fork server: real processes, a tiny engine, no Prefect."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from headway.admin import processes
from headway.node.daemon import Daemon, fork_daemon
from headway.node.flowlock import FENCED, live_flow, lock_flow, status_of
from headway.node.forkstart import (
    NotForked,
    Program,
    fork,
    running_server,
    socket_address,
    start_server,
)
from headway.project import PROJECT
from headway.settings import Settings

ROOT = Path(__file__).parents[2]
ENGINE = """
import os, signal, sys, time, pathlib
here = pathlib.Path(os.environ["HERE"])
def say(*words):
    with (here / f"{os.environ['PREFECT__FLOW_RUN_ID']}.said").open("a") as file:
        print(*words, file=file)
(here / f"{os.environ['PREFECT__FLOW_RUN_ID']}.began").write_text(str(os.getpid()))
exec(os.environ["DO"])
"""


class Bench:
    """A state directory, and an engine that does what `DO` says."""

    def __init__(self, here: Path) -> None:
        self.here = here
        # Deeper than a socket address may be long.
        self.state_dir = here / ("deep" * 30) / "state"
        package = here / "code" / "flows"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "engine.py").write_text(ENGINE)
        self.env = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",  # else the interpreter itself adds LC_CTYPE
            "PYTHONPATH": f"{here / 'code'}{os.pathsep}{ROOT}",
            "HERE": str(here),
        }

    def start_server(self, *preload: str) -> int:
        return start_server(self.state_dir, preload, self.env)

    def start(self, do: str, run_id: str | None = None) -> "Run":
        run_id = run_id or str(uuid4())
        env = {**self.env, "DO": do, "PREFECT__FLOW_RUN_ID": run_id}
        return Run(self, run_id, *fork(self.state_dir, Program("flow", ["flows.engine"], env)))

    def close(self) -> None:
        for path in (self.state_dir / "flows").glob("*.lock"):
            if (pid := live_flow(self.state_dir, path.stem)) is not None:
                os.kill(pid, signal.SIGKILL)
        if (pid := running_server(self.state_dir)) is not None:
            os.kill(pid, signal.SIGKILL)


class Run:
    def __init__(self, bench: Bench, run_id: str, pid: int, pidfd: int) -> None:
        self.bench, self.id, self.pid, self.pidfd = bench, run_id, pid, pidfd

    def end(self) -> tuple[int, str]:
        """Its status, and what it said."""
        assert select.select([self.pidfd], [], [], 60)[0]
        os.close(self.pidfd)
        said = self.bench.here / f"{self.id}.said"
        status = status_of(self.bench.state_dir, self.id, self.pid)
        return status, said.read_text() if said.exists() else ""

    def begun(self) -> int:
        """Pid of the flow process, once it runs the engine."""
        began = self.bench.here / f"{self.id}.began"
        until(lambda: began.exists() and began.read_text() != "")
        return int(began.read_text())


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("do", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a message')", 1),
        ("1 / 0", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", -9),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_who_waits_hears_how_the_flow_process_ends(
    bench: Bench, do: str, status: int, alone: bool
) -> None:
    server = bench.start_server()
    run = bench.start(f"while not (here / 'go').exists(): time.sleep(0.01)\n{do}")
    if alone:
        os.kill(server, signal.SIGKILL)
        until(lambda: gone(server))
    (bench.here / "go").touch()
    assert run.end()[0] == status
    until(lambda: gone(run.pid))


def test_the_flow_process_has_the_environment_that_was_given_and_no_stream(bench: Bench) -> None:
    server = bench.start_server()
    run = bench.start(
        "say(os.getcwd(), os.getsid(0) == os.getpid(), os.getppid());"
        "say(sys.argv[1:], sorted(os.environ));"
        "say([os.readlink(f'/proc/self/fd/{n}') for n in range(3)]);"
        "say(len(os.listdir('/proc/self/fd')))"
    )
    status, said = run.end()
    assert status == 0
    names = sorted([*bench.env, "DO", "PREFECT__FLOW_RUN_ID"])
    where, given, streams, opened = said.splitlines()
    assert where == f"{PROJECT} True {server}"
    assert given == f"[] {names}"
    assert streams == str(["/dev/null"] * 3)
    assert int(opened) <= 6  # three streams, its lock, and what lists and writes this


def test_signals_ignored_by_whoever_started_the_server_work_in_the_flow(bench: Bench) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        bench.start_server()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run = bench.start("time.sleep(30)")
    os.kill(run.begun(), signal.SIGINT)
    assert run.end()[0] != 0


def test_a_run_is_never_started_twice(bench: Bench) -> None:
    bench.start_server()
    first = bench.start("time.sleep(30)")
    pid = first.begun()
    second = bench.start("say('twice')", run_id=first.id)
    assert select.select([second.pidfd], [], [], 60)[0]
    assert live_flow(bench.state_dir, first.id) == pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: live_flow(bench.state_dir, first.id) is None)
    assert bench.start("say('again')", run_id=first.id).end() == (0, "again\n")


def test_of_ten_starts_of_one_run_at_once_one_lives(bench: Bench) -> None:
    bench.start_server()
    with ThreadPoolExecutor(10) as at_once:
        runs = list(at_once.map(lambda _: bench.start("say(1); time.sleep(2)", "one"), range(10)))
    for run in runs:
        assert select.select([run.pidfd], [], [], 60)[0]
    assert (bench.here / "one.said").read_text() == "1\n"
    assert FENCED not in {status_of(bench.state_dir, "one", run.pid) for run in runs}


def test_without_a_server_nothing_starts_and_it_is_said(bench: Bench) -> None:
    with pytest.raises(NotForked, match="No such file or directory"):
        bench.start("pass")


def test_of_many_servers_started_at_once_one_runs(bench: Bench) -> None:
    with ThreadPoolExecutor(6) as pool:
        pids = set(pool.map(lambda _: bench.start_server(), range(6)))
    assert pids == {running_server(bench.state_dir)}
    processes = psutil.process_iter(["cmdline"])
    found = [p for p in processes if str(bench.state_dir) in (p.info["cmdline"] or [])]
    assert {p.pid for p in found} == pids


def test_a_stale_socket_is_replaced(bench: Bench) -> None:
    first = bench.start_server()
    os.kill(first, signal.SIGKILL)
    until(lambda: running_server(bench.state_dir) is None)
    assert bench.start_server() != first
    assert bench.start("pass").end()[0] == 0


def test_a_successor_with_the_new_code_takes_over_and_running_flows_go_on(bench: Bench) -> None:
    module = bench.here / "code" / "rules.py"
    module.write_text("VERSION = 'one'\n")
    old = bench.start_server("rules")
    show = "import rules; time.sleep({}); say(rules.VERSION)"
    assert bench.start(show.format(0)).end()[1] == "one\n"
    long = bench.start("import rules; say(rules.VERSION); time.sleep(3); sys.exit(6)")
    long.begun()
    module.write_text("VERSION = 'two, longer'\n")
    assert bench.start(show.format(0)).end() == (0, "two, longer\n")
    assert running_server(bench.state_dir) not in {old, None}
    until(lambda: gone(old))
    assert long.end() == (6, "one\n")


def test_a_module_that_cannot_be_imported_is_left_to_the_flow(bench: Bench) -> None:
    (bench.here / "code" / "broken.py").write_text("raise OSError('broken')\n")
    bench.start_server("broken")
    do = "try: import broken\nexcept OSError as error: say(error)"
    assert bench.start(do).end() == (0, "broken\n")


DAEMON = """
import os, sys, time
if __name__ == "__main__":
    print(*sys.argv[1:], os.environ["HERE"], flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("forked", [True, False])
def test_a_daemon_is_forked_where_there_is_a_server_and_else_begins_by_itself(
    bench: Bench, forked: bool
) -> None:
    (bench.here / "code" / "watchman.py").write_text(DAEMON)
    server = bench.start_server("watchman") if forked else None
    daemon = Daemon("watch", bench.state_dir)
    daemon.start_python(["watchman", "--by", "night"], bench.env)
    process = daemon.process()
    assert process is not None
    until(lambda: daemon.log.exists() and daemon.log.read_text() == f"--by night {bench.here}\n")
    assert (process.ppid() == server) == forked
    if server is not None:
        assert process.name() == "headway-watch"
        os.kill(server, signal.SIGKILL)
        until(lambda: gone(server))
    assert process.cmdline()[-3:] == ["watchman", "--by", "night"]
    assert daemon.stop(signal.SIGTERM, 10.0)


EARLIER = """
import fcntl, socket, time
lock = open("fork.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("fork.sock")
listener.listen()
time.sleep(600)
"""


def test_a_server_of_an_earlier_version_which_left_no_record_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PRELOAD", "_ON_A_NODE", "_OF_A_SITE"):
        monkeypatch.setattr(processes, name, ())
    settings = Settings(home=tmp_path)
    settings.state_dir.mkdir()
    daemon = fork_daemon(settings)
    with subprocess.Popen([sys.executable, "-c", EARLIER], cwd=settings.state_dir) as earlier:
        until(lambda: running_server(settings.state_dir) == earlier.pid)
        assert processes.start_forks(settings)
        until(lambda: gone(earlier.pid))
    until(lambda: daemon.process() is not None)
    assert not processes.start_forks(settings)
    assert daemon.stop(signal.SIGKILL, 10.0)


def test_a_server_that_somebody_connects_to_and_says_nothing_goes_on(bench: Bench) -> None:
    bench.start_server()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        directory = os.open(bench.state_dir, os.O_PATH)
        silent.connect(socket_address(directory))
        os.close(directory)
        assert bench.start("pass").end()[0] == 0


def test_a_stopped_server_is_known_as_such(bench: Bench) -> None:
    server = bench.start_server()  # it listens, and has perhaps not yet noted who it is
    until(lambda: Daemon("fork", bench.state_dir).process() is not None)
    os.kill(server, signal.SIGSTOP)
    until(lambda: "SIGSTOP" in Daemon("fork", bench.state_dir).frozen())


def test_a_server_with_threads_does_not_fork(bench: Bench) -> None:
    (bench.here / "code" / "busy.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True, name='busy').start()\n"
    )
    bench.start_server("busy")
    with pytest.raises(NotForked, match=r"left 2 threads running \(MainThread, busy\)"):
        bench.start("say('alone')")


def test_a_server_whose_directory_is_gone_ends(bench: Bench) -> None:
    server = bench.start_server()
    (bench.state_dir / "fork.sock").unlink()
    until(lambda: gone(server))


def test_a_lock_is_held_while_its_process_lives_and_no_longer(tmp_path: Path) -> None:
    start = f"import sys, time; sys.path.insert(0, {str(ROOT)!r})"
    script = f"{start}; from headway.node import flowlock;"
    script += f"fd = flowlock.lock_flow({str(tmp_path)!r}, 'a/b'); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", script])
    until(lambda: live_flow(tmp_path, "a/b") == holder.pid)
    assert lock_flow(tmp_path, "a/b") is None
    assert live_flow(tmp_path, "other") is None
    holder.kill()
    holder.wait()
    assert live_flow(tmp_path, "a/b") is None
    fd = lock_flow(tmp_path, "a/b")
    assert fd is not None
    os.close(fd)


def test_what_the_worker_preloads_has_the_engines_client_and_leaves_no_thread() -> None:
    """Else each run imports for itself, which takes it longer to start."""
    from headway.node.forkstart import PRELOAD, PRELOAD_ENV

    program = f"import os, sys\nfor name in {PRELOAD!r}: __import__(name)\n"
    program += "print(len(os.listdir('/proc/self/task')), 'docker' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=PRELOAD_ENV, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "True"]
