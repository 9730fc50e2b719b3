"""Fixtures that start real things once a session."""

from collections.abc import Iterator

import pytest

from samples.local_image import BUSYBOX, PYTHON, MissingPiece, build
from tests.support import dockerd


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[None]:
    """A container engine at the default address, started here if none answers."""
    if reason := dockerd.why_none():
        pytest.skip(reason)
    with dockerd.engine():
        yield


@pytest.fixture(scope="session")
def busybox_image(docker_engine: None) -> str:
    """An image of 2 MB with a shell."""
    return _built("busybox", BUSYBOX)


@pytest.fixture(scope="session")
def python_image(docker_engine: None) -> str:
    """An image with this interpreter; virtual environments can be mounted into it."""
    return _built("python", PYTHON)


def _built(which: str, tag: str) -> str:
    try:
        return build(which, tag)
    except MissingPiece as missing:
        pytest.skip(f"cannot build {tag}: this machine lacks {missing}")
