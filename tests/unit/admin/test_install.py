"""What `headway install` would write, for which machine; and that it does so once."""

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from headway.admin import install as installing
from headway.admin.install import CannotInstall, environment, read_environment, unit, units
from headway.cli.main import headway
from headway.errors import InvalidInput
from headway.settings import Settings
from tests.support.site import forget_site


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    return Settings(home=tmp_path / "home")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Folders in the place of /etc, and a list of what systemctl was called with."""
    called = []
    monkeypatch.setattr(installing, "UNITS", tmp_path / "systemd")
    monkeypatch.setattr(installing, "ENVIRONMENT", tmp_path / "etc/site.env")
    monkeypatch.setattr(installing, "_check", lambda *, start: None)
    monkeypatch.setattr(
        installing, "_systemctl", lambda words, say, *, dry: dry or called.append(words)
    )
    return called


def install(settings, known=(), said=None, *, start=True, dry=False):
    say = (said if said is not None else []).append
    installing.install(settings, dict(known), say, start=start, dry=dry)


def test_a_site_has_all_services_and_its_database_only_where_none_is_named(settings):
    assert units(settings) == [
        "headway-database.service", "headway-server.service", "headway-gateway.service",
        "headway-scheduler.service", "headway-guard.service", "headway-worker.service",
    ]  # fmt: skip
    settings.ledger_pointer.write_text("postgresql://x")
    assert "headway-database.service" not in units(settings)


def test_a_machine_that_has_joined_a_site_has_guard_and_worker(settings):
    settings.server_pointer.write_text("http://10.8.0.1:4200/api")
    assert units(settings) == ["headway-guard.service", "headway-worker.service"]


def test_units_name_the_programs_of_this_installation(settings):
    for name in units(settings):
        text = unit(name)
        assert f"ExecStart={sys.prefix}/bin/" in text
        assert "/opt/headway" not in text


def test_systemd_accepts_the_units(settings, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    paths = [tmp_path / name for name in units(settings)]
    for path in paths:
        path.write_text(unit(path.name))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, paths)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    own = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, own) == (0, []), done.stderr


def test_the_environment_keeps_what_is_headways_and_reads_back_as_it_was(settings):
    hard = "postgresql://h:a\"b'c$d`e\\f g@10.8.0.1/x?sslmode=verify-full"
    text = environment(settings, {"HEADWAY_LEDGER_URL": hard, "PATH": "/bin", "HEADWAY_TOKEN": "t"})
    assert read_environment(text) == {
        "HEADWAY_LEDGER_URL": hard, "HEADWAY_HOME": str(settings.home)
    }  # fmt: skip


def test_what_was_read_back_is_written_as_it_was(settings):
    text = environment(settings, {"HEADWAY_NODE": "a", "HEADWAY_FILES_PORT": "1"})
    assert environment(settings, read_environment(text)) == text


def test_a_variable_of_two_lines_does_not_become_two_variables(settings):
    with pytest.raises(InvalidInput, match="HEADWAY_NODE"):
        environment(settings, {"HEADWAY_NODE": "a\nHEADWAY_HOME=/tmp"})


def test_a_line_that_is_no_assignment_is_named():
    with pytest.raises(InvalidInput, match="nonsense"):
        read_environment("# said\n\nHEADWAY_NODE=a\nnonsense\n")


def test_it_writes_once_starts_all_and_later_only_what_changed(settings, machine):
    install(settings, {"HEADWAY_NODE": "a"})
    names = units(settings)
    start = [["enable", *names], ["start", "--no-block", *names]]
    assert machine == [["daemon-reload"], ["try-restart", *names], *start]
    assert installing.ENVIRONMENT.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in installing.UNITS.iterdir()} == set(names)
    assert (installing.UNITS / names[0]).stat().st_mode & 0o777 == 0o644
    machine.clear()
    said = []
    install(settings, {"HEADWAY_NODE": "a"}, said)
    assert (machine, said) == (start, [])
    machine.clear()
    (installing.UNITS / names[1]).write_text(installing._MARK + "an earlier version")
    install(settings, {"HEADWAY_NODE": "a"})
    assert ["try-restart", names[1]] in machine


def test_a_rehearsal_writes_nothing(settings, machine, tmp_path):
    said = []
    install(settings, said=said, dry=True)
    assert machine == []
    assert len(said) == len(units(settings)) + 1
    assert {each.name for each in tmp_path.iterdir()} == {"home"}


def test_without_a_start_systemd_only_reads_the_units(settings, machine):
    install(settings, start=False)
    assert machine == [["daemon-reload"]]


def test_remove_takes_its_own_units_and_no_others(settings, machine):
    install(settings)
    other = installing.UNITS / "headway-own.service"
    other.write_text("[Unit]\n")
    machine.clear()
    installing.remove([].append, dry=False)
    assert [words[0] for words in machine] == ["disable", "daemon-reload"]
    assert list(installing.UNITS.iterdir()) == [other]
    assert installing.ENVIRONMENT.exists()
    machine.clear()
    installing.remove([].append, dry=False)
    assert machine == []


def test_what_up_keeps_is_not_kept_twice(settings, machine, monkeypatch):
    monkeypatch.setattr(installing, "_running", lambda _: ["guard"])
    with pytest.raises(CannotInstall, match="headway down"):
        install(settings)
    assert not installing.UNITS.exists()


def test_what_lies_in_a_cache_is_not_started_at_each_boot(settings, machine, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    (cache / "archive-v0/x").mkdir(parents=True)
    (cache / "CACHEDIR.TAG").touch()
    monkeypatch.setattr(sys, "prefix", str(cache / "archive-v0/x"))
    with pytest.raises(CannotInstall, match="uv tool install"):
        install(settings, dry=True)


def test_only_root_installs(settings, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotInstall, match="only root"):
        install(settings)


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_site_that_systemd_keeps_is_left_to_it(settings, machine, monkeypatch, command):
    install(settings, {"HEADWAY_NODE": "a"})
    monkeypatch.setenv("HEADWAY_HOME", str(settings.home))
    settings.state_dir.mkdir(parents=True)
    forget_site()
    done = CliRunner().invoke(headway, [command])
    assert (done.exit_code, "systemd keeps this site" in done.output) == (2, True), done.output
    monkeypatch.setenv("HEADWAY_HOME", str(settings.home.with_name("another")))
    installing.leave_to_systemd(Settings(), "not of this home")


def test_join_leaves_the_node_to_systemd_where_it_is_asked_to(settings, machine, monkeypatch):
    def join(own, **_):
        own.server_pointer.write_text("http://10.8.0.1:4200/api")

    monkeypatch.setattr("headway.admin.join.join", join)
    monkeypatch.setattr("headway.admin.register.write_profile", lambda *_: None)
    monkeypatch.setenv("HEADWAY_HOME", str(settings.home))
    monkeypatch.setenv("HEADWAY_NODE", "gpu-2")
    forget_site()
    words = ["node", "join", "--server", "http://10.8.0.1:4200/api", "--ledger", "x", "--install"]
    done = CliRunner().invoke(headway, words)
    assert done.exit_code == 0, done.output
    started = ["start", "--no-block", "headway-guard.service", "headway-worker.service"]
    assert machine[-1] == started
    assert 'HEADWAY_NODE="gpu-2"' in installing.ENVIRONMENT.read_text()
