"""Headway's home: closed by construction, and closed again where version 0.1 left it open."""

import os
import stat
from pathlib import Path

import pytest

from headway.errors import InvalidInput
from headway.home import (
    ROOT_HOME,
    ballast_given_up,
    have_passable,
    node_identity,
    passable,
    samples,
    settle,
    strip_set_ids,
)
from headway.settings import Settings


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def old_home(tmp_path: Path) -> Path:
    """As version 0.1 left it."""
    home = tmp_path / "home"
    for folder in (
        "state/flows", "prefect", "models", "runs/r1/outputs", "runs/r1/log", "samples",
        "cache/sets/key/data", "cache/locks", "cache/tmp",
    ):  # fmt: skip
        (home / folder).mkdir(parents=True)
    for name in (
        "ledger.db", "ledger.url", "state/worker.log", "state/flows/r1.lock", "prefect/prefect.db",
        "models/champion.npz", "runs/r1/profile.json", "runs/r1/outputs/model.bin",
        "samples/flights.csv", "cache/sets/key/data/x",
    ):  # fmt: skip
        (home / name).write_text("x")
    (home / "state/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("x")
    for each in (home, *home.rglob("*")):
        if not each.is_symlink():
            each.chmod(0o755 if each.is_dir() else 0o644)
    return home


def test_a_home_that_was_open_is_closed(old_home: Path) -> None:
    settle(old_home)
    for name in ("", "runs", "runs/r1"):
        assert mode(old_home / name) == passable(), name
    for name in ("state", "state/flows", "prefect", "models", "runs/r1/outputs", "runs/r1/log"):
        assert mode(old_home / name) == 0o700, name
    for name in (
        "ledger.db", "ledger.url", "state/worker.log", "state/flows/r1.lock", "prefect/prefect.db",
        "models/champion.npz", "runs/r1/profile.json",
    ):  # fmt: skip
        assert mode(old_home / name) == 0o600, name
    assert mode(old_home / "cache/sets/key") == 0o700
    assert mode(old_home / "samples/flights.csv") == 0o644
    assert mode(old_home.parent / "elsewhere") == 0o644  # no link is followed


def test_settling_again_changes_nothing(old_home: Path) -> None:
    settle(old_home)
    before = {each: mode(each) for each in old_home.rglob("*")}
    settle(old_home)
    assert {each: mode(each) for each in old_home.rglob("*")} == before


def test_what_programs_pass_on_the_way_to_their_own_stays_so(tmp_path: Path) -> None:
    places = ("users/vision/ada", "environments/vision/hash", "work/container", "secrets/container")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        for each in (tmp_path / place, *(tmp_path / place).parents):
            if each.is_relative_to(tmp_path):
                each.chmod(passable())
    settle(tmp_path)
    assert {mode(each) for each in tmp_path.rglob("*")} == {passable()}


def test_what_jobs_of_engines_have_made_is_not_walked_through(tmp_path: Path) -> None:
    for place in ("engines/environments/vision", "engines/ray/environments"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "module.py").touch(0o644)
        (tmp_path / place / "module.py").chmod(0o644)
    settle(tmp_path)
    assert mode(tmp_path / "engines/environments/vision/module.py") == 0o644
    assert mode(tmp_path / "engines/ray/environments/module.py") == 0o600


def test_what_a_running_program_is_told_is_not_closed_to_it(tmp_path: Path) -> None:
    """`headway up` may be said again while it runs."""
    run = tmp_path / "runs/r1"
    for name, bits in (("gang-1", 0o750), ("told", 0o711), ("outputs", 0o755)):
        (run / name).mkdir(parents=True)
        (run / name).chmod(bits)
    settle(tmp_path)
    assert {each.name: mode(each) for each in run.iterdir()} == {
        "gang-1": 0o750, "told": 0o711, "outputs": 0o700,
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_home_of_somebody_else_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "theirs"
    home.mkdir()
    os.chown(home, 54321, 54321)
    with pytest.raises(InvalidInput, match=r"HEADWAY_HOME.*belongs to uid 54321"):
        settle(home)


def test_a_folder_of_other_things_is_no_home(tmp_path: Path) -> None:
    """It would be closed to others, with all that is in it; /dev/null was, too."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "log").write_text("x")
    for place, why in ((tmp_path, r"other things \(log\)"), (tmp_path / "log", "no directory")):
        before = mode(place)
        place.chmod(0o755)
        with pytest.raises(InvalidInput, match=why), ballast_given_up(place, print):
            settle(place)
        assert mode(place) == 0o755
        assert not (tmp_path / "ballast").exists()
        place.chmod(before)
    with pytest.raises(NotADirectoryError):
        have_passable(tmp_path / "log")
    (tmp_path / "node.id").write_text("x")
    settle(tmp_path)  # what an operator has put beside it


def test_a_home_may_hold_databases_of_roots_sites_below_closed_folders(tmp_path: Path) -> None:
    (tmp_path / "database-744032a5e072").mkdir(mode=0o711)
    settle(tmp_path)
    assert mode(tmp_path / "database-744032a5e072") == 0o711


@pytest.mark.parametrize("left", ["nothing", "root's", "somebody's"])
def test_where_roots_site_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    monkeypatch.delenv("HEADWAY_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    first = tmp_path / ".headway"
    if left != "nothing":
        first.mkdir()
    owner = 0 if left == "root's" else 1000
    monkeypatch.setattr(
        Path, "stat", lambda self, **_: os.stat_result((0o40755, 0, 0, 0, owner, 0, 0, 0, 0, 0))
    )
    if left == "nothing":
        monkeypatch.setattr(Path, "is_dir", lambda self: False)
    assert Settings().home == (first if left == "root's" else ROOT_HOME)


def test_an_ordinary_users_site_is_her_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Settings().home == tmp_path / ".headway"


def test_set_ids_are_stripped_and_links_not_followed(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "outputs" / "deep").mkdir(parents=True)
    outside.write_text("x")
    outside.chmod(0o4755)
    tool = run / "outputs" / "deep" / "tool"
    tool.write_text("x")
    tool.chmod(0o6711)
    (run / "outputs" / "deep").chmod(0o2755)
    (run / "outputs" / "link").symlink_to(outside)
    os.mkfifo(run / "outputs" / "pipe")
    assert strip_set_ids(run) == 2
    assert mode(tool) == 0o711
    assert mode(run / "outputs" / "deep") == 0o755
    assert mode(outside) == 0o4755
    assert strip_set_ids(run) == 0
    assert strip_set_ids(tmp_path / "gone") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs are another user's")
def test_samples_lie_where_roots_programs_may_pass(tmp_path: Path) -> None:
    home = tmp_path / "closed" / ".headway"
    home.mkdir(parents=True)
    assert samples(home) == home / "samples"
    home.parent.chmod(0o700)
    assert samples(home) == ROOT_HOME / "samples"


def test_a_home_keeps_the_id_of_its_node(tmp_path: Path) -> None:
    found = node_identity(tmp_path / "home")
    assert found == node_identity(tmp_path / "home") != node_identity(tmp_path / "other")
    assert mode(tmp_path / "home" / "node.id") == 0o600
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["node.id"]
