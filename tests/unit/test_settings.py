from pathlib import Path

import pytest
from pydantic import SecretStr

from headway.errors import InvalidInput
from headway.settings import Settings, read_settings


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("HEADWAY_PORT", "9", "input should be greater than or equal to 1024"),
        ("HEADWAY_PORT", "http", "valid integer"),
        ("HEADWAY_RUNTIME", "podman", "'auto', 'docker' or 'process'"),
        ("HEADWAY_CONTAINER_USER", "root", "pattern"),
    ],
)
def test_a_wrong_variable_is_named_in_one_line(monkeypatch, name, value, allowed):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=f"environment {name}: got") as caught:
        read_settings()
    assert allowed in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_home_is_the_same_for_all_processes_wherever_they_begin(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert Settings(home=Path("site")).home == tmp_path / "site"
    assert Settings(home=Path("~/site")).home == tmp_path / "ada/site"


def test_the_services_that_no_container_may_reach(tmp_path: Path) -> None:
    here = Settings(home=tmp_path)
    assert here.services == (("127.0.0.1", 4200),)
    broken = SecretStr("postgresql://[/headway")
    assert Settings(home=tmp_path, server_url="::::", ledger_url=broken).services == ()
    far = Settings(
        home=tmp_path,
        server_url="https://head.example.org/api",
        ledger_url=SecretStr("postgresql+psycopg://headway:a%40b@db.example.org/headway"),
        server_database_url=SecretStr("postgresql://u@[2001:db8::1]:6543/prefect"),
    )
    assert far.services == (
        ("head.example.org", 443), ("db.example.org", 5432), ("2001:db8::1", 6543)
    )  # fmt: skip
