"""What of a folder travels, asked of the real git."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headway.code import folder as folder_module
from headway.code.folder import INCLUDE, left_behind, pack
from headway.errors import InvalidInput
from headway.model.code import CODE, MOST_DIFF_BYTES, CodeManifest


def git(folder: Path, *words: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
           "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null"}  # fmt: skip
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=os.environ | who, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout.strip()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that is in no repository yet."""
    place = tmp_path / "project"
    write(place, {"train.py": "print(1)\n", "src/net.py": "x = 1\n", "data/big.bin": "secret"})
    (place / ".gitignore").write_text("*.bin\n__pycache__/\n")
    write(place, {"__pycache__/train.pyc": "compiled"})
    return place


def names(place: Path) -> list[str]:
    return [each.path for each in pack(place).manifest.files]


def test_without_a_repository_ignore_files_hold_all_the_same(project: Path) -> None:
    (project / "src" / ".gitignore").write_text("*.log\n!keep.log\n")
    write(project, {"src/a.log": "a", "src/keep.log": "b"})
    assert names(project) == [
        ".gitignore", "src/.gitignore", "src/keep.log", "src/net.py", "train.py",
    ]  # fmt: skip
    found = pack(project).manifest
    assert (found.commit, found.diff) == ("", "")
    assert sorted(each.name for each in project.iterdir()) == [
        ".gitignore", "__pycache__", "data", "src", "train.py",
    ]  # fmt: skip


def test_a_home_of_headways_never_travels(project: Path) -> None:
    """With it the keys of a site would have."""
    write(project, {".site/node.id": "1", ".site/token": "secret", ".site/state/a.log": "said"})
    assert names(project) == [".gitignore", "src/net.py", "train.py"]


def test_outputs_that_were_fetched_do_not_travel_but_a_program_among_them_does(
    project: Path,
) -> None:
    write(project, {"results/.headway-outputs/run": "r1", "results/model.pt": "weights"})
    assert names(project) == [".gitignore", "src/net.py", "train.py"]
    write(project, {"results/train.py": "print()"})
    assert "train.py" in names(project / "results")


@pytest.mark.parametrize("own", [True, False], ids=["home", "root"])
def test_an_account_is_not_sent_with_a_program(
    project: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Its keys and the site of who has one there would travel."""
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(InvalidInput, match="put it in a folder of its own"):
        pack(project if own else Path("/"))


def test_a_repository_gives_what_it_tracks_its_commit_and_the_change(project: Path) -> None:
    git(project, "init", "--quiet")
    git(project, "add", "-f", "train.py", "data/big.bin", "src")
    git(project, "commit", "--quiet", "-m", "one")
    write(project, {"train.py": "print(2)\n", "new.py": ""})
    (project / "src" / "net.py").unlink()
    (project / "train.py").chmod(0o755)
    packed = pack(project)
    assert names(project) == [".gitignore", "data/big.bin", "new.py", "train.py"]
    assert packed.manifest.commit == git(project, "rev-parse", "HEAD")
    assert "+print(2)" in packed.manifest.diff
    assert {each.path for each in packed.manifest.files if each.executable} == {"train.py"}
    below = pack(project / "data").manifest
    assert [each.path for each in below.files] == ["big.bin"]
    assert below.diff == ""


@pytest.mark.parametrize("in_git", [True, False])
def test_what_is_left_out_is_known_and_may_be_asked_for(project: Path, *, in_git: bool) -> None:
    if in_git:
        git(project, "init", "--quiet")
    (project / ".gitignore").write_text("*.bin\ndata/\n__pycache__/\n.cache/\n")
    write(project, {"set/a.bin": "1", "data/b.csv": "2", "__pycache__/c": "3", ".cache/d": "4"})
    assert left_behind(project) == ["data/", "set/"]
    (project / INCLUDE).write_text("set/*.bin\n")
    assert "set/a.bin" in names(project)
    assert left_behind(project) == ["data/"]


def test_a_long_diff_is_cut(project: Path) -> None:
    git(project, "init", "--quiet")
    git(project, "add", "train.py")
    git(project, "commit", "--quiet", "-m", "one")
    (project / "train.py").write_text("é = 1\n" * 60_000)
    diff = pack(project).manifest.diff
    assert len(diff.encode()) <= MOST_DIFF_BYTES
    assert diff.endswith("[cut: the diff goes on]\n")


def test_a_repository_in_the_folder_travels_with_its_own_rules(project: Path) -> None:
    git(project, "init", "--quiet")
    inner = project / "lib"
    write(inner, {"a.py": "1", "b.tmp": "2"})
    (inner / ".gitignore").write_text("*.tmp\n")
    git(inner, "init", "--quiet")
    assert "lib/a.py" in names(project)
    assert not {each for each in names(project) if ".git/" in each or each.endswith(".tmp")}


def test_a_repository_starts_no_program_of_its_own(project: Path, tmp_path: Path) -> None:
    git(project, "init", "--quiet")
    git(project, "add", "train.py")
    git(project, "commit", "--quiet", "-m", "one")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    program.chmod(0o755)
    (project / ".gitattributes").write_text("*.py diff=own\n")
    for key in ("core.fsmonitor", "diff.external", "diff.own.command", "diff.own.textconv"):
        git(project, "config", key, str(program))
    (project / "train.py").write_text("print(2)\n")
    (tmp_path / "canary").unlink(missing_ok=True)
    assert "+print(2)" in pack(project).manifest.diff
    assert not (tmp_path / "canary").exists()


def test_what_git_does_not_trust_is_said(project: Path, monkeypatch) -> None:
    """Else all of it would travel as if nothing were tracked, and without its commit."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a folder to somebody else")
    git(project, "init", "--quiet")
    os.chown(project, 12345, 12345)
    os.chown(project / ".git", 12345, 12345)
    monkeypatch.setenv("HOME", str(project.parent))  # where no setting of git's trusts it
    with pytest.raises(InvalidInput, match="dubious ownership"):
        pack(project)


