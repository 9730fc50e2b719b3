"""Two teams, two nodes and a laptop, each a network of its own, set up by the documents' lines."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from samples.local_image import BUSYBOX
from tests.support import netns
from tests.support.machines import (
    API,
    DATABASE,
    DOOR,
    FREE,
    GATEWAY,
    HEAD,
    LAPTOP,
    OTHER,
    Machine,
    Site,
    several_machines,
    why_none,
)
from tests.support.site import PATIENCE_S, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.postgresql, pytest.mark.prefect]

CANARY = "only for team vision"
WRITES = f"id -u; echo {CANARY}; echo {CANARY} >$HEADWAY_OUTPUTS/model.pt; echo written; "


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if reason := why_none():
        pytest.skip(reason)
    with several_machines(tmp_path_factory.mktemp("d")) as made:
        yield made


def job(machine: Machine, name: str, program: str, **more: Any) -> str:
    """A job file on *machine*; its path."""
    path = machine.folder / f"{name}.json"
    document = {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", program],
        "resources": {"host_memory": "64MiB", "cpus": 0.1},
        **more,
    }
    path.write_text(json.dumps(document))
    return str(path)


def until(machine: Machine, run: str, *states: str) -> Mapping[str, Any]:
    """Wait until the run is in one of *states*; what it then shows."""

    def seen() -> Mapping[str, Any] | None:
        view: Mapping[str, Any] = machine.json(f"headway show {run}")
        return view if view["state"] in states else None

    found: Mapping[str, Any] = wait_for(seen, lambda: str(machine.json(f"headway show {run}")))
    return found


def test_the_laptop_reaches_the_gateway_and_nothing_else(site: Site) -> None:
    assert site.ada.reaches(DOOR, GATEWAY)
    closed = [(HEAD, API), (DOOR, API), (HEAD, DATABASE), (DOOR, DATABASE)]
    closed += [(HEAD, site.files_port(site.head)), (OTHER, site.files_port(site.other))]
    for host, port in closed:
        assert not site.ada.reaches(host, port), f"{host}:{port}"
    # There is somebody, whom the other node reaches.
    for port in (API, DATABASE, GATEWAY, site.files_port(site.head)):
        assert site.other.reaches(HEAD, port), port


def test_a_member_works_from_there_and_another_team_sees_nothing_of_it(site: Site) -> None:
    ada, bob = site.ada, site.bob
    cpus = next(each["cpus"] for each in ada.json("headway nodes") if each["node"] == "other")
    most = {"resources": {"host_memory": "64MiB", "cpus": cpus * 0.6}}
    path = job(ada, "trains", f"{WRITES} sleep 600", **most)
    run = ada.json(f"headway submit {path} --node other")["run_id"]
    until(ada, run, "Running")
    follows = subprocess.Popen(
        [*ada.enter(), "headway", "logs", "-f", run],
        env=ada.env, cwd=ada.folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert follows.stdout is not None
    uid = int(follows.stdout.readline())
    assert [follows.stdout.readline().strip() for _ in range(2)] == [CANARY, "written"]

    waits = job(ada, "waits", "true", **most)
    second = ada.json(f"headway submit {waits} --node other")["run_id"]
    wait_for(
        lambda: [each["run_id"] for each in ada.json("headway queue")] == [second],
        lambda: str(ada.json("headway queue")),
    )
    assert "cpus" in ada.types(f"headway why {second}").stdout
    assert {each["run_id"] for each in ada.json("headway runs")} == {run, second}

    # What another team is told is what it would be told of a run that never was.
    never = f"{run[:-4]}0000"
    assert bob.json("headway runs") == []
    for command in ("show", "logs", "outputs", "why", "cancel", "retry"):
        told = [bob.types(f"headway {command} {each}", fails=2) for each in (run, never)]
        said, expected = (f"{each.stdout}{each.stderr}" for each in told)
        assert said.replace(run, never) == expected, command
        assert CANARY not in said
    assert run not in json.dumps(bob.json("headway queue"))

    ada.types(f"headway outputs {run} {ada.folder}/fetched")
    assert (ada.folder / "fetched/model.pt").read_text().strip() == CANARY
    for each in (second, run):
        ada.types(f"headway cancel {each}")
        until(ada, each, "Cancelled")
    follows.wait(PATIENCE_S)
    follows.stdout.close()
    # The node that it ran on has a token for data alone.
    refused = site.other.types(f"! headway show {run}").stderr
    assert "needs a token with the scope watch, yours has node" in refused
    assert site.head.json(f"headway show {run}")["state"] == "Cancelled"
    on_disk = site.other.folder / "headway/runs" / run
    look_as_another_user(on_disk, uid)


def look_as_another_user(run: Path, uid: int) -> None:
    """All that the run's program wrote is its team's alone, whoever else looks."""
    wrote = run / "outputs/model.pt"
    assert wrote.stat().st_uid == uid != 0
    for path in (wrote, run / "log/attempt-1.log"):
        tried = ["setpriv", f"--reuid={uid + 1000}", f"--regid={uid + 1000}", "--clear-groups"]
        done = subprocess.run([*tried, "cat", path], capture_output=True, text=True, check=False)
        assert "Permission denied" in done.stderr
        assert CANARY not in done.stdout


def test_a_container_reaches_no_files_no_door_and_no_database(site: Site) -> None:
    """Neither of its own node, nor of the other: only what is no service of the site."""
    files = [site.files_port(machine) for machine in (site.head, site.other)]
    closed = [(HEAD, files[0]), (OTHER, files[1])]
    closed += [(HEAD, port) for port in (GATEWAY, API, DATABASE)]
    tries = " ".join(f"{host}:{port}" for host, port in [*closed, (LAPTOP, FREE)])
    program = f"""\
bridge=$(ip route | sed -n 's/^default via \\([0-9.]*\\) .*/\\1/p')
try() {{ nc -w 3 ${{1%:*}} ${{1#*:}} </dev/null >/dev/null 2>&1 && echo $1; }}
for each in {tries} $bridge:{GATEWAY} $bridge:{files[0]} $bridge:{files[1]}; do try $each & done
wait
echo ${{bridge:+tried}}
"""
    with netns.greeting(site.ada.network, FREE):
        for node in ("head", "other"):
            path = job(site.bob, f"tries-{node}", program)
            run = site.bob.json(f"headway submit {path} --node {node}")["run_id"]
            assert until(site.bob, run, "Completed", "Failed")["state"] == "Completed"
            lines = site.bob.types(f"headway logs {run}").stdout.split()
            assert lines == [f"{LAPTOP}:{FREE}", "tried"], node
