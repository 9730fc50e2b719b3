"""What computes for long without a pause, in processes beside the gateway's or the scheduler's.

Python's own C code keeps the interpreter to itself while it reads megabytes of JSON: whoever asks
the gateway would wait as long. A process that was forked before there was any work forks
another one for each task. It begins within milliseconds, shares with the others what was imported,
and gives all its memory back at its end.
"""

import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack, cast

import anyio

from headway.errors import HeadwayError
from headway.node.shares import TeamLimiters, in_thread
from headway.site import Site, current_site

log = logging.getLogger(__name__)
_Values = TypeVarTuple("_Values")
_Result = TypeVar("_Result")
_AT_ONCE = anyio.CapacityLimiter(4)
"""Of all teams, of which each has one under way."""
_OF_A_TEAM = TeamLimiters(1)
_MOST_S = 120
_NICE = 10
_PR_SET_PDEATHSIG = 1
_helper: list[socket.socket] = []
"""The way to the process that forks; none where there is no such process."""


async def apart(
    site: Site,
    whose: str,
    function: Callable[[Site, Unpack[_Values]], _Result],
    *values: *_Values,
) -> _Result:
    """What *function* makes of *site* and *values*; these and the result can be pickled.

    One at a time is done for *whose*: a team, or a pool.

    Raises:
        HeadwayError: As *function* does, or its process broke off.
    """
    async with _OF_A_TEAM.of(whose), _AT_ONCE:
        if not _helper:
            return await in_thread(function, site, *values)
        return cast("_Result", await in_thread(_asked, (function, values)))


def fork_helper() -> None:
    """Fork the process that forks; it ends with this one, which has no work yet.

    What was imported is given up by the collector of garbage, whose looks would end its sharing.
    """
    gc.collect()
    gc.freeze()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        there.close()
        _helper.append(here)
        return
    here.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    while True:
        word, descriptors, _, _ = socket.recv_fds(there, 1, 1)
        if not word:
            os._exit(0)
        if os.fork() == 0:
            there.close()
            try:
                _work(descriptors[0])
            except Exception:
                log.exception("a task in a child process failed")
            finally:
                os._exit(0)
        os.close(descriptors[0])


def _asked(task: object) -> object:
    here, there = socket.socketpair()
    with Connection(here.detach()) as way:
        try:
            with there:
                socket.send_fds(_helper[0], [b"1"], [there.fileno()])
        except OSError:  # whoever brings this process back brings back what forks
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            way.send(task)
            failed, found = way.recv()
        except (EOFError, OSError):
            raise HeadwayError("this took too long or too much memory, and was given up") from None
    if not failed:
        return found
    kind, arguments, state = found
    error: HeadwayError = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    raise error


def _work(descriptor: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    Path("/proc/self/oom_score_adj").write_text("500")  # rather than what the site cannot miss
    os.nice(_NICE)
    signal.alarm(_MOST_S)
    with Connection(descriptor) as way:
        function, values = way.recv()
        try:
            way.send((False, function(current_site(), *values)))
        except HeadwayError as error:  # not all of them can be pickled
            way.send((True, (type(error), error.args, error.__dict__)))
