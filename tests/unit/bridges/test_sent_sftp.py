"""The SFTP server that is sent to a container, by OpenSSH's own client."""

import subprocess
import sys
from pathlib import Path

import pytest

from headway.bridges.sent import headway_ssh

SERVER = Path(headway_ssh.__file__)


def said(folder: Path, *commands: str) -> "subprocess.CompletedProcess[str]":
    """What `sftp` says of *commands* in *folder*; it stops at the first that fails."""
    served = f"{sys.executable} {SERVER} sftp"
    return subprocess.run(
        ["sftp", "-b", "-", "-D", served], cwd=folder, input="\n".join([*commands, ""]),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_folders_and_large_files_come_back_as_they_went(tmp_path: Path) -> None:
    (tmp_path / "code/below").mkdir(parents=True)
    (tmp_path / "code/below/ä b.py").write_text("print()\n")
    (tmp_path / "code/below/ä b.py").chmod(0o640)
    content = bytes(range(256)) * 8_000
    (tmp_path / "large").write_bytes(content)
    done = said(
        tmp_path, "mkdir there", "put -rp code there/", "put large there/large",
        "rename there/large there/model", "symlink model there/latest", "chmod 600 there/model",
        "get -p there/latest back", "get -r there/code again", "ls -la there",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_bytes() == (tmp_path / "there/model").read_bytes() == content
    assert (tmp_path / "there/model").stat().st_mode & 0o777 == 0o600
    for copied in ("there/code", "again"):
        assert (tmp_path / copied / "below/ä b.py").read_text() == "print()\n"
    assert (tmp_path / "there/code/below/ä b.py").stat().st_mode & 0o777 == 0o640
    assert "lrwxrwxrwx" in done.stdout


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("get missing", "not found"),
        ("rmdir full", "Failure"),
        ("rm full/one\nrm full/one", "No such file"),
        ("df", "statvfs"),
    ],
)
def test_what_cannot_be_done_is_told(tmp_path: Path, command: str, why: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/one").touch()
    (tmp_path / "full/two").touch()
    done = said(tmp_path, command)
    assert done.returncode != 0
    assert why in done.stderr
