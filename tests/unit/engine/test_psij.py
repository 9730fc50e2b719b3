"""The commands of schedulers that PSI/J runs: what they are given, and how many they are."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.clock import SystemClock
from headway.engine.errors import EngineAway
from headway.engine.place import Place
from headway.engine.port import Phase, Request
from headway.engine.psij import PsijEngine
from headway.model.engine import EnginePool

pytest.importorskip("psij", reason="installed with the next `make`: it is in the lock files")

REQUEST = Request("r-1", "r-1", "q", ("true",), 1, 1)


def engine(root: Path, kind: str) -> PsijEngine:
    return PsijEngine(Place(root), "s", SystemClock(), kind=kind, pools=[])


def command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_its_commands_have_nothing_of_the_sites(
    tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "secret")
    monkeypatch.setenv("LSF_ENVDIR", "/etc/lsf")
    command(commands, "bsub", f"env > {tmp_path}/env; echo 'Job <12> is submitted.'")
    assert engine(tmp_path / "site", "lsf").submit(REQUEST).engine_id == "12"
    given = (tmp_path / "env").read_text().splitlines()
    assert {"LSF_ENVDIR=/etc/lsf", "LSB_BSUB_PARSE_SCRIPT=Y"} <= set(given)
    assert not [line for line in given if "secret" in line]


def test_who_names_no_limit_has_its_grace_within_the_queues_own(
    tmp_path: Path, commands: Path
) -> None:
    command(commands, "bsub", "echo 'Job <12> is submitted.'")
    pool = EnginePool("q", (), max_time_s=3600.0)
    found = PsijEngine(Place(tmp_path / "site"), "s", SystemClock(), kind="lsf", pools=[pool])
    found.submit(REQUEST)
    asked = json.loads((tmp_path / "site/r-1/request.json").read_text())
    assert asked["time_limit_s"] == 3600.0 - asked["grace_s"] - 120.0
    found.submit(replace(REQUEST, key="r-2", time_limit_s=60.0))
    assert json.loads((tmp_path / "site/r-2/request.json").read_text())["time_limit_s"] == 60.0


def test_a_question_takes_no_more_than_thirty_commands(tmp_path: Path, commands: Path) -> None:
    """Of the others nothing is known; those that are gone are told, so the next one knows more."""
    command(commands, "qstat", f"echo >> {tmp_path}/count; echo qstat: Unknown Job Id; exit 153")
    found = engine(tmp_path / "site", "pbs")._ask([f"{number}.head" for number in range(100)])
    assert len((tmp_path / "count").read_text()) == 30
    assert {seen.phase for seen in found.values()} == {Phase.UNKNOWN}
    assert 50 < len(found) < 100


def test_a_job_without_a_name_was_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = engine(tmp_path, "local")
    silent = SimpleNamespace(submit=lambda _: None)
    monkeypatch.setattr(found, "_executor", silent)
    with pytest.raises(EngineAway, match="no name"):
        found.submit(REQUEST)


def test_what_is_forgotten_is_not_kept(tmp_path: Path) -> None:
    found = engine(tmp_path, "local")
    with found._place.locked("r-1"):
        found._place.prepare(REQUEST, "")
    found._place.note("r-1", "7")
    found._attached["7"] = object()
    found.forget("r-1")
    assert not found._attached
