"""What the queue of Slurm says of jobs that are none of headway's."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.errors import EngineAway
from headway.engine.place import Place
from headway.engine.port import Request
from headway.engine.slurm import SlurmEngine

REQUEST = Request("r-1", "n", "p", ("true",), 1, 1)
OLD: Mapping[str, str] = {"SQUEUE_FORMAT": "%U\x1f%k\x1e"}


def told(env: Mapping[str, str], *jobs: tuple[int, str]) -> str:
    """What `squeue` answers of jobs of a user, by uid, with a comment."""
    columns, end = env["SQUEUE_FORMAT"].rpartition("%k")[::2]
    field = columns.rpartition("%U")[2]
    return "".join(
        field.join(
            (
                *(str(at), str(at), "N/A", "PENDING", "None", "N/A", "1:00", "", "N/A", "", ""),
                *("p", "0", "(null)", str(uid), comment),
            )
        )
        + f"{end}\n"
        for at, (uid, comment) in enumerate(jobs)
    )


def test_a_comment_that_holds_no_key_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, me = SlurmEngine(Place(tmp_path), "s", SystemClock()), os.geteuid()
    own = ((me, comment) for comment in ("headway:s:r-1", "headway:s:../r", "headway:s:", "mine"))
    jobs = *own, (me + 1, "headway:s:r-2")  # any user may write any comment
    monkeypatch.setattr(engine, "_ask", lambda *_, env: told(env, *jobs))
    assert list(engine._queue()) == ["r-1"]
    assert [job.key for job in engine.jobs()] == ["r-1"]


def test_a_comment_is_not_taken_for_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = SlurmEngine(Place(tmp_path), "s", SystemClock()), [OLD]

    def ask(*_: str, env: Mapping[str, str]) -> str:
        lines = [told(each, (os.geteuid(), "headway:s:r-1")) for each in asked]
        asked.append(env)
        return told(env, (os.geteuid() + 1, "".join(["x\n", *lines])))

    monkeypatch.setattr(engine, "_ask", ask)
    for _ in range(2):  # nor where it has seen how the last question was asked
        assert engine._queue() == {}


def test_limits_are_asked_for_of_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, me = SlurmEngine(Place(tmp_path), "s", SystemClock()), os.geteuid()
    asked: list[str] = []
    monkeypatch.setattr(engine, "_known_limits", lambda uid: asked.append(uid) or {})
    jobs = (me, "headway:s:r-1"), (me + 1, "headway:s:r-2")

    def ask(*_: str, env: Mapping[str, str]) -> str:
        return told(env, *jobs).replace("None", "QOSMaxJobsPerUserLimit")

    monkeypatch.setattr(engine, "_ask", ask)
    engine._queue()
    assert asked == [str(me)]


def test_a_format_of_whoever_started_it_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT2", "jobid")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    engine = SlurmEngine(Place(tmp_path), "s", SystemClock())
    envs: list[Mapping[str, str]] = []

    def ask(*_: str, env: Mapping[str, str]) -> str:
        envs.append(env)
        return ""

    monkeypatch.setattr(engine, "_ask", ask)
    engine._queue()
    assert {name for name in envs[0] if name.startswith("SQUEUE_")} == {"SQUEUE_FORMAT"}
    assert envs[0]["SLURM_CONF"] == "/etc/other.conf"


@pytest.mark.parametrize("claim", ["zzz", "0", "7.x", "8_[1", "99999999999"])
def test_a_word_that_names_no_job_keeps_no_other_from_being_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    """At its first one `scancel` ends before it cancels any."""
    place = Place(tmp_path / "place")
    engine = SlurmEngine(place, "s", SystemClock())
    with place.locked("r-1"):
        place.prepare(REQUEST, "")
    place.wrote("r-1").mkdir(exist_ok=True)
    (place.wrote("r-1") / "claim").write_text(claim)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(engine, "_ask", lambda *words, **_: asked.append(words) or "")
    engine.cancel([("r-1", 0)])
    assert asked == []
    place.note("r-1", "12_3")
    engine.cancel([("r-1", 0)])
    assert [words[-1] for words in asked] == ["12_3", "12_3"]
    assert not [words for words in asked if claim in words]


@pytest.mark.parametrize("said", ["", "-u root", "7 8", "../x;c"])
def test_what_sbatch_says_is_no_job_unless_it_is_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    engine = SlurmEngine(Place(tmp_path), "s", SystemClock())
    monkeypatch.setattr(engine, "_ask", lambda *_, **__: said)
    with pytest.raises(EngineAway, match="no number"):
        engine._submit(REQUEST, tmp_path / "job.sh", {})
    monkeypatch.setattr(engine, "_ask", lambda *_, **__: "7;cluster\n")
    assert engine._submit(REQUEST, tmp_path / "job.sh", {}) == "7"
