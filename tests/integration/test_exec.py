"""Commands beside the program of a run, on this node and on another, through the gateway."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from pydantic import SecretStr
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headway.clock import SystemClock
from headway.ledger import Ledger
from headway.model.access import Scope
from headway.model.exec_messages import (
    ExecCommand,
    ExecEnd,
    ExecMessage,
    ExecRefusal,
    ExecStarted,
    StandardStream,
    StreamData,
    read,
    written,
)
from headway.model.lease import Demand
from headway.model.node import Capacity, Node
from headway.model.run_file import signed
from headway.node.file_server import serve_on
from headway.node.run_ports import MOST_OF_A_RUN
from headway.pinning import only
from headway.run.environment import MAKING
from headway.run.here import connected_note, container_name
from headway.runtime.port import ContainerSpec
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB, MIB
from tests.ports.runtime_harness import until
from tests.support.api import MEMBER, bearer, serving
from tests.support.leading import grant_in_term
from tests.support.postgresql import new_ledger

pytestmark = pytest.mark.docker

HERE, THERE = (f"0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f2{at}" for at in (1, 2))
"""A run on the gateway's own machine, and one on another node."""
USER = "20001:20002" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway at *url*, of these sites by node."""

    url: str
    sites: dict[str, Site]
    ada: dict[str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, busybox_image: str) -> Iterator[Place]:
    """The gateway's machine ``head``, and the node ``left``; ada has a run on each."""
    folder = tmp_path_factory.mktemp("exec")
    folder.chmod(0o755)
    url = SecretStr(new_ledger())
    sites = {}
    for name, run_id in (("head", HERE), ("left", THERE)):
        home = folder / name
        home.mkdir()
        settings = Settings(home=home, ledger_url=url, node=name, runtime="docker")
        site = sites[name] = Site(settings, SystemClock(), Ledger.find)
        site.settings.state_dir.mkdir()
        node = Node(name, "gpu", Capacity(8.0, 64 * GIB))
        site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
        begin(site, run_id, busybox_image)
    serve_on(sites["left"], "127.0.0.1", secured=True)
    with serving(sites["head"]) as gateway:
        yield Place(gateway, sites, bearer(sites["head"], "ada", "vision", MEMBER))
    for site, run_id in ((sites["head"], HERE), (sites["left"], THERE)):
        site.runtime.remove(container_name(run_id, 1))
        site.ledger.close()


def begin(site: Site, run_id: str, image: str) -> None:
    """Start a program on *site*'s node, as a flow would."""
    site.runtime.remove(container_name(run_id, 1))  # of tests that were cut off
    job = {"name": "digits", "image": image, "command": ["sleep", "600"]}
    site.ledger.runs.enqueue(
        run_id, job, name="digits", owner="ada", team="vision", pool="gpu", priority=0,
        submitted_at=site.ledger.now(),
    )  # fmt: skip
    lease = grant_in_term(site.ledger, run_id, site.settings.node, Demand(GIB), ttl_s=900.0)
    log = site.settings.runs_dir / run_id / "log"
    log.mkdir(parents=True)
    spec = ContainerSpec(
        name=container_name(run_id, 1), run_id=run_id, attempt=1, image=image,
        command=("sleep", "600"), mounts=(), log_path=log / "attempt-1.log",
        env={"GIVEN": "a value"}, host_memory_bytes=64 * MIB, cpus=1.0, shm_bytes=MIB,
        user=USER, working_dir="/tmp",
    )  # fmt: skip
    site.runtime.create(spec)
    site.runtime.start(spec.name)
    site.ledger.runs.begin(lease.fence, container=spec.name, runtime="docker", ttl_s=900.0)


def processes(place: Place, run_id: str) -> int:
    """In its container now; one too many where the command of the test before is just ending."""
    site = place.sites["head" if run_id == HERE else "left"]
    status = site.runtime.inspect(container_name(run_id, 1))
    assert status is not None
    return len(status.pids)


