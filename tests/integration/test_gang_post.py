"""What parts of a gang ask each other to run, on a real ledger; their programs run here."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.errors import LeaseLost
from headway.ledger.gang_asks import MOST_ASKS
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.launch import Launch
from headway.model.lease import Demand
from headway.run.attempt import Attempt
from headway.run.gang_folder import GangPost, asks_folder, command_of, entry_of, gang_folder, tell
from headway.run.rendezvous import Meeting
from headway.runtime.errors import RuntimeFailure
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.support import mpi_image, netns
from tests.support.leading import grant_in_term
from tests.support.postgresql import new_ledger
from tests.support.queued import enqueue

GANG, RANK = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
PLACES = ["10.0.0.5:29500", "10.0.0.6:29500"]
HOROVODRUN = """\
import subprocess, sys
hosts = [line.split() for line in open(sys.argv[1])]
common = f"HOROVOD_SIZE={len(hosts)} HOROVOD_GLOO_RENDEZVOUS_ADDR={hosts[0][0]}"
for rank, (host, slots) in enumerate(hosts[1:], 1):
    own = f"{common} HOROVOD_RANK={rank} HOROVOD_LOCAL_RANK=0 HOROVOD_HOSTNAME={host}"
    check = ["ssh", "-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=no", host]
    assert subprocess.call([*check, "-o", "ConnectTimeout=10", "true"]) == 0
    command = f"cd {sys.argv[2]} > /dev/null 2>&1 ; {own} sh -c 'env | grep HOROVOD_ > told'"
    assert subprocess.call([*check, command]) == 0
"""
"""Starts other ranks as Horovod 0.28's `horovodrun` does with gloo, and no more.

