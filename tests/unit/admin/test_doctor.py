"""What `headway doctor` says of this machine."""

import os
from pathlib import Path

import pytest

from headway.admin import doctor
from headway.clock import SystemClock
from headway.settings import Settings
from headway.site import Site
from tests.support.postgresql import with_ledger


def test_a_home_that_cannot_be_written_is_not_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be written" not in doctor._disk(tmp_path / "home")[1]
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a disk that is read-only now
    ok, said = doctor._disk(tmp_path / "home")
    assert (ok, f"{tmp_path} cannot be written to" in said) == (False, True)


def test_programs_that_are_to_be_processes_are_so_for_no_lack_of_an_engine(tmp_path: Path) -> None:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    site.make_ledger()
    assert doctor._runtime(site)[1].startswith("process (as HEADWAY_RUNTIME says)")
    site.ledger.close()
