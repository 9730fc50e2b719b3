"""What `headway doctor` says of this machine."""

import os
from pathlib import Path
from sys import version_info
from types import SimpleNamespace

import pytest

from headway.admin import doctor
from headway.clock import SystemClock
from headway.settings import Settings
from headway.site import Site
from tests.support.postgresql import with_ledger

HERE = ".".join(map(str, version_info[:2]))


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
    assert doctor._base_images(site) == (
        True,
        f"this node's Python {version_info.major}.{version_info.minor}",
    )
    site.ledger.close()


@pytest.mark.parametrize(
    ("there", "why", "ok", "words"),
    [
        ({"3.12": "b:2"}, None, True, "b:2"),
        ({}, "", True, "none here yet; b:2 is at its registry"),
        ({}, "manifest unknown", False, "b:2 cannot be had: manifest unknown; pull or load one"),
        ({}, None, False, "b:2 cannot be had: no answer from its registry; pull or load one"),
    ],
)
def test_it_says_where_code_would_find_no_image_to_start_in(
    there: dict[str, str], why: str | None, ok: bool, words: str
) -> None:
    named = {"3.11": "b:1", "3.12": "b:2"}
    runtime = SimpleNamespace(pythons=lambda _: there, why_no_image=lambda _: why)
    policy = SimpleNamespace(base_images=named)
    found = doctor._base_images(SimpleNamespace(runtime=runtime, container_policy=policy))  # type: ignore[arg-type]
    assert found[0] is ok
    assert words in found[1]
