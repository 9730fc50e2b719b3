"""What `headway up` registers with the server, and when."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.admin import register as registering
from headway.admin.processes import StartFailed
from headway.node.daemon import Daemon
from headway.prefect.client import PrefectServer
from headway.settings import Settings


def test_what_somebody_deleted_is_registered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path)
    settings.state_dir.mkdir()
    there = True
    monkeypatch.setattr(registering, "_run", lambda *_: None)
    monkeypatch.setattr(PrefectServer, "has_all", lambda *_: there)
    done = [registering.register(settings, lambda _: None) for _ in range(2)]
    assert done == [True, False]
    there = False
    assert registering.register(settings, lambda _: None)


def test_a_registration_that_broke_off_is_told_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path)
    settings.state_dir.mkdir()
    (settings.state_dir / "register.done").touch()  # of the one before

    def register(daemon: Daemon, command: Sequence[str], _: object) -> None:
        Daemon.start(daemon, ["sh", "-c", f"echo {' '.join(command)}; {ending}"], {})

    monkeypatch.setattr(Daemon, "start_python", register)
    monkeypatch.setattr(registering, "_is_ours", lambda _: True)
    ending = "exit 1"
    with pytest.raises(StartFailed, match=r"blocks\.register.*register\.log"):
        registering.register(settings, lambda _: None)
    ending = f"touch {settings.state_dir}/register.done"
    assert registering.register(settings, lambda _: None)
