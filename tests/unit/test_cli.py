"""What every command does with an error."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headway.cli import headway
from headway.site import current_site


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    current_site.cache_clear()
    yield
    current_site.cache_clear()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HEADWAY_HOME", "{file}", '"{file}": File exists'),
        ("HEADWAY_LEDGER_URL", "pa55word", "HEADWAY_LEDGER_URL: got a hidden value; give an addr"),
        ("HEADWAY_LEDGER_URL", "mysql://u:pa55word@h/d", "HEADWAY_LEDGER_URL: got a hidden value"),
        ("HEADWAY_LEDGER_URL", "postgresql+none://u:pa55word@h/d", "HEADWAY_LEDGER_URL: got a hid"),
        ("HEADWAY_LEDGER_URL", "sqlite:///{file}/l.db", '"{file}": File exists'),
        ("PREFECT_API_URL", "http://[::1", 'PREFECT_API_URL: got "http://[::1"; give an address'),
    ],
)
def test_an_environment_that_cannot_be_used_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setenv(variable, value.format(file=path))
    command = "runs" if variable == "PREFECT_API_URL" else "nodes"
    got = CliRunner().invoke(headway, [command])
    assert (got.exit_code, got.stdout) == (2, ""), got
    (line,) = got.stderr.splitlines()
    assert line.startswith(said.format(file=path))
    assert "pa55word" not in line


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PermissionError(13, "Permission denied", "/a"), 2),
        (OSError(28, "No space left on device"), 2),
        (ConnectionRefusedError(111, "Connection refused"), 3),
        (TimeoutError("timed out"), 3),
        (BrokenPipeError(32, "Broken pipe"), 1),
    ],
)
def test_an_error_of_the_operating_system_is_a_line(error: OSError, status: int) -> None:
    @click.command()
    def failing() -> None:
        raise error

    group = type(headway)(commands=[failing])
    got = CliRunner().invoke(group, ["failing"])
    assert got.exit_code == status
    assert len(got.stderr.splitlines()) == (0 if isinstance(error, BrokenPipeError) else 1)
    assert isinstance(got.exception, SystemExit)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["estimators", "evaluate", "--seed", "-1"], "-1 is not in the range"),
        (["runs", "--limit", "0"], "0 is not in the range"),
    ],
)
def test_a_number_out_of_its_range_is_refused(command: list[str], said: str) -> None:
    got = CliRunner().invoke(headway, command)
    assert got.exit_code == 2
    assert said in got.stderr
