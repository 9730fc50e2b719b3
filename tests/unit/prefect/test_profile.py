"""The Prefect profile that `headway up` writes, in a process of its own as there."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from headway.admin.environment import prefect_command
from headway.admin.register import write_profile
from headway.prefect.auth import have_auth
from headway.settings import Settings

PROBE = "import json, prefect.settings as s; print(json.dumps([s.PREFECT_API_URL.value(), s.PREFECT_API_AUTH_STRING.value()]))"  # noqa: E501


class Person:
    """Somebody with a folder of Prefect's."""

    def __init__(self, home: Path, monkeypatch: Any) -> None:
        self.file = home / "profiles.toml"
        monkeypatch.setenv("PREFECT_HOME", str(home))

    def up(self, settings: Settings) -> str:
        settings.state_dir.mkdir(parents=True)
        have_auth(settings)
        said: list[str] = []
        write_profile(settings, said.append)
        assert said == []
        return prefect_command(settings)

    def profiles(self) -> dict[str, Any]:
        return tomllib.loads(self.file.read_text())


def test_sites_do_not_clash_and_what_a_person_has_stays(tmp_path: Path, monkeypatch) -> None:
    person = Person(tmp_path / "p", monkeypatch)
    first = Settings(home=tmp_path / "1")
    assert person.up(first) == "prefect"
    assert person.file.stat().st_mode & 0o077 == 0
    probe = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=True)
    assert json.loads(probe.stdout) == [first.api_url, have_auth(first)]
    second = Settings(home=tmp_path / "2", port=4300)
    assert person.up(second) == "prefect --profile headway-4300"
    found = person.profiles()
    assert found["active"] == "headway"
    assert found["profiles"]["headway"]["PREFECT_API_URL"] == first.api_url
    assert found["profiles"]["headway-4300"] == {
        "PREFECT_API_URL": second.api_url,
        "PREFECT_API_AUTH_STRING": have_auth(second),
    }
    # A site that is made anew at the same place takes its profile over.
    again = Settings(home=tmp_path / "3")
    assert person.up(again) == "prefect"
    assert set(person.profiles()["profiles"]) == {"headway", "headway-4300"}
    assert person.profiles()["profiles"]["headway"]["PREFECT_API_AUTH_STRING"] == have_auth(again)


def test_the_profile_in_use_stays_in_use(tmp_path: Path, monkeypatch) -> None:
    person = Person(tmp_path, monkeypatch)
    person.file.write_text('active = "work"\n[profiles.work]\nPREFECT_API_URL = "https://x/api"\n')
    person.file.chmod(0o644)
    assert person.up(Settings(home=tmp_path / "1")) == "prefect --profile headway"
    found = person.profiles()
    assert found["active"] == "work"
    assert found["profiles"]["work"] == {"PREFECT_API_URL": "https://x/api"}
    assert person.file.stat().st_mode & 0o077 == 0