Horovod itself has to be built, and is tried by `benchmarks/gang_curves.py`.
"""


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[Attempt, Attempt]]:
    """Rank 0 and rank 1 of a gang whose containers would run."""
    url = SecretStr(new_ledger())
    homes = [
        Settings(home=tmp_path / name, runtime="process", node=name, ledger_url=url)
        for name in ("head", "one")
    ]
    head = Site(homes[0], SystemClock())
    join_site(head)
    node = replace(head.ledger.nodes.all()[0].node, name="one")
    head.ledger.nodes.register(node, boot_id="b", worker_token="w")
    job = TrainingJob(
        name="gang",
        image="image:1",
        command=[sys.executable, "-c", HOROVODRUN, "{hosts}", str(tmp_path)],
        launch=Launch.HOROVOD,
        resources=Resources(nodes=2, host_memory="64MiB", cpus=0.1),
    )
    enqueue(head, GANG, job)
    demand = Demand(host_memory_bytes=64 * MIB, cpus=0.1)
    grant_in_term(head.ledger, GANG, "head", demand, ttl_s=600.0, others=["one"])
    (held,) = head.ledger.leases.untaken(GANG)
    head.ledger.leases.take(held.lease_id, GANG, 1, RANK)
    first = Attempt(head, GANG, Meeting(GANG, 1, "10.0.0.5", 29500, 0, 2))
    meeting = Meeting(GANG, 1, "10.0.0.5", 29500, 1, 2)
    other = Attempt(Site(homes[1], SystemClock()), RANK, meeting)
    for attempt, place in zip((first, other), PLACES, strict=True):
        attempt.folder.parent.mkdir(parents=True, exist_ok=True)
        attempt.site.ledger.runs.placed(attempt.fence, place)
    yield first, other
    for attempt in (first, other):
        attempt.site.ledger.close()


@contextmanager
def program(attempt: Attempt, **env: str) -> Iterator[subprocess.Popen[str]]:
    """The program of *attempt* as its container would start it."""
    words, _ = entry_of(attempt)
    env |= {"PATH": os.environ["PATH"]}
    with subprocess.Popen(
        [*words, *command_of(attempt)], env=env, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


def posts(first: Attempt, other: Attempt) -> list[GangPost]:
    return [GangPost(first, GANG, 0), GangPost(other, GANG, 1)]


def test_a_launcher_starts_its_processes_in_other_parts_as_it_would_by_ssh(
    parts: tuple[Attempt, Attempt], tmp_path: Path
) -> None:
    with program(parts[0]) as launcher, program(parts[1]):
        for rank, attempt in enumerate(parts):
            tell(attempt, PLACES, rank)
        # On a node without an engine other teams' programs pass the folder above.
        seen = gang_folder(parts[0]).stat()
        gid = int((parts[0].user or f":{seen.st_gid}").split(":")[1])
        told = gang_folder(parts[0])
        assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o777) == (os.geteuid(), gid, 0o750)
        for each in (told / "go", told / "hosts", told / "bin/ssh"):
            assert (each.stat().st_gid, each.stat().st_mode & 0o007) == (gid, 0)
        assert (gang_folder(parts[0]) / "hosts").read_text() == (
            "10.0.0.5 slots=1\n10.0.0.6 slots=1\n"
        )
        both, end = posts(*parts), time.monotonic() + 60
        while launcher.poll() is None and time.monotonic() < end:
            for each in both:
                each.pass_on()
            time.sleep(0.05)
        assert launcher.wait(0) == 0, launcher.communicate()[0]
    told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines())
    assert told == {
        "HOROVOD_RANK": "1",
        "HOROVOD_SIZE": "2",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_HOSTNAME": "10.0.0.6",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.5",
    }
    parts[0].site.ledger.gang_asks.forget(GANG, 1)
    assert parts[0].site.ledger.gang_asks.of(GANG, 1) == []


def ask(attempt: Attempt, name: str, text: str) -> None:
    (asks_folder(attempt) / f"{name}.ask").write_text(text)


def answer(attempt: Attempt, name: str) -> str:
    return (gang_folder(attempt) / f"{name}.exit").read_text()


def test_who_asks_for_another_host_or_too_often_is_told_so(parts: tuple[Attempt, Attempt]) -> None:
    first, _ = parts
    for attempt in parts:
        entry_of(attempt)
    post = posts(*parts)[0]
    ask(first, "away", "192.0.2.7\nid")
    ask(first, "link", "10.0.0.6\nid")
    (asks_folder(first) / "link.ask").unlink()
    (asks_folder(first) / "link.ask").symlink_to("/etc/passwd")
    (asks_folder(first) / "..ask").write_text("10.0.0.6\nid")
    post.pass_on()
    assert (answer(first, "away"), answer(first, "link")) == ("255", "255")
    assert first.site.ledger.gang_asks.of(GANG, 1) == []
    asks = first.site.ledger.gang_asks
    for number in range(MOST_ASKS):
        assert asks.ask(first.fence, f"n{number}", 1, "true")
    ask(first, "more", "10.0.0.6\nid")
    post.pass_on()
    assert answer(first, "more") == "255"
    assert len(asks.of(GANG, 1)) == MOST_ASKS


def test_only_the_part_that_was_asked_says_how_it_ended(
    ledger_url: str, parts: tuple[Attempt, Attempt]
) -> None:
    first, other = parts
    asks = first.site.ledger.gang_asks
    assert asks.ask(first.fence, "a", 1, "true")
    assert asks.ask(first.fence, "a", 1, "true")
    (found,) = asks.of(GANG, 1)
    with pytest.raises(LeaseLost):
        asks.ended(first.fence, found.ask_id, 0)
    asks.ended(other.fence, found.ask_id, 3)
    asks.ended(other.fence, found.ask_id, 0)
    assert asks.of(GANG, 1)[0].exit_code == 3
    with pytest.raises(LeaseLost):
        asks.ask(replace(first.fence, token="another gang's"), "b", 1, "true")


def test_nothing_that_programs_write_stops_their_flows(
    ledger_url: str, parts: tuple[Attempt, Attempt]
) -> None:
    first, other = parts
    for attempt in parts:
        entry_of(attempt)
    asks, (post, others) = first.site.ledger.gang_asks, posts(first, other)
    ask(first, "nul", "10.0.0.6\na\0b")
    post.pass_on()
    assert answer(first, "nul") == "255"
    codes = {"9" * 5000: 255, "-1": 255, "\u00b2": 255, "": 255, "7\n": 7, "137 oom\n": 137}
    for number, told in enumerate(codes):
        ask(first, f"n{number}", "10.0.0.6\ntrue")
        post.pass_on()
        name = asks.of(GANG, 1)[-1].ask_id
        (asks_folder(other) / f"{name}.done").write_text(told)
    others.pass_on()
    assert [each.exit_code for each in asks.of(GANG, 1)] == list(codes.values())
    assert [each.ran_out for each in asks.of(GANG, 1)] == [False] * 5 + [True]
    asks.forget(GANG, 1)
    asks.ended(other.fence, 1, 0)  # rank 0 has ended meanwhile


def test_parts_at_one_address_cannot_be_told_apart(parts: tuple[Attempt, Attempt]) -> None:
    entry_of(parts[0])
    with pytest.raises(RuntimeFailure, match="share an address"):
        tell(parts[0], ["127.0.0.1:29500", "127.0.0.1:29501"], 0)


def asking(attempt: Attempt, command: str, host: str = "10.0.0.6") -> None:
    """Let rank 0's program ask rank 1 for *command*, and end as that does."""
    ask_it = f"import subprocess, sys; sys.exit(subprocess.call(['ssh', {host!r}, {command!r}]))"
    words = [sys.executable, "-c", ask_it]
    attempt.job = attempt.job.model_copy(update={"command": words})


