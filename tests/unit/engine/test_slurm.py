"""What the queue of Slurm says of jobs that are none of headway's."""

from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.place import Place
from headway.engine.slurm import SlurmEngine


def test_a_comment_that_holds_no_key_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SlurmEngine(Place(tmp_path), "s", SystemClock())
    lines = [
        "\x1f".join(
            (
                str(at),
                str(at),
                "N/A",
                "PENDING",
                "None",
                "N/A",
                "1:00",
                "",
                "N/A",
                "",
                "",
                "p",
                "0",
                "(null)",
                comment,
            )
        )
        for at, comment in enumerate(["headway:s:r-1", "headway:s:../r", "headway:s:", "mine"])
    ]
    monkeypatch.setattr(engine, "_ask", lambda *_: "\x1e\n".join([*lines, ""]))
    assert list(engine._queue()) == ["r-1"]
    assert [job.key for job in engine.jobs()] == ["r-1"]