def started(place: Place, run_id: str, *command: str, **streams: int) -> "subprocess.Popen[bytes]":
    """`headway exec`, as ada types it."""
    environment = {
        "HEADWAY_URL": place.url,
        "HEADWAY_TOKEN": place.ada["Authorization"].removeprefix("Bearer "),
    }
    typed = (sys.executable, "-c", "from headway.cli.main import main; main()", "exec", run_id)
    return subprocess.Popen([*typed, *command], env=os.environ | environment, **streams)


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.mark.parametrize("run_id", [HERE, THERE], ids=["here", "on another node"])
def test_a_command_runs_beside_the_program_as_its_user(place, run_id) -> None:
    text = (
        "cat; id -u; id -g; pwd; echo $GIVEN; tty; cat /proc/1/cmdline | tr '\\0' ' '; echo;"
        "grep -E 'CapEff|CapBnd|CapPrm|NoNewPrivs' /proc/self/status; echo err >&2; exit 5"
    )
    command = started(place, run_id, "--", "sh", "-c", text, **PIPES)
    out, err = command.communicate(b"\x00\xff in\n", timeout=60)
    assert (command.returncode, err) == (5, b"err\n"), (out, err)
    uid, gid = USER.split(":")
    said, *lines = out.split(b"\n", 1)
    assert said == b"\x00\xff in"
    lines = lines[0].decode().splitlines()
    assert lines[:5] == [uid, gid, "/tmp", "a value", "not a tty"]
    assert "sleep 600" in lines[5]
    none = "0" * 16
    assert [each.split()[1] for each in lines[6:]] == [none, none, none, "1"]


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The user's side of a terminal, and that of its programs."""
    ours, theirs = pty.openpty()
    size(theirs, 33, 111)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_a_terminal_is_passed_on_with_its_size(place, terminal) -> None:
    ours, theirs = terminal
    with started(place, THERE, stdin=theirs, stdout=theirs, stderr=theirs) as shell:
        try:
            seen(ours, b"$ ")
            os.write(ours, b"tty; stty size\n")
            assert b"/dev/pts/" in seen(ours, b"33 111")
            size(theirs, 44, 99)
            os.kill(shell.pid, signal.SIGWINCH)  # as the kernel tells who has the terminal
            os.write(ours, b"while [ \"$(stty size)\" != '44 99' ]; do :; done; echo is $((6*7))\n")
            seen(ours, b"is 42")
            # Said by the very program that Ctrl-C is to end, so it is in the foreground by then.
            os.write(ours, b"sh -c 'echo up$((0)); exec sleep 600'\n")
            seen(ours, b"up0")
            os.write(ours, b"\x03")
            seen(ours, b"$ ")
            os.write(ours, b"exit 7\n")
            assert shell.wait(timeout=60) == 7
        finally:
            shell.kill()
    assert termios.tcgetattr(theirs)[3] & termios.ECHO, "the terminal is not as it was"


def seen(terminal: int, what: bytes) -> bytes:
    """All that *terminal* shows until *what*."""
    shown, deadline = b"", time.monotonic() + 60
    while what not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 0.5)[0]:
            shown += os.read(terminal, 4096)
    return shown


@pytest.mark.parametrize("run_id", [HERE, THERE], ids=["here", "on another node"])
def test_who_has_left_leaves_no_command(place, run_id) -> None:
    before = processes(place, run_id)
    command = started(place, run_id, "sh", "-c", "echo up; sleep 600 & wait", **PIPES)
    assert command.stdout is not None
    assert command.stdout.readline() == b"up\n"
    assert processes(place, run_id) > before
    command.kill()
    command.communicate(timeout=60)
    until(lambda: processes(place, run_id) <= before)


@contextmanager
def asked(
    place: Place, headers: dict[str, str], *command: str, run_id: str = THERE
) -> Iterator[ClientConnection]:
    url = f"ws{place.url.removeprefix('http')}/v1/runs/{run_id}/exec"
    with connect(url, additional_headers=headers, proxy=None) as opened:
        opened.send(written(ExecCommand(arguments=command)))
        yield opened


def heard(opened: ClientConnection) -> ExecMessage:
    """What follows the word that it has started, if it has."""
    message = read(opened.recv(timeout=60))
    return heard(opened) if isinstance(message, ExecStarted) else message


def refusal(place: Place, headers: dict[str, str], run_id: str = THERE) -> str:
    with asked(place, headers, "id", run_id=run_id) as opened:
        message = heard(opened)
    assert isinstance(message, ExecRefusal), message
    return message.why


def denial(place: Place, headers: dict[str, str], run_id: str = THERE) -> str:
    """Why no connection was opened; only then can whoever may not send nothing through one."""
    with pytest.raises(InvalidStatus) as denied, asked(place, headers, "id", run_id=run_id):
        pass
    return json.loads(denied.value.response.body)["detail"]


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (("eve", "speech", MEMBER), "no run"),
        (("ada", "speech", MEMBER), "no run"),
        (("bob", "vision", MEMBER), "ada's of team vision"),
        (("ada", "vision", {Scope.WATCH}), "with the scope submit"),
    ],
)
def test_nobody_else_starts_one(place, who, told) -> None:
    assert told in denial(place, bearer(place.sites["head"], *who))


def test_a_run_that_is_none_opens_no_connection(place) -> None:
    """Else a token that may only watch sends pings there for as long as it likes."""
    watcher = bearer(place.sites["head"], "ada", "vision", {Scope.WATCH})
    assert "no run" in denial(place, watcher, "nonsense")


