"""What computes for long is done by processes beside the gateway."""

import os
import signal
from collections.abc import Iterator
from typing import Any, cast

import anyio
import psutil
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.node import apart as apart_module
from headway.node.apart import apart, fork_helper
from headway.site import Site


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Process]:
    monkeypatch.setattr(apart_module, "_helper", way := [])
    monkeypatch.setattr(apart_module, "current_site", lambda: None)
    before = set(psutil.Process().children())
    fork_helper()
    (found,) = set(psutil.Process().children()) - before
    yield found
    way[0].close()
    assert psutil.wait_procs([found], timeout=60)[0]


def doubled(_: Site, text: bytes) -> tuple[int, bytes]:
    return os.getpid(), text * 2


def refused(_: Site, why: str) -> None:
    raise InvalidInput("data", why, "give another", where="here", also="; and more")


def killed(_: Site) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def broken(_: Site) -> None:
    raise ZeroDivisionError


def ask(function: Any, *values: Any) -> Any:
    return anyio.run(apart, cast("Site", None), "vision", function, *values)


def test_it_is_done_by_another_process(helper: psutil.Process) -> None:
    pid, text = ask(doubled, b"x" * (1 << 20))
    assert pid not in (os.getpid(), helper.pid)
    assert len(text) == 2 << 20


def test_a_refusal_is_the_same(helper: psutil.Process) -> None:
    with pytest.raises(InvalidInput) as caught:
        ask(refused, "it")
    assert str(caught.value) == 'here data: got "it"; give another; and more'


@pytest.mark.parametrize("ended", [killed, broken])
def test_one_that_dies_is_told_and_the_next_one_is_done(helper: psutil.Process, ended: Any) -> None:
    with pytest.raises(HeadwayError, match="given up"):
        ask(ended)
    assert ask(doubled, b"x")[1] == b"xx"


def test_without_a_helper_it_is_done_here() -> None:
    assert ask(doubled, b"x") == (os.getpid(), b"xx")
