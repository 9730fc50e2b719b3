"""A job over two nodes: both parts start together or neither, and end together."""

import json
import signal
from contextlib import closing
from typing import Any

import psutil
import pytest

from headway.ledger import Ledger
from headway.model.job_text import job_from_document
from headway.model.trace import Trace
from tests.support.nodes import KINDS
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = [pytest.mark.postgresql, pytest.mark.prefect]

NAMES = ("head", "middle")
"""Nodes whose GPUs have the memory that the jobs here ask for."""
MEET = """\
import os, socket, sys, time
rank = int(os.environ["PET_NODE_RANK"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where) as server:
        peer, _ = server.accept()
        print("heard", peer.recv(100).decode(), flush=True)
else:
    for _ in range(300):
        try:
            peer = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(f"rank {rank} of {os.environ['HEADWAY_NODES']}".encode())
time.sleep(float(sys.argv[1]))
"""
FAIL = """\
import os, sys, time
if os.environ["HEADWAY_NODE_RANK"] == "1":
    sys.exit(3)
time.sleep(120)
"""

ELASTIC = """\
import os, pathlib, time
kept = pathlib.Path(os.environ["HEADWAY_CHECKPOINT"], "nodes")
nodes, rank = os.environ["PET_NNODES"], os.environ["PET_NODE_RANK"]
if rank == "0" and not kept.exists():
    kept.write_text(nodes)
if os.environ["HEADWAY_ATTEMPT"] == "1":
    time.sleep(120)
if rank == "0":
    print(f"{nodes} nodes, after {kept.read_text()}", flush=True)
"""


GROWS = """\
import json, os, pathlib, time
kept = pathlib.Path(os.environ["HEADWAY_CHECKPOINT"], "nodes")
nodes, rank = os.environ["HEADWAY_NODES"], os.environ["HEADWAY_NODE_RANK"]
if rank == "0" and kept.exists():
    print(f"{nodes} nodes, after {kept.read_text()}", flush=True)
for done in range(1, 6001 if os.environ["HEADWAY_ATTEMPT"] == "1" else 2):
    if rank == "0":
        print(json.dumps({"headway": {"iteration": done, "total": 6000}}), flush=True)
        kept.write_text(nodes)
    time.sleep(0.1)
"""


def job(program: str, *arguments: str, **more: Any) -> dict[str, Any]:
    wants = {"gpus": 2, "gpu_memory": "30GiB", "sharing": "whole", "host_memory": "64MiB"}
    return sleeper() | {
        "command": ["python", "-c", program, *arguments],
        "resources": wants | {"cpus": 0.05, "nodes": 2} | more.pop("resources", {}),
        **more,
    }


def nobody_holds_anything(site: LiveSite) -> bool:
    return all(not node["runs"] for node in site.json("nodes"))


def test_both_parts_find_the_code_that_was_sent_meet_and_end_together(
    three_nodes, tmp_path
) -> None:
    head, project = three_nodes["head"], tmp_path / "project"
    project.mkdir()
    (project / "helper.py").write_text("WORD = 'sent along'\n")
    program = f"import helper; print(helper.WORD, flush=True)\n{MEET}"
    run_id = head.submit(project, **job(program, "1", name="pair", workdir="."))
    view = head.until(run_id, "Completed", "Failed")
    assert view["state"] == "Completed", view
    (rank,) = view["ranks"]
    assert {view["node"], rank["node"]} == set(NAMES)
    assert rank["exit"]["kind"] == "ok"
    log = three_nodes[view["node"]].home / "runs" / run_id / "log/attempt-1.log"
    assert log.read_text() == "sent along\nheard rank 1 of 2\n"
    assert "sent along" in head.run("logs", rank["run_id"]).stdout
    part = head.until(rank["run_id"], "Completed")
    assert part["name"] == "pair-rank1"
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))


def test_the_failure_of_one_part_ends_the_other_and_is_named(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    run_id = head.submit(tmp_path, **job(FAIL, name="halves"))
    view = head.until(run_id, "Completed", "Failed")
    assert view["state"] == "Failed", view
    assert view["exit"]["kind"] == "failed"
    assert view["exit"]["message"].startswith(f"rank 1 on {view['ranks'][0]['node']}: ")
    assert view["attempt"] == 1
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))