def test_a_run_that_waits_has_none(place) -> None:
    ledger, waits = place.sites["head"].ledger, f"{HERE[:-1]}9"
    ledger.runs.enqueue(
        waits, {}, name="waits", owner="ada", team="vision", pool="gpu", priority=0,
        submitted_at=ledger.now(),
    )  # fmt: skip
    why = denial(place, place.ada, waits)
    assert f"no command can be started in run {waits}: the run is waiting" in why


def test_what_a_refused_command_would_have_read_is_there_for_the_next(place) -> None:
    said, say = os.pipe()
    os.write(say, b"hello\n")
    os.close(say)
    environments = place.sites["head"].settings.environments_dir
    being_made = environments / "of" / "it" / f"{MAKING}{container_name(HERE, 1)}"
    being_made.parent.mkdir(parents=True)
    being_made.touch()
    refused = started(place, HERE, "cat", **PIPES | {"stdin": said})
    assert "its environment is being made" in refused.communicate(timeout=60)[1].decode()
    being_made.unlink()
    done = started(place, HERE, "cat", **PIPES | {"stdin": said})
    assert done.communicate(timeout=60)[0] == b"hello\n"
    os.close(said)


def test_an_operator_does(place) -> None:
    with asked(place, bearer(place.sites["head"]), "true") as opened:
        assert heard(opened) == ExecEnd(exit_code=0)


def test_a_page_starts_none_with_the_login_of_its_reader(place) -> None:
    token = place.ada["Authorization"].removeprefix("Bearer ")
    assert "in Authorization" in denial(place, {"Cookie": f"headway_token={token}"})


def test_without_a_token_there_is_none(place) -> None:
    with pytest.raises(InvalidStatus), asked(place, {}, "id"):
        pass


def test_its_node_takes_the_gateways_word_alone(place) -> None:
    (left,) = [each for each in place.sites["head"].ledger.nodes.all() if each.node.name == "left"]
    target, now_s = f"/runs/{THERE}/exec", time.time()
    for headers in (
        {},
        signed("wrong", "left", "GET", target, now_s),
        signed(left.worker_token, "left", "GET", f"/runs/{THERE}/ports/80", now_s),
        signed(left.worker_token, "head", "GET", target, now_s),
    ):
        # The client misses the refusal about once in a hundred times, and waits for it in vain.
        with pytest.raises((InvalidStatus, TimeoutError)):
            connect(
                f"wss{left.files_url.removeprefix('https')}{target}",
                additional_headers=headers, ssl=only(left.files_certificate), proxy=None,
                open_timeout=5,
            )  # fmt: skip


def test_what_was_started_is_noted_without_its_arguments(place) -> None:
    with asked(place, place.ada, "echo", "--password=secret", run_id=HERE) as opened:
        assert heard(opened) == StreamData(StandardStream.OUTPUT, b"--password=secret\n")
    (entry,) = place.sites["head"].ledger.audit_log.newest(1, actor="ada", subject=HERE)
    assert (entry.act, entry.details) == ("run.exec", {"command": "echo"})


def test_a_run_has_so_many_at_once_and_no_more(place) -> None:
    before = processes(place, THERE)
    with ExitStack() as all_of_them:
        for _ in range(MOST_OF_A_RUN):
            one = all_of_them.enter_context(asked(place, place.ada, "sh", "-c", "echo up; cat"))
            assert heard(one) == StreamData(StandardStream.OUTPUT, b"up\n")
        assert f"at most {MOST_OF_A_RUN}" in refusal(place, place.ada)
    until(lambda: processes(place, THERE) <= before)
    with asked(place, place.ada, "true") as opened:
        assert heard(opened) == ExecEnd(exit_code=0)


def test_an_open_command_is_use_also_where_nobody_types(place) -> None:
    """By the note that tells when a session is idle."""
    note = connected_note(place.sites["left"].settings, THERE)
    with asked(place, place.ada, "sh", "-c", "echo up; cat") as opened:
        heard(opened)
        until(note.exists)
        for _ in range(2):
            before = note.stat().st_mtime_ns
            until(lambda before=before: note.stat().st_mtime_ns > before)


def test_what_is_no_message_ends_it(place) -> None:
    before = processes(place, THERE)
    with asked(place, place.ada, "sh", "-c", "echo up; cat") as opened:
        heard(opened)
        opened.send('{"kind": "command", "arguments": ["sh"], "user": "0:0"}')
        until(lambda: processes(place, THERE) <= before)


def test_it_ends_with_its_run_and_none_starts_after(place) -> None:
    """Last of this file: it ends a run."""
    with asked(place, place.ada, "sh", "-c", "echo up; cat") as opened:
        heard(opened)
        place.sites["left"].runtime.stop(container_name(THERE, 1), 0.0)
        assert isinstance(heard(opened), ExecEnd | ExecRefusal)
    assert "does not run" in refusal(place, place.ada)
