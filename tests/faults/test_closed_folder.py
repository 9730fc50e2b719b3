"""The demo in a clone below a folder that nobody else may pass, as a home of mode 700 is."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import AS_ROOT
from tests.support.leftovers import left_behind
from tests.support.site import PATIENCE_S, ROOT, LiveSite, free_port

pytestmark = pytest.mark.long
NOBODY = pwd.getpwnam("nobody")
_SOCKET = Path("/var/run/docker.sock")
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def passable(path: Path) -> bool:
    """Whether any user may pass on the way to *path*."""
    return path.exists() and all(each.stat().st_mode & 0o001 for each in path.resolve().parents)


def linked(source: str, target: str) -> None:
    """Have *source* as *target*, too, without a copy of its own where nothing writes to it."""
    try:
        if "/prefect/server/" in source:  # its server rewrites the files of its page
            raise PermissionError
        os.link(source, target)
    except OSError:  # or another file system
        shutil.copy2(source, target)


def clone(python: Path, folder: Path) -> Path:
    """A clone in *folder* with an environment of its own, as `make demo` has it; its `headway`."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    environment = folder / ".venv"
    subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    packages = environment / "lib" / _VERSION / "site-packages"
    (own,) = (each for each in map(Path, sys.path) if each.name == "site-packages")
    shutil.copytree(own, packages, copy_function=linked, dirs_exist_ok=True, symlinks=True)
    for installed in packages.glob("*headway*.pth"):
        installed.unlink()  # it is a link to that of the tests' own environment
        installed.write_text(f"{folder}\n")
    if not (packages / "async_timeout").exists():  # redis asks for it before Python 3.11.3
        (packages / "async_timeout.py").write_text("from asyncio import timeout\n")
    for command in ("headway", "prefect", "uv"):
        found = (Path(sys.executable).parent / command).read_bytes()
        if found.startswith(b"#!"):
            found = f"#!{environment}/bin/python\n".encode() + found.partition(b"\n")[2]
        (environment / "bin" / command).write_bytes(found)
        (environment / "bin" / command).chmod(0o755)
    return environment / "bin" / "headway"


@pytest.fixture(params=["own", "nobody"] if AS_ROOT else ["own"])
def whose(request: pytest.FixtureRequest) -> str:
    """Who tries headway: whoever runs the tests, and where that is root an ordinary user, too."""
    name: str = request.param
    return name


@pytest.fixture
def closed(whose: str) -> Iterator[Path]:
    """A folder of mode 700 of that user."""
    folder = Path(tempfile.mkdtemp(prefix="headway-closed-"))  # no long path: it holds sockets
    if whose == "nobody":
        os.chown(folder, NOBODY.pw_uid, NOBODY.pw_gid)
    try:
        yield folder
        assert left_behind(folder) == []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("runtime", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_the_demo_runs(
    runtime: str, whose: str, closed: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if runtime == "docker":
        request.getfixturevalue("docker_engine")
    another = whose == "nobody"
    pythons = [Path(sys.executable).resolve(), Path(f"/usr/bin/{_VERSION}")]
    python = next((each for each in pythons if not another or passable(each)), None)
    if python is None:
        pytest.skip(f"this machine has no {_VERSION} that an ordinary user may start")
    headway = clone(python, closed / "clone")
    # By itself root's home lies where others pass, an ordinary user's in the closed folder.
    home = closed / "home" if another or not AS_ROOT else tmp_path / "home"
    site = LiveSite(home, runtime, free_port(), HOME=str(closed))
    ids: dict[str, Any] = {}
    if another:
        for path in closed.rglob("*"):
            if path.lstat().st_nlink == 1 or path.is_dir():  # else a link to the tests' own
                os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)
        groups = [_SOCKET.stat().st_gid] if runtime == "docker" else []
        ids = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": groups}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [headway, *words], cwd=closed / "clone", env=site.env, capture_output=True, text=True,
            timeout=6 * PATIENCE_S, check=False, **ids,
        )  # fmt: skip

    try:
        done = run("demo", "--rows", "2000", "--rounds", "5")
    finally:
        ended = run("down", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Completed: done" in done.stdout
    assert ended.returncode == 0, ended.stdout + ended.stderr
