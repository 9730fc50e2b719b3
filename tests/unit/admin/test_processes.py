"""What `headway up` does with a server that runs already."""

import stat
from pathlib import Path
from typing import Any, Self

import pytest

from headway.admin import processes
from headway.prefect.auth import CLIENT, SERVER
from headway.settings import Settings
from tests.ports.clock import FakeClock


class Machine:
    """Its daemons, and the server that answers: with the string it was started with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, alive: set[str], secret: str | None):
        self.alive = alive
        self.secret = secret
        self.done: list[str] = []
        machine = self

        class Server:
            def __init__(self, _url: str, *, auth: str | None, **_: Any) -> None:
                self.auth = auth

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None: ...

            def is_healthy(self) -> bool:
                return "server" in machine.alive

            def accepts(self) -> bool:
                return machine.secret is not None and machine.secret == self.auth

        def stop(daemon: processes.Daemon, *_: object) -> bool:
            machine.done.append(f"stop {daemon.name}")
            machine.alive.discard(daemon.name)
            return True

        def start(daemon: processes.Daemon, command: list[str], env: dict[str, str]) -> None:
            machine.done.append(f"start {daemon.name}")
            machine.alive.add(daemon.name)
            machine.secret = env[SERVER]
            assert not any(env[SERVER] in word for word in command)

        monkeypatch.setattr(processes, "PrefectServer", Server)
        monkeypatch.setattr(
            processes.Daemon, "process", lambda d: d if d.name in machine.alive else None
        )
        monkeypatch.setattr(processes.Daemon, "frozen", lambda _: "")
        monkeypatch.setattr(processes.Daemon, "stop", stop)
        monkeypatch.setattr(processes.Daemon, "start", start)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in (CLIENT, SERVER):
        monkeypatch.delenv(name, raising=False)
    return Settings(home=tmp_path, port=4999)


def test_a_home_of_before_gets_its_string_at_the_next_up(settings, monkeypatch) -> None:
    machine = Machine(monkeypatch, alive={"server", "worker"}, secret=None)
    assert processes.start_prefect(settings, FakeClock(), lambda _: None)
    assert machine.done == ["stop worker", "stop server", "start server"]
    assert stat.S_IMODE(settings.auth_file.stat().st_mode) == 0o600
    assert machine.secret == settings.auth_file.read_text().strip()


def test_a_server_with_the_sites_string_goes_on(settings, monkeypatch) -> None:
    machine = Machine(monkeypatch, alive=set(), secret=None)
    assert processes.start_prefect(settings, FakeClock(), lambda _: None)
    machine.done.clear()
    assert not processes.start_prefect(settings, FakeClock(), lambda _: None)
    assert machine.done == []
    monkeypatch.setenv(SERVER, "admin:another")
    assert processes.start_prefect(settings, FakeClock(), lambda _: None)
    assert machine.done == ["stop worker", "stop server", "start server"]
    assert machine.secret == "admin:another"
