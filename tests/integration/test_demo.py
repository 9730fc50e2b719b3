"""The demo's image on machines that lack one thing or another."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker
import pytest

from headway.admin import demo
from headway.clock import SystemClock
from headway.runtime.errors import ImageMissing
from samples import local_image


class NoImage:
    def ensure_image(self, image: str) -> None:
        raise ImageMissing(image, "no registry")


SITE = cast("Any", SimpleNamespace(runtime=NoImage(), clock=SystemClock()))


def test_an_image_that_cannot_be_had_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in the traceback of a subprocess."""

    def lacks(_title: str, command: list[str]) -> Any:
        return subprocess.CompletedProcess(command, 1, "working\ncannot build: lacks a shell\n")

    monkeypatch.setattr(demo, "_shown", lacks)
    said: list[str] = []
    with pytest.raises(ImageMissing, match="lacks a shell"):
        demo._sample_image(SITE, said.append)
    assert "building image" in said[0]


def test_a_command_is_shown_until_its_end_and_its_words_are_kept() -> None:
    done = demo._shown("counting", ["sh", "-c", "echo one; echo two >&2; exit 3"])
    assert (done.returncode, done.stdout) == (3, "one\ntwo\n")


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_BUILD_S", 0.2)
    done = demo._shown("hanging", ["sh", "-c", "exec sleep 600"])
    assert done.returncode == -9


@pytest.mark.docker
def test_an_image_needs_no_busybox(docker_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most machines have no static busybox: then the image gets this machine's own shell."""
    monkeypatch.setattr(local_image, "_static_busybox", lambda: None)
    tag = local_image.build("python", "headway-test/no-busybox:local")
    client = docker.from_env()
    try:
        shell = ["sh", "-c", 'exec "$@"', "headway", "python", "-c", "print(6 * 7)"]
        assert client.containers.run(tag, shell, remove=True, network_mode="none") == b"42\n"
    finally:
        client.images.remove(tag, force=True)
        client.close()


@pytest.mark.docker
@pytest.mark.parametrize("python", [Path("/usr/bin/python3"), Path(sys.executable)], ids=str)
def test_the_image_of_any_python_finds_its_packages(docker_engine: None, python: Path) -> None:
    """Debian's own looks for them in another folder than one that was built from source."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if Path(python).resolve().name != version:
        pytest.skip(f"no {version} at {python}, for which the packages here were made")
    tag = "headway-test/any-python:local"
    make = f"from samples.local_image import build; build('python', '{tag}', packages=['joblib'])"
    here = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    subprocess.run(
        [python, "-c", make], check=True, env=here, cwd=Path(local_image.__file__).parents[1]
    )
    client = docker.from_env()
    try:
        say = ["python", "-c", "import joblib; print('found')"]
        assert client.containers.run(tag, say, remove=True, network_mode="none") == b"found\n"
    finally:
        client.images.remove(tag, force=True)
        client.close()
