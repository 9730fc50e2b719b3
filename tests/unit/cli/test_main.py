"""What every command does with an error."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headway.cli import inputs
from headway.cli.main import headway
from headway.errors import HeadwayError
from tests.support.postgresql import with_ledger
from tests.support.site import forget_site


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    forget_site()
    yield
    forget_site()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HEADWAY_LEDGER_URL", "pa55word", "HEADWAY_LEDGER_URL: got a hidden value; give an addr"),
        ("HEADWAY_LEDGER_URL", "mysql://u:pa55word@h/d", "HEADWAY_LEDGER_URL: got a hidden value"),
        ("HEADWAY_LEDGER_URL", "postgresql://u:pa55word@h:port/d", "HEADWAY_LEDGER_URL: got a hid"),
        ("HEADWAY_LEDGER_URL", "postgresql+none://u:pa55word@h/d", "HEADWAY_LEDGER_URL: got a hid"),
        ("PREFECT_API_URL", "http://[::1", 'PREFECT_API_URL: got "http://[::1"; give an address'),
    ],
)
def test_an_environment_that_cannot_be_used_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setenv(variable, value.format(file=path))
    command = ["doctor"] if variable == "PREFECT_API_URL" else ["user", "list"]
    got = CliRunner().invoke(headway, command)
    assert (got.exit_code, got.stdout) == (2, ""), got
    (line,) = got.stderr.splitlines()
    assert line.startswith(said.format(file=path))
    assert "pa55word" not in line


def test_a_home_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setenv("HEADWAY_HOME", str(path))
    got = CliRunner().invoke(headway, ["traces", "import", "-"], input="network,gpu_type\n")
    assert got.exit_code == 2
    got = CliRunner().invoke(headway, ["up"])
    assert (got.exit_code, got.stdout) == (2, "")
    assert got.stderr.startswith(f'environment HEADWAY_HOME: got "{path}"; it is no directory')


@pytest.mark.parametrize("command", [["traces", "export"], ["user", "list"]])
def test_without_a_ledger_nothing_is_said_to_be_empty(tmp_path: Path, command: list[str]) -> None:
    """`queue` said that nobody waits, and left an empty ledger behind."""
    got = CliRunner().invoke(headway, command)
    assert (got.exit_code, got.stdout) == (3, "")
    (line,) = got.stderr.splitlines()
    assert line.startswith(f"there is no ledger at {tmp_path / 'home'}, and this")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("command", ["queue", "nodes", "runs", "top --once", "logs x", "cancel x"])
def test_without_a_gateway_nothing_is_said_to_be_empty_either(tmp_path: Path, command: str) -> None:
    got = CliRunner().invoke(headway, command.split())
    assert (got.exit_code, got.stdout) == (3, "")
    (line,) = got.stderr.splitlines()
    assert line.startswith("no token is known here for the gateway at http://127.0.0.1:4280, so")
    assert not (tmp_path / "home").exists()


def test_a_gateway_that_is_away_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADWAY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HEADWAY_TOKEN", "hwt_x")
    got = CliRunner().invoke(headway, ["cancel", "x"])
    assert (got.exit_code, got.stdout) == (3, "")
    in_prefect, away = got.stderr.splitlines()
    assert "prefect flow-run cancel" in in_prefect
    assert away.startswith("no gateway answers at http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("command", "given", "status", "said"),
    [
        (["estimate", "-"], "name: t\nimage: x\n", 2, "-:1 command: got nothing"),
        (["submit", "-"], "name: t\nimage: x\n", 2, "-:1 command: got nothing"),
        (["replay", "-", "--nodes", "1", "--gpus", "1"], "gpus\n0\n", 2, "-:1 columns: got"),
        (["traces", "import", "-"], "gpus\n0\n", 2, "-:1 columns: got"),
        (["progress", "parse", "-"], "{'loss': 0.5, 'epoch': 1.0}\n", 0, "1 points in -"),
        (["estimators", "evaluate", "--traces", "-"], "gpus\n0\n", 2, "-:1 columns: got"),
    ],
)
def test_standard_input_is_a_file_everywhere(
    command: list[str], given: str, status: int, said: str
) -> None:
    got = CliRunner().invoke(headway, command, input=given)
    assert got.exit_code == status, got.output
    assert said in got.output


@pytest.mark.parametrize("machine", [[], ["--json"]])
def test_traces_without_a_good_row_are_bad_input(machine: list[str], tmp_path: Path) -> None:
    with_ledger(tmp_path / "home")
    header, bad = "network,gpu_type,gpus,batch_size,iteration_s\n", "a,v100,-1,2,0.1\n"
    got = CliRunner().invoke(headway, ["traces", "import", "-", *machine], input=header + bad)
    assert got.exit_code == 2, got.output
    assert "gpus" in got.output
    got = CliRunner().invoke(
        headway, ["estimators", "evaluate", "--traces", "-"], input=header + bad
    )
    assert got.exit_code == 2
    assert "rows: got 1; give one good row at least" in got.stderr
    both = header + bad + "a,v100,1,2,0.1\n"
    assert (
        CliRunner().invoke(headway, ["traces", "import", "-", *machine], input=both).exit_code == 0
    )


@pytest.mark.parametrize("server", ["::::", "http://", "head:4200/api", "\x1b[2J"])
def test_an_address_that_is_none_is_one_line(server: str) -> None:
    command = ["node", "join", "--server", server, "--ledger", "postgresql://"]
    got = CliRunner().invoke(headway, command)
    assert (got.exit_code, got.stdout) == (2, ""), got
    (line,) = got.stderr.splitlines()
    assert line.startswith("server: got ")
    assert "give an address such as http://head:4200/api" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    "error", [HeadwayError("a\x1b[2Jb\nc\u202ed"), OSError(5, "a\x1b[2Jb\nc\u202ed")]
)
def test_an_error_does_not_steer_the_terminal(error: Exception) -> None:
    @click.command()
    def failing() -> None:
        raise error

    got = CliRunner().invoke(type(headway)(commands=[failing]), ["failing"])
    assert got.stderr == "a\\x1b[2Jb\\nc\\u202ed\n"


def test_an_argument_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    with_ledger(tmp_path / "home")
    got = CliRunner().invoke(headway, ["profile", "\udcff"])
    assert (got.exit_code, len(got.stderr.splitlines())) == (2, 1), got
    assert "no run that this command takes is called" in got.stderr


@pytest.mark.parametrize("command", [["estimate"], ["submit"], ["traces", "import"]])
def test_no_input_is_read_without_end(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr(inputs, "LARGEST_FILE_BYTES", 1 << 20)
    got = CliRunner().invoke(headway, [*command, "/dev/zero"])
    assert got.exit_code == 2
    assert "give at most" in got.stderr


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
        (["runs", "--limit", "0"], "0 is not in the range"),
        (["estimate", __file__, "--budget", "nan"], "nan is not a finite number"),
        (["estimate", __file__, "--budget", "inf"], "inf is not a finite number"),
    ],
)
def test_a_number_that_is_none_or_out_of_its_range_is_refused(
    command: list[str], said: str
) -> None:
    got = CliRunner().invoke(headway, command)
    assert got.exit_code == 2
    assert said in got.stderr


def test_the_help_of_a_command_loads_nothing_that_takes_long() -> None:
    """Of some it took a second and more: what a command works with is imported as it works."""
    code = (
        "import sys; from headway.cli.main import headway as all_;"
        "[each.load() for each in all_.commands.values()];"
        "print({'sqlalchemy', 'numpy', 'httpx', 'rich', 'prefect', 'fastapi'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"
