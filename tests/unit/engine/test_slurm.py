"""What the queue of Slurm says of jobs that are none of headway's."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.place import Place
from headway.engine.slurm import SlurmEngine

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
