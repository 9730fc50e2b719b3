"""The operator's file: who may have written it, what is wrong with it, what it changes."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from headway.admin.config_file import ConfigFile, errors_of, machine_changes
from headway.admin.environment import site_environment
from headway.admin.told import note_told
from headway.errors import InvalidInput
from headway.model.document import Document
from headway.model.yaml_document import read_document
from headway.node.daemon import supervisor_note
from headway.settings import Settings, read_config, read_settings

BAD = """\
machine:
  prot: 4300
  redis_url: {planted: planted}
queue:
  window: many
  windw: 3
nodes:
  a: {reserve_host_memory: much}
  Gpu_1: {keep_days: 3}
containers:
  volumes: {data: {pth: /srv}}
  environment: {PASSWORD: planted}
contaners: {}
"""


def file_in(home: Path, text: str, mode: int = 0o600) -> Path:
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.write_text(text)
    path.chmod(mode)
    return path


def told(text: str) -> list[str]:
    return [str(error) for error in errors_of(read_document(text, "c.yaml"))]


def test_all_errors_are_told_with_line_key_and_what_was_meant() -> None:
    errors = told(BAD)
    assert [error.partition(": ")[0] for error in errors] == [
        "c.yaml:2 machine.prot",
        "c.yaml:3 machine.redis_url",
        "c.yaml:5 queue.window",
        "c.yaml:6 queue.windw",
        "c.yaml:8 nodes.a.reserve_host_memory",
        "c.yaml:9 nodes.Gpu_1",
        "c.yaml:11 containers.volumes.data",
        "c.yaml:11 containers.volumes.data.pth",
        "c.yaml:12 containers.environment.PASSWORD",
        "c.yaml:13 contaners",
    ]
    assert "did you mean port?" in errors[0]
    assert 'got "many"; input should be a valid integer' in errors[2]
    assert "did you mean window?" in errors[3]
    assert "2GiB or input should be 'auto'" in errors[4]
    assert "did you mean containers?" in errors[9]
    assert "planted" not in "".join(errors)


def test_values_that_a_dataclass_refuses_are_told_each() -> None:
    text = "queue:\n  window: 0\n  teams:\n    v: {weight: 0}\n    w:\n      weight: -1\n"
    assert told(text) == [
        "c.yaml:2 queue.window: got 0; give 1 to 1000000000",
        "c.yaml:4 queue.teams.v.weight: got 0.0; give a number above 0",
        "c.yaml:6 queue.teams.w.weight: got -1.0; give a number above 0",
    ]


@pytest.mark.parametrize("text", ["", "machine:\nqueue:\n", "queue: {window: 3}"])
def test_sections_may_be_empty_or_absent(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize("text", ["- a", "queue: 3", "nodes: [a]", "containers: x"])
def test_what_is_no_group_is_told_with_its_keys(text: str) -> None:
    assert [": got " in error and "give a group of keys: " in error for error in told(text)] == [
        True
    ]


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    file_in(tmp_path / "home", "machine: {port: 4300, pool: big, gateway_names: [a, b]}")
    monkeypatch.setenv("HEADWAY_PORT", "4400")
    found = read_settings()
    assert (found.port, found.pool, found.gateway_names) == (4400, "big", ("a", "b"))
    assert Settings(home=tmp_path / "home", pool="small").pool == "small"
    assert Settings(home=tmp_path / "another").pool == "gpu"


@pytest.mark.parametrize("text", ["machine: {prot: 1}", "machine: {home: /x}", "machine: ["])
def test_no_process_starts_by_a_wrong_file(tmp_path: Path, text: str) -> None:
    path = file_in(tmp_path, text)
    with pytest.raises(InvalidInput, match=f"{path}:1 "):
        Settings(home=tmp_path)


def test_a_file_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    path = file_in(tmp_path, "machine: {port: 4300}", 0o620)
    with pytest.raises(InvalidInput, match="others may have written it"):
        Settings(home=tmp_path)
    path.chmod(0o644)
    assert Settings(home=tmp_path).port == 4300
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        with pytest.raises(InvalidInput, match="uid 65534"):
            Settings(home=tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    real = file_in(tmp_path / "elsewhere", "machine: {port: 4300}")
    (tmp_path / "config.yaml").symlink_to(real)
    with pytest.raises(InvalidInput, match="it is a link"):
        Settings(home=tmp_path)


def test_a_secret_in_it_is_nobody_elses_to_read_and_not_printed(tmp_path: Path) -> None:
    text = "machine: {redis_url: 'redis://:planted@127.0.0.1:6379/0'}"
    path = file_in(tmp_path, text, 0o640)
    with pytest.raises(InvalidInput, match="others may read it") as caught:
        Settings(home=tmp_path)
    assert "planted" not in str(caught.value)
    path.chmod(0o600)
    settings = Settings(home=tmp_path)
    assert settings.redis == "redis://:planted@127.0.0.1:6379/0"
    document = read_config(path)
    assert document is not None
    (change,) = machine_changes(Settings(home=tmp_path / "another"), document)
    assert (change.now, change.then) == (None, "(hidden)")


def test_what_a_site_starts_goes_by_the_file_as_it_was_then(tmp_path: Path) -> None:
    file_in(tmp_path, "machine: {lease_ttl_s: 600, trusted_networks: [10.0.0.0/8, 10.9.0.0/16]}")
    env = site_environment(Settings(home=tmp_path))
    assert env["HEADWAY_LEASE_TTL_S"] == "600.0"
    assert env["HEADWAY_TRUSTED_NETWORKS"] == "10.0.0.0/8,10.9.0.0/16"
    assert "HEADWAY_REDIS_URL" not in env


def test_what_differs_from_what_runs_is_told_with_when_it_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(home: Path) -> list[Any]:
        document = Document({"machine": {"port": 4300, "gateway_names": ["a"], "pool": "gpu"}})
        found = machine_changes(Settings(home=home), document)
        return [(each.setting, each.now, each.then, each.takes_effect[:5]) for each in found]

    names = ("machine.gateway_names", [], ["a"], "at th")
    assert changed(tmp_path) == [("machine.port", 4200, 4300, "at th"), names]
    file_in(tmp_path, "machine: {port: 4300}")
    assert changed(tmp_path) == [names]
    running = Settings(home=tmp_path, port=4250)
    running.state_dir.mkdir()
    supervisor_note(running).touch()
    note_told(running)
    assert changed(tmp_path) == [("machine.port", "(not known)", 4300, "at th"), names]
    note_told(running.model_copy(update={"port": 4200}))
    assert changed(tmp_path) == [("machine.port", 4200, 4300, "at th"), names]
    monkeypatch.setenv("HEADWAY_PORT", "4200")
    assert changed(tmp_path) == [("machine.port", 4200, 4300, "never"), names]


def test_the_file_in_the_documents_is_right() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/operating.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert told(text) == []
    assert read_document(text, "c.yaml").values.keys() == ConfigFile.model_fields.keys()