def test_a_gang_holds_nothing_until_all_of_it_can_start(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    blocker = job("import time; time.sleep(600)", name="blocker", resources={"nodes": 1})
    first = head.submit(tmp_path, **blocker)
    head.until(first, "Running")
    run_id = head.submit(tmp_path, **job(MEET, "0", name="patient"))
    head.until(run_id, "AwaitingHeadroom")
    said = wait_for(
        lambda: reason if "2 nodes" in (reason := head.show(run_id)["reason"]) else None,
        lambda: head.show(run_id)["reason"],
    )
    assert said.startswith("needs 2 nodes at once with 2 GPU(s) on each; 1 has room now")
    held = [run for node in head.json("nodes") for run in node["runs"]]
    assert held == [first]
    assert head.run("cancel", first).returncode == 0
    assert head.until(run_id, "Completed", "Failed")["state"] == "Completed"


def test_a_part_whose_flow_dies_goes_on_and_one_whose_program_dies_starts_all_anew(
    three_nodes, tmp_path
) -> None:
    head = three_nodes["head"]
    run_id = head.submit(tmp_path, **job(MEET, "10", name="tough"))
    (rank,) = all_run(head, run_id, 2)["ranks"]
    there = three_nodes[rank["node"]]
    there.kill(there.flow_pid(rank["run_id"]))
    assert head.until(run_id, "Completed", "Failed")["state"] == "Completed"
    assert head.show(run_id)["attempt"] == 1

    run_id = head.submit(tmp_path, **job(MEET, "30", name="tougher"))
    (rank,) = all_run(head, run_id, 2)["ranks"]
    status = three_nodes[rank["node"]]
    status.kill(_program(status, rank["run_id"]), signal.SIGKILL)
    view = head.until(run_id, "Completed", "Failed")
    assert (view["state"], view["attempt"]) == ("Completed", 2), view


def test_an_elastic_gang_that_loses_a_node_goes_on_with_those_that_are_left(
    three_nodes, tmp_path
) -> None:
    """From its checkpoint, on the node that has it."""
    head = three_nodes["head"]
    wants = {"nodes": "2-3", "gpus": 1, "gpu_memory": "1GiB"}
    asked = job(ELASTIC, name="elastic", resources=wants, stop_grace="1s")
    more_nodes_pay(head, asked)
    run_id = head.submit(tmp_path, **asked)
    view = all_run(head, run_id, 3)
    assert view["size"] == "3 nodes with 1 GPU each"
    gone = view["ranks"][1]
    assert head.run("node", "drain", gone["node"]).returncode == 0
    try:
        there = three_nodes[gone["node"]]
        there.kill(_program(there, gone["run_id"]), signal.SIGKILL)
        again = head.until(run_id, "Completed", "Failed")
    finally:
        head.run("node", "resume", gone["node"])
    assert (again["state"], again["attempt"]) == ("Completed", 2), again
    assert [each["size"] for each in again["attempts"]] == [
        "3 nodes with 1 GPU each",
        "2 nodes with 1 GPU each",
    ]
    assert again["node"] == view["node"]
    assert "2 nodes, after 3" in head.run("logs", run_id).stdout
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))


def test_a_gang_that_is_cancelled_leaves_nothing_on_any_of_its_nodes(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    run_id = head.submit(tmp_path, **job(MEET, "600", name="unwanted"))
    view = all_run(head, run_id, 2)
    (rank,) = view["ranks"]
    parts = ((view["node"], run_id), (rank["node"], rank["run_id"]))

    def left() -> list[object]:
        return [
            *(each for _, part in parts for each in _processes(part)),
            *(
                each
                for node, part in parts
                for each in (three_nodes[node].home / "containers").glob(f"*{part}*")
            ),
        ]

    assert len(left()) > 2  # beside the containers
    assert head.run("cancel", run_id).returncode == 0
    for part in (run_id, rank["run_id"]):
        seen = head.until(part, "Cancelled")
        assert (seen["exit"]["kind"], seen["attempt"]) == ("cancelled", 1), seen
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))
    wait_for(lambda: not left(), lambda: str(left()))