def passed_on(parts: tuple[Attempt, Attempt], until: Callable[[], bool]) -> None:
    for rank, attempt in enumerate(parts):
        tell(attempt, PLACES, rank)
    both, end = posts(*parts), time.monotonic() + 60
    while not until() and time.monotonic() < end:
        for each in both:
            each.pass_on()
        time.sleep(0.05)
    assert until()


def test_a_process_that_is_killed_in_another_part_ends_the_launcher_by_its_status(
    parts: tuple[Attempt, Attempt],
) -> None:
    asking(parts[0], "kill -9 $$", host="root@10.0.0.6")
    with program(parts[0]) as launcher, program(parts[1]):
        passed_on(parts, lambda: launcher.poll() is not None)
        assert launcher.returncode == 128 + signal.SIGKILL


def test_a_part_that_is_stopped_takes_all_with_it_that_it_was_asked_to_run(
    parts: tuple[Attempt, Attempt], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    asking(parts[0], f"sleep 300 & echo $! > {note}.part; mv {note}.part {note}; wait")
    with program(parts[0]) as launcher, program(parts[1]) as served:
        passed_on(parts, note.exists)
        process = psutil.Process(int(note.read_text()))
        served.terminate()
        assert served.wait(30) == 0
        psutil.wait_procs([process], 30)
        assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        os.killpg(launcher.pid, signal.SIGKILL)  # its ssh waits for an answer


def test_a_command_is_passed_on_whole_or_not_at_all(parts: tuple[Attempt, Attempt]) -> None:
    """A part of one is another command, as is one with other characters in it."""
    for attempt in parts:
        entry_of(attempt)
    first, (post, _) = parts[0], posts(*parts)
    ask(first, "long", "10.0.0.6\n" + "x" * 65_536)
    (asks_folder(first) / "latin.ask").write_bytes(b"10.0.0.6\ncd /caf\xe9 && rm -r .")
    ask(first, "away", "192.0.2.7\nid")
    post.pass_on()
    assert first.site.ledger.gang_asks.of(GANG, 1) == []
    assert [answer(first, name) for name in ("long", "latin", "away")] == ["255"] * 3
    told = [(gang_folder(first) / f"{name}.why").read_text() for name in ("long", "away")]
    assert told[0] == "the command is no text, or longer than 64 KiB"
    assert told[1] == "it is the address of no part of this gang"


def test_what_a_part_asks_for_costs_the_ledger_once(parts: tuple[Attempt, Attempt]) -> None:
    """A thousand commands of 64 KiB, looked for by each part twice a second, are 100 MiB/s."""
    for attempt in parts:
        entry_of(attempt)
    first, other = parts
    asks, (post, others) = first.site.ledger.gang_asks, posts(first, other)
    ask(first, "a", "10.0.0.6\ntrue")
    post.pass_on()
    read: list[int] = []
    whole, refused = other.site.ledger.gang_asks.command, asks.ask

    def counted(ask_id: int) -> str | None:
        read.append(ask_id)
        return whole(ask_id)

    other.site.ledger.gang_asks.command = counted  # type: ignore[method-assign]
    for _ in range(3):
        others.pass_on()
    (found,) = asks.of(GANG, 1)
    assert read == [found.ask_id]
    assert (gang_folder(other) / f"{found.ask_id}.run").read_text() == "true"

    tried: list[str] = []

    def full(*given: object) -> bool:
        tried.append(str(given[1]))
        return False

    asks.ask = full  # type: ignore[assignment,method-assign]
    for number in range(3):
        ask(first, f"n{number}", "10.0.0.6\ntrue")
        post.pass_on()
        assert answer(first, f"n{number}") == "255"
    asks.ask = refused  # type: ignore[method-assign]
    assert tried == ["n0"], "a program that goes on asking costs its own flow alone"


def test_what_a_part_was_asked_to_run_has_its_grace_time(
    parts: tuple[Attempt, Attempt], tmp_path: Path
) -> None:
    begun, saved = tmp_path / "begun", tmp_path / "saved"
    save = f"sleep 1; echo > {saved}; exit 0"
    asking(parts[0], f"trap '{save}' TERM; echo > {begun}; sleep 300 & wait; wait")
    with program(parts[0]) as launcher, program(parts[1]) as served:
        passed_on(parts, begun.exists)
        served.terminate()
        assert served.wait(60) == 0
        assert saved.exists(), "its container ends with the main process"
        os.killpg(launcher.pid, signal.SIGKILL)


def test_an_ssh_that_fails_says_why(parts: tuple[Attempt, Attempt]) -> None:
    words = [sys.executable, "-c", "import subprocess; subprocess.call(['ssh', '-p', '22', 'x'])"]
    parts[0].job = parts[0].job.model_copy(update={"command": words})
    with program(parts[0]) as launcher, program(parts[1]):
        passed_on(parts, lambda: launcher.poll() is not None)
        assert launcher.communicate()[0] == "ssh: x: it is the address of no part of this gang\n"


@pytest.fixture
def machines() -> Iterator[tuple[str, str]]:
    """The networks of two machines, joined by a cable, each with a bridge as Docker makes it."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    first, other = (f"hw-mpi-{name}-{os.getpid()}" for name in ("a", "b"))
    with netns.namespace(first), netns.namespace(other):
        netns.cable(first, "10.0.0.5/24", other, "10.0.0.6/24")
        for name in (first, other):
            netns.ip("-n", name, "link", "add", "docker0", "type", "bridge")
            netns.ip("-n", name, "addr", "add", "172.17.0.1/16", "dev", "docker0")
            netns.ip("-n", name, "link", "set", "docker0", "up")
        yield first, other


def test_open_mpi_uses_the_network_that_leads_to_the_other_parts(
    parts: tuple[Attempt, Attempt], machines: tuple[str, str], tmp_path: Path
) -> None:
    if reason := mpi_image.why_none():
        pytest.skip(reason)
    command = ["mpirun", "-n", "2", sys.executable, "-c", mpi_image.SUM]
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with ExitStack() as stack:
        begun = []
        for number, (attempt, network) in enumerate(zip(parts, machines, strict=True)):
            attempt.job = attempt.job.model_copy(update={"launch": Launch.MPI, "command": command})
            (own := tmp_path / f"tmp{number}").mkdir()
            with netns.inside(network):
                begun.append(stack.enter_context(program(attempt, TMPDIR=str(own), **as_root)))
        # The end of its daemon is passed on last.
        told = gang_folder(parts[0])
        passed_on(parts, lambda: begun[0].poll() is not None and any(told.glob("*.exit")))
        said = begun[0].communicate()[0]
        assert begun[0].returncode == 0, said
    assert sorted(line.split()[:4] for line in said.splitlines() if line.startswith("rank")) == [
        ["rank", "0", "has", "21"],
        ["rank", "1", "has", "21"],
    ]


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({}, "10.0.0.4/30"),
        ({"command": ["mpirun", "--mca", "btl_tcp_if_exclude", "ib0,lo", "a.out"]}, None),
        ({"env": {"OMPI_MCA_btl_tcp_if_include": "ib0"}}, None),
    ],
)
def test_who_chooses_networks_for_open_mpi_is_not_told_any(
    parts: tuple[Attempt, Attempt], chosen: dict[str, Any], told: str | None
) -> None:
    first, _ = parts
    first.job = first.job.model_copy(update=chosen)
    entry_of(first)
    tell(first, PLACES, 0)
    go = (gang_folder(first) / "go").read_text()
    assert (f"export OMPI_MCA_btl_tcp_if_include={told}\n" in go) is (told is not None)
    assert ("_if_include" in go) is (told is not None)
