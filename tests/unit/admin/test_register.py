"""What `headway up` registers with the server, and when."""

from pathlib import Path

import pytest

from headway.admin import register as registering
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