@pytest.mark.long
def test_a_gang_goes_on_where_the_worker_of_a_part_is_killed(three_nodes, tmp_path) -> None:
    """Its supervisor brings it back; the part is begun once, and ends with the others."""
    head = three_nodes["head"]
    run_id = head.submit(tmp_path, **job(MEET, "15", name="unmoved"))
    view = all_run(head, run_id, 2)
    (rank,) = view["ranks"]
    assert {view["node"], rank["node"]} == set(NAMES)
    here = run_id if view["node"] == "head" else rank["run_id"]
    before, program = head.worker_pid(), _program(head, here)
    head.kill(before)
    wait_for(lambda: head.worker_pid() != before, head.worker_log)
    assert _program(head, here) == program
    for part in (run_id, rank["run_id"]):
        seen = head.until(part, "Completed", "Failed")
        assert (seen["state"], len(seen["attempts"])) == ("Completed", 1), seen
    assert [each["run_id"] for each in head.show(run_id)["ranks"]] == [rank["run_id"]]
    assert "heard rank 1 of 2" in head.run("logs", run_id).stdout
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))


@pytest.mark.long
def test_a_gang_grows_from_its_checkpoint_where_room_comes_free(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    blocker = sleeper(
        2400, name="in-the-way",
        resources={"gpus": 2, "gpu_type": "V100", "sharing": "whole", "host_memory": "64MiB",
                   "cpus": 0.05},
    )  # fmt: skip
    first = head.submit(tmp_path, **blocker)
    head.until(first, "Running")
    wants = {"nodes": "2-3", "gpus": 1, "gpu_memory": "1GiB"}
    asked = job(GROWS, name="grows", resources=wants, preemptible=True, stop_grace="1s")
    more_nodes_pay(head, asked)
    run_id = head.submit(tmp_path, **asked)
    view = all_run(head, run_id, 2)
    assert view["size"] == "2 nodes with 1 GPU each"
    assert head.run("cancel", first).returncode == 0
    again = head.until(run_id, "Completed", "Failed")
    assert (again["state"], again["attempt"]) == ("Completed", 2), again
    assert [(each["size"], each["exit"]["kind"]) for each in again["attempts"]] == [
        ("2 nodes with 1 GPU each", "preempted"),
        ("3 nodes with 1 GPU each", "ok"),
    ]
    assert again["node"] == view["node"], "where its checkpoint is"
    assert "3 nodes, after 2" in head.run("logs", run_id).stdout
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))


def test_what_two_nodes_could_never_hold_is_refused(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(job(MEET, "0", name="wide", resources={"nodes": 3})))
    refused = head.run("submit", str(path))
    assert refused.returncode == 2
    assert "resources.nodes" in refused.stderr
    assert "there are 2 that could take a part" in refused.stderr


def all_run(site: LiveSite, run_id: str, parts: int) -> dict[str, Any]:
    """Wait until the gang's *parts* run; what `show` then says."""

    def seen() -> dict[str, Any] | None:
        view = site.show(run_id)
        ranks = view.get("ranks") or ()
        running = all(rank["state"] == "Running" for rank in ranks)
        return view if len(ranks) == parts - 1 and running else None

    found: dict[str, Any] = wait_for(seen, lambda: str(site.show(run_id)))
    return found


def more_nodes_pay(site: LiveSite, asked: dict[str, Any]) -> None:
    """Let the ledger have runs of this recipe on two and on three nodes, faster on three."""
    recipe = job_from_document(asked).recipe()
    with closing(Ledger.open(site.env["HEADWAY_LEDGER_URL"])) as ledger:
        for nodes in (2, 3):
            ledger.traces.add([
                Trace(recipe, KINDS["left"].product, nodes, None, nodes=nodes, cpus=0.05,
                      runtime_s=3600.0 / nodes, recipe=recipe, run_id=f"{asked['name']}-{nodes}")
            ])  # fmt: skip


def _processes(run_id: str) -> list[psutil.Process]:
    """Those of the run's program, on any node."""
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if (process.info["environ"] or {}).get("HEADWAY_RUN_ID") == run_id
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def _program(site: LiveSite, run_id: str) -> int:
    """Pid of the part's program on the process runtime, once it has begun."""

    def pid() -> int | None:
        return next((each.pid for each in _processes(run_id) if "-c" in each.cmdline()), None)

    return int(wait_for(pid, lambda: f"no program of run {run_id}\n{site.worker_log()}"))
