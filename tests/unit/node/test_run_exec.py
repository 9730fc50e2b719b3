"""Where no command is started beside a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import ExecRefused
from headway.model.run import RunState
from headway.node.run_ports import RunExec
from headway.run.here import container_name


def test_none_runs_where_an_environment_is_made(tmp_path: Path) -> None:
    """It would have the maker's user, and write what team mates' programs start in."""
    started: list[str] = []
    ledger = SimpleNamespace(
        leases=SimpleNamespace(of_run=lambda _: SimpleNamespace(node="here", attempt=2)),
        runs=SimpleNamespace(get=lambda _: SimpleNamespace(state=RunState.RUNNING)),
    )
    site: Any = SimpleNamespace(
        ledger=ledger,
        settings=SimpleNamespace(node="here", environments_dir=tmp_path),
        runtime=SimpleNamespace(execute=lambda name, _: started.append(name)),
    )
    folder = tmp_path / "vision" / "hash"
    folder.mkdir(parents=True)
    note = folder / f"making-{container_name('r', 2)}"
    note.touch()
    command: Any = None
    with pytest.raises(ExecRefused, match="its environment is being made"):
        RunExec(site)._begun("r", command)
    note.unlink()
    RunExec(site)._begun("r", command)
    assert started == [container_name("r", 2)]
