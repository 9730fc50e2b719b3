"""`headway doctor --report`, on a ledger of its own: what it holds, and what it must not."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.admin.bug_report import without_secrets
from headway.cli.main import headway
from headway.ledger import Ledger
from headway.site import POLICY
from tests.support.postgresql import new_ledger
from tests.support.site import forget_site


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home, url = tmp_path / "home", new_ledger()
    monkeypatch.setenv("HEADWAY_HOME", str(home))
    monkeypatch.setenv("HEADWAY_LEDGER_URL", url)
    (home / "state").mkdir(parents=True, mode=0o700)
    opened = Ledger.open(url)
    opened.settings.put(POLICY, {"environment": {"HTTPS_PROXY": "http://u:planted-1@proxy:1"}})
    opened.close()
    forget_site()
    yield home
    forget_site()


def report(file: Path) -> dict[str, str]:
    done = CliRunner().invoke(headway, ["doctor", "--report", str(file)])
    assert done.exit_code == 0, done.output
    with tarfile.open(file) as tar:
        found = {each.name: tar.extractfile(each).read().decode() for each in tar.getmembers()}  # type: ignore[union-attr]
    assert all(name.removeprefix("headway-report/") in done.output for name in found)
    return found


def test_it_holds_what_is_needed_and_none_of_the_secrets_planted(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "auth").write_text("headway:planted-2\n")
    (home / "auth").chmod(0o600)
    (home / "gateway.key").write_text("-----BEGIN PRIVATE KEY-----\nplanted-3-line\n-----END\n")
    (home / "gateway.key").chmod(0o600)
    monkeypatch.setenv("HEADWAY_REDIS_URL", "redis://:planted-4@127.0.0.1:6379/0")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "headway:planted-5")
    (home / "state/worker.log").write_text(
        "it began\nheadway:planted-2 and planted-2 alone\nplanted-3-line\nredis planted-4\n"
        "planted-5\npostgresql://a:planted-6@db/x\nAuthorization: Bearer planted-7\n"
        'token = \'planted-8\'\nhwt_planted9\n{"password": "planted-10"}\nit ended\n'
    )
    found = report(tmp_path / "report.tar.gz")
    assert {name.removeprefix("headway-report/") for name in found} == {
        "about.json", "doctor.json", "invariants.json", "settings.json", "site.json",
        "logs/worker.log",
    }  # fmt: skip
    assert "planted" not in "".join(found.values())
    log = found["headway-report/logs/worker.log"]
    assert (log.startswith("it began\n"), log.endswith("it ended\n")) == (True, True)
    assert json.loads(found["headway-report/about.json"])["schema"]
    settings = json.loads(found["headway-report/settings.json"])
    assert "HEADWAY_REDIS_URL" in {each["setting"] for each in settings}
    assert (tmp_path / "report.tar.gz").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_asked_is_told_with_its_cause(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_LEDGER_URL", "postgresql://u:planted@127.0.0.1:1/none")
    forget_site()
    found = report(tmp_path / "report.tar.gz")
    assert "not known" in json.loads(found["headway-report/site.json"])
    assert "planted" not in "".join(found.values())


def test_a_file_that_is_there_stays(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    file.write_text("mine")
    done = CliRunner().invoke(headway, ["doctor", "--report", str(file)])
    assert (done.exit_code, file.read_text()) == (2, "mine")
    assert "name a new file" in done.output


def test_only_the_end_of_a_long_log_is_taken(home: Path, tmp_path: Path) -> None:
    (home / "state/server.log").write_text("first\n" + "x" * 99 + "\n" + "line\n" * 200_000)
    log = report(tmp_path / "report.tar.gz")["headway-report/logs/server.log"]
    assert set(log.splitlines()) == {"line"}


@pytest.mark.parametrize(
    "text", ["tokens: 5 of 9", "12:00 node-1 ready", "http://127.0.0.1:4200/api"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text.encode(), []) == text
