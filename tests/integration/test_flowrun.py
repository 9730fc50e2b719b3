"""The stub and the fork server by themselves: real processes, a tiny engine, no Prefect."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from headway.node.flowrun import FENCED, live_flow, lock_flow
from headway.node.forkstart import running_server, start_server, stub_command

ROOT = Path(__file__).parents[2]
ENGINE = """
import os, signal, sys, time, pathlib
here = pathlib.Path(os.environ["HERE"])
(here / f"{os.environ['PREFECT__FLOW_RUN_ID']}.began").write_text(str(os.getpid()))
exec(os.environ["DO"])
"""


class Bench:
    """A state directory, an engine that does what `DO` says, and the stubs started so far."""

    def __init__(self, here: Path) -> None:
        self.here = here
        # Deeper than a socket address may be long.
        self.state_dir = here / ("deep" * 30) / "state"
        package = here / "code" / "prefect"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "engine.py").write_text(ENGINE)
        self.env = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",  # else the interpreter itself adds LC_CTYPE
            "PYTHONPATH": f"{here / 'code'}{os.pathsep}{ROOT}",
            "HERE": str(here),
        }
        self.stubs: list[subprocess.Popen[str]] = []

    def start_server(self, *preload: str) -> int:
        return start_server(self.state_dir, preload, self.env)

    def start(self, do: str, run_id: str | None = None, **options: object) -> "Run":
        run_id = run_id or str(uuid4())
        env = {**self.env, "DO": do, "PREFECT__FLOW_RUN_ID": run_id}
        stub = subprocess.Popen(
            stub_command(self.state_dir).split(),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        self.stubs.append(stub)
        return Run(self, run_id, stub)

    def close(self) -> None:
        for path in (self.state_dir / "flows").glob("*.lock"):
            if (pid := live_flow(self.state_dir, path.stem)) is not None:
                os.kill(pid, signal.SIGKILL)
        for stub in self.stubs:
            stub.kill()
            stub.communicate()
        if (pid := running_server(self.state_dir)) is not None:
            os.kill(pid, signal.SIGKILL)


class Run:
    def __init__(self, bench: Bench, run_id: str, stub: "subprocess.Popen[str]") -> None:
        self.bench, self.id, self.stub = bench, run_id, stub

    def end(self) -> tuple[int, str, str]:
        out, err = self.stub.communicate(timeout=60)
        return self.stub.returncode, out, err

    def pid(self) -> int:
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
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.mark.parametrize(
    ("do", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a message')", 1),
        ("1 / 0", 1),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_the_stub_ends_as_the_flow_process_ends(bench: Bench, do: str, status: int) -> None:
    bench.start_server()
    assert bench.start(do).end()[0] == status


@pytest.mark.parametrize(
    ("do", "status"), [("pass", 0), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 15)", -9)]
)
def test_without_its_server_the_status_is_what_the_process_noted(
    bench: Bench, do: str, status: int
) -> None:
    server = bench.start_server()
    run = bench.start(f"while not (here / 'go').exists(): time.sleep(0.01)\n{do}")
    run.pid()
    os.kill(server, signal.SIGKILL)
    until(lambda: gone(server))
    (bench.here / "go").touch()
    assert run.end()[0] == status


def test_the_flow_process_has_what_the_stub_was_given(bench: Bench, tmp_path: Path) -> None:
    server = bench.start_server()
    work = tmp_path / "work"
    work.mkdir()
    run = bench.start(
        "print(os.getcwd(), os.getsid(0) == os.getpid(), os.getppid(), oct(os.umask(0)));"
        "print(sys.path[0], sys.argv[1:], sorted(os.environ));"
        "print('to stderr', file=sys.stderr)",
        cwd=work,
        umask=0o027,
    )
    status, out, err = run.end()
    assert (status, err) == (0, "to stderr\n")
    names = sorted([*bench.env, "DO", "PREFECT__FLOW_RUN_ID"])
    assert out == f"{work} True {server} 0o27\n{work} [] {names}\n"


def test_signals_ignored_by_whoever_started_the_server_work_in_the_flow(bench: Bench) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        bench.start_server()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run = bench.start("time.sleep(30)")
    run.pid()
    run.stub.send_signal(signal.SIGINT)
    assert run.end()[0] == -signal.SIGINT


def test_sigterm_is_passed_on_and_the_flow_may_finish(bench: Bench) -> None:
    bench.start_server()
    run = bench.start(
        "signal.signal(15, lambda *_: (print('asked'), sys.exit(4)));"
        "print('ready', flush=True); time.sleep(30)"
    )
    assert run.stub.stdout is not None
    assert run.stub.stdout.readline() == "ready\n"
    run.stub.terminate()
    assert run.end()[:2] == (4, "asked\n")


def test_a_stub_killed_alone_leaves_the_flow(bench: Bench) -> None:
    bench.start_server()
    run = bench.start("time.sleep(30)")
    pid = run.pid()
    run.stub.kill()
    time.sleep(0.3)
    assert live_flow(bench.state_dir, run.id) == pid


def test_a_stub_killed_after_it_was_asked_to_stop_takes_the_flow_along(bench: Bench) -> None:
    bench.start_server()
    run = bench.start(
        "signal.signal(15, lambda *_: print('asked', flush=True));"
        "print('deaf', flush=True); time.sleep(30)"
    )
    pid = run.pid()
    assert run.stub.stdout is not None
    assert run.stub.stdout.readline() == "deaf\n"
    run.stub.terminate()
    assert run.stub.stdout.readline() == "asked\n"
    assert live_flow(bench.state_dir, run.id) == pid
    run.stub.kill()
    until(lambda: gone(pid))


def test_a_run_is_never_started_twice(bench: Bench) -> None:
    server = bench.start_server()
    first = bench.start("time.sleep(30)")
    pid = first.pid()
    status, _, err = bench.start("print('twice')", run_id=first.id).end()
    assert (status, first.pid()) == (FENCED, pid)
    assert "already has a live process" in err
    os.kill(server, signal.SIGKILL)
    status, out, _ = bench.start("print('twice')", run_id=first.id).end()  # by itself, too
    assert (status, out) == (FENCED, "")
    os.kill(pid, signal.SIGKILL)
    until(lambda: live_flow(bench.state_dir, first.id) is None)
    assert bench.start("print('again')", run_id=first.id).end()[:2] == (0, "again\n")


def test_ten_stubs_of_one_run_start_it_once(bench: Bench) -> None:
    bench.start_server()
    runs = [bench.start("time.sleep(2)", run_id="one") for _ in range(10)]
    assert sorted(run.end()[0] for run in runs) == [0, *[FENCED] * 9]


def test_without_a_server_the_stub_is_the_engine(bench: Bench) -> None:
    run = bench.start("print(os.getpid()); sys.exit(5)")
    status, out, err = run.end()
    assert (status, int(out)) == (5, run.stub.pid)
    assert "no fork server answers" in err


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
    show = "import rules; time.sleep({}); print(rules.VERSION)"
    assert bench.start(show.format(0)).end()[1] == "one\n"
    long = bench.start("import rules; print(rules.VERSION); time.sleep(3); sys.exit(6)")
    long.pid()
    module.write_text("VERSION = 'two, longer'\n")
    assert bench.start(show.format(0)).end()[:2] == (0, "two, longer\n")
    assert running_server(bench.state_dir) not in {old, None}
    assert long.end()[:2] == (6, "one\n")
    until(lambda: gone(old))


def test_a_module_that_cannot_be_imported_is_left_to_the_flow(bench: Bench) -> None:
    (bench.here / "code" / "broken.py").write_text("raise OSError('broken')\n")
    bench.start_server("broken")
    status, _, err = bench.start("import broken").end()
    assert status == 1
    assert "OSError: broken" in err
    assert "no fork server" not in err


def test_a_server_with_threads_does_not_fork(bench: Bench) -> None:
    (bench.here / "code" / "busy.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True, name='busy').start()\n"
    )
    bench.start_server("busy")
    status, out, err = bench.start("print('alone')").end()
    assert (status, out) == (0, "alone\n")
    assert "left 2 threads running (MainThread, busy)" in err


def test_a_server_whose_directory_is_gone_ends(bench: Bench) -> None:
    server = bench.start_server()
    (bench.state_dir / "fork.sock").unlink()
    until(lambda: gone(server))


def test_a_lock_is_held_while_its_process_lives_and_no_longer(tmp_path: Path) -> None:
    start = f"import sys, time; sys.path.insert(0, {str(ROOT)!r})"
    script = f"{start}; from headway.node.flowrun import *;"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{script} lock_flow({str(tmp_path)!r}, 'a/b'); time.sleep(60)"]
    )
    until(lambda: live_flow(tmp_path, "a/b") == holder.pid)
    assert lock_flow(str(tmp_path), "a/b") is None
    assert live_flow(tmp_path, "other") is None
    holder.kill()
    holder.wait()
    assert live_flow(tmp_path, "a/b") is None
    fd = lock_flow(str(tmp_path), "a/b")
    assert fd is not None
    os.close(fd)
