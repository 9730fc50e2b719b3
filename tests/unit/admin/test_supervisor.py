"""What is there and gives no answer is killed, and started again."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.admin import processes, supervisor
from headway.admin.supervisor import Kept, keep
from headway.ledger import hosting
from headway.node.daemon import Daemon
from headway.settings import Settings
from tests.ports.clock import FakeClock


@pytest.fixture
def deaf() -> Iterator[int]:
    """Port of what takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_what_takes_connections_and_answers_nothing_hangs(
    deaf: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_ANSWER_S", 0.2)
    assert processes.server_hangs(Settings(home=tmp_path, port=deaf))
    assert not processes.server_hangs(Settings(home=tmp_path, port=1024))  # it may be starting
    monkeypatch.setattr(hosting, "_CONNECT_S", 1)
    with socket.socket(socket.AF_UNIX) as place:
        place.bind(str(tmp_path / ".s.PGSQL.5432"))
        url = hosting.socket_url(str(tmp_path), "secret")
        assert not hosting.hangs(url)
        place.listen()
        assert hosting.hangs(url)


def test_one_that_gives_no_answer_for_long_is_killed_and_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, leave, done = FakeClock(), threading.Event(), list[str]()
    daemon, alive = Daemon("gateway", tmp_path), [True]
    monkeypatch.setattr(Daemon, "process", lambda _: object() if alive else None)
    monkeypatch.setattr(Daemon, "frozen", lambda _: "")

    def stop(_: Daemon, *__: object) -> bool:
        done.append(f"killed after {clock.monotonic_s() - begun_s:.0f} s")
        alive.clear()
        return True

    def start() -> None:
        done.append("started")
        alive.append(True)

    def wait(seconds: float) -> bool:
        clock.sleep(seconds)
        return clock.monotonic_s() - begun_s > 400.0

    monkeypatch.setattr(Daemon, "stop", stop)
    monkeypatch.setattr(leave, "wait", wait)
    begun_s = clock.monotonic_s()
    late = iter([True, False])  # once is no reason
    keep(Kept(daemon, start, lambda: next(late, not done)), clock, leave)
    assert done == [f"killed after {30 + supervisor._HUNG_S:.0f} s", "started"]