def test_a_hook_of_another_repository_leads_nowhere_else(
    project: Path, tmp_path, monkeypatch
) -> None:
    other = tmp_path / "other"
    write(other, {"canary": "of another repository"})
    git(other, "init", "--quiet")
    git(other, "add", "canary")
    git(other, "commit", "--quiet", "-m", "one")
    before = names(project)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert names(project) == before
    assert pack(project).manifest.commit == ""


def test_a_link_inside_travels_as_a_file_and_any_other_is_refused(project: Path) -> None:
    (project / "link.py").symlink_to("train.py")
    packed = pack(project)
    chunks = {each.path: each.chunks for each in packed.manifest.files}
    assert chunks["link.py"] == chunks["train.py"]
    for target, why in (("/etc/hostname", "leads out"), ("nowhere", "leads nowhere"),
                        ("src", "no file"), ("link.py", "be followed")):  # fmt: skip
        (project / "link.py").unlink()
        (project / "link.py").symlink_to(target)
        with pytest.raises(InvalidInput, match=why):
            pack(project)


@pytest.mark.parametrize("name", [b"\xff.py", b"a\nb.py", b"a\x1b.py"])
def test_a_name_that_cannot_travel_is_named(project: Path, name: bytes) -> None:
    (project / os.fsdecode(name)).write_text("x")
    with pytest.raises(InvalidInput, match="rename the file"):
        pack(project)


def test_what_is_empty_or_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no file that git tracks"):
        pack(tmp_path)
    with pytest.raises(InvalidInput, match="no folder is there"):
        pack(tmp_path / "nothing")


def test_without_git_it_is_said_what_to_do(project: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidInput, match="git says which files travel"):
        pack(project)


def test_chunks_are_those_that_were_promised(project: Path, monkeypatch) -> None:
    small = replace(CODE, chunk_bytes=4)
    monkeypatch.setattr(folder_module, "CODE", small)
    monkeypatch.setattr(CodeManifest, "limits", small)
    packed = pack(project)
    assert set(map(len, packed.chunks(set(packed.manifest.chunks)))) <= {1, 2, 3, 4}
    assert list(packed.chunks(set())) == []
    (project / "train.py").write_text("print(3)\n")
    with pytest.raises(InvalidInput, match="changed while it was sent"):
        list(packed.chunks(set(packed.manifest.chunks)))
