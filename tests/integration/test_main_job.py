"""The main job, end to end, through the public commands."""

import json
import os
import pwd
import signal
import subprocess
from pathlib import Path

import pytest

from headway.errors import shown
from tests.support.site import BIN, ROOT, LiveSite, free_port, sleeper, wait_for

pytestmark = pytest.mark.prefect


def test_a_job_runs_from_submit_to_clean_up(site: LiveSite, tmp_path: Path) -> None:
    program = (
        "import json, os, pathlib\n"
        "print(json.dumps({'headway': {'iteration': 1, 'total': 1, 'metrics': {'loss': 0.5}}}))\n"
        "out = pathlib.Path(os.environ['HEADWAY_OUTPUTS'])\n"
        "rows = pathlib.Path(os.environ['HEADWAY_DATA']).read_text().splitlines()\n"
        "(out / 'metrics.json').write_text(json.dumps({'rows': len(rows)}))\n"
    )
    data = tmp_path / "rows.csv"
    data.write_text("a\nb\nc\n")
    run_id = site.submit(
        tmp_path, name="whole", command=["python", "-c", program], dataset={"uri": str(data)}
    )
    view = site.until(run_id, "Completed", "Failed")
    assert view["state"] == "Completed", view
    assert [step["name"] for step in view["steps"]] == [
        "stage_data", "admit", "train", "update_estimates", "clean_up",
    ]  # fmt: skip
    assert {step["state"] for step in view["steps"]} == {"done"}
    assert view["exit"]["kind"] == "ok"
    assert view["node"] == "test-node"
    assert view["attempt"] == 1
    assert view["demand"]["host_memory_bytes"] == 256 * 2**20
    assert view["measured"]["runtime_s"] > 0
    assert view["measured"]["host_peak_bytes"] > 2**20
    assert view["progress"]["metrics"] == {"loss": 0.5}
    (output,) = view["outputs"]
    assert json.loads(Path(output).read_text()) == {"rows": 3}
    assert_nothing_is_left(site, run_id)


def assert_nothing_is_left(site: LiveSite, run_id: str) -> None:
    """No lease and no process of the run outlives it."""
    wait_for(
        lambda: all(run_id not in node["runs"] for node in site.json("nodes")),
        lambda: f"a lease of {run_id} is left: {site.json('nodes')}",
    )
    assert list((site.home / "containers").glob(f"*{run_id}*")) == []


def test_prefects_own_command_starts_a_run(process_site: LiveSite) -> None:
    params = json.dumps({"job": sleeper(2, owner="ada", team="vision")})
    done = process_site.prefect(
        "deployment", "run", "train/default", "--flow-run-name", "by-prefect", "--params", params
    )
    assert done.returncode == 0, done.stderr
    run_id = wait_for(
        lambda: next(
            (
                r["run_id"]
                for r in process_site.json("runs", "--members")
                if r["name"] == "by-prefect"
            ),
            None,
        ),
        lambda: "the run is not listed",
    )
    assert process_site.until(run_id, "Completed")["exit"]["kind"] == "ok"
    (listed,) = [run for run in process_site.json("runs", "--members") if run["run_id"] == run_id]
    # Whoever knows the API's string is an operator; what such a run says of itself is not believed.
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (listed["name"], listed["owner"], listed["team"]) == ("by-prefect", me, "default")
    assert listed["duration_s"] is not None
    assert run_id in {run["run_id"] for run in process_site.json("runs", "--members", "--mine")}
    assert set(listed) >= {
        "run_id", "name", "state", "node", "runtime", "attempt", "exit",
        "submitted_at", "started_at", "ended_at", "url",
    }  # fmt: skip


def test_the_deployments_default_is_the_digits_sample(process_site: LiveSite) -> None:
    run_id = process_site.start("train/default")
    view = process_site.until(run_id, "Completed", "Failed")
    assert view["state"] == "Completed", view
    # Prefect made up a name; the worker has called it by its job.
    assert view["name"] == "digits"
    assert process_site.show("digits")["run_id"] == run_id
    assert view["progress"]["iteration"] == 30


def test_an_estimate_is_asked_for_as_a_run_is(process_site: LiveSite) -> None:
    """Its parameter had another name than that of `train`, which a training run is known by."""
    ended = process_site.ended(process_site.start("estimate/estimate", job=sleeper(2)))
    assert ended["type"] == "COMPLETED", ended
    assert ended["message"].startswith("the CPU: "), ended


def test_prefect_shows_deployment_and_queue_as_ready(process_site: LiveSite) -> None:
    def states() -> tuple[str, str]:
        deployment = process_site.call("GET", "deployments/name/train/default")
        queue = process_site.call("GET", "work_pools/gpu/queues/default")
        return deployment["status"], queue["status"]

    wait_for(lambda: states() == ("READY", "READY") or None, lambda: str(states()))


def test_watching_ends_with_the_runs_outcome(process_site: LiveSite, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps(sleeper(2)))
    done = process_site.run("submit", str(job), "--watch")
    assert done.returncode == 0, done.stderr
    assert "Completed" in done.stdout
    job.write_text(json.dumps(sleeper(2, command=["python", "-c", "raise SystemExit(3)"])))
    done = process_site.run("submit", str(job), "--watch")
    assert done.returncode == 1
    assert "exit 3" in done.stdout


def test_bad_input_is_one_line_and_nothing_is_queued(
    process_site: LiveSite, tmp_path: Path
) -> None:
    before = len(process_site.json("runs", "--members"))
    job = tmp_path / "job.yaml"
    job.write_text("name: a\nimage: x\ncommand: [python]\nresources:\n  host_memory: -5g\n")
    done = process_site.run("submit", str(job))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f'{job}:5 resources.host_memory: got "-5g"; give a size between')
    job.write_text("name: a\nimage: x\ncommand: [python]\nresources:\n  host_memory: 60TiB\n")
    done = process_site.run("submit", str(job))
    assert done.returncode == 2
    assert "largest node test-node has" in done.stderr
    assert len(process_site.json("runs", "--members")) == before


def test_who_stops_watching_learns_that_the_run_goes_on(
    process_site: LiveSite, tmp_path: Path
) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps(sleeper(400)))
    watching = subprocess.Popen(
        [BIN / "headway", "submit", str(job), "--watch"],
        env=process_site.env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    run_id = watching.stdout.readline().split()[-1]
    process_site.until_training(run_id)
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert watching.returncode == 130, said
    assert "the run goes on; " in said, said  # a busy gateway may be waited for before
    assert f"`headway show {run_id[:8]}`" in said
    assert process_site.show(run_id)["state"] == "Running"
    process_site.run("cancel", run_id)
    view = process_site.until(run_id, "Cancelled")
    me = pwd.getpwuid(os.getuid()).pw_name
    wait_for(
        lambda: (
            process_site.show(run_id)["exit"]
            == {
                "kind": "cancelled",
                "code": None,
                "message": f"cancelled by user {me} (gateway)",
            }
        ),
        lambda: str(process_site.show(run_id)["exit"]),
    )
    assert view["owner"] == me
    mine = ("runs", "--mine", "--state", "cancelled", "--since", "1h", "--name", "sleep")
    assert run_id in {each["run_id"] for each in process_site.json(*mine)}


@pytest.mark.parametrize(
    "place", [("--queue", "no/where"), ("--node", "n9"), ("--pool", "p\x1b[2J\n9")]
)
def test_a_rehearsal_refuses_what_a_submission_would(
    process_site: LiveSite, tmp_path: Path, place: tuple[str, str]
) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps(sleeper(1)))
    refused = [process_site.run("submit", str(job), *place, *dry) for dry in ((), ("--dry-run",))]
    assert [done.returncode for done in refused] == [2, 2]
    assert refused[0].stderr == refused[1].stderr
    assert shown(place[1]) in refused[0].stderr
    assert len(refused[0].stderr.splitlines()) == 1


def test_bad_input_ends_the_flow_with_that_line(process_site: LiveSite) -> None:
    run_id = process_site.start("train/default", job=sleeper(2, ports=[80]))
    view = process_site.until(run_id, "Failed")
    assert view["reason"] == "ports[0]: got 80; give a whole number between 1024 and 65535"


def test_what_does_not_fit_waits_with_its_reason_and_without_a_process(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """Ten jobs of 40 % of the memory there is each: two run, eight wait, none fails, all finish."""
    (node,) = process_site.json("nodes")
    # What others use of the machine comes and goes: of what is left beside it.
    held_back = max(node["host_reserve_bytes"], node["host_used_bytes"] or 0)
    share = (node["host_memory_bytes"] - held_back) * 2 // 5
    demand = {"host_memory": f"{share}B", "cpus": 0.1}
    gate = tmp_path / "gate"
    program = (
        f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.1)"
    )
    runs = [
        process_site.submit(
            tmp_path, name=f"forty-{i}", resources=demand, command=["python", "-c", program]
        )
        for i in range(10)
    ]
    for_two = wait_for(
        lambda: _two_run_eight_wait(_views(process_site, runs)),
        lambda: str([(v["name"], v["state"], v["reason"]) for v in _views(process_site, runs)]),
    )
    waiting = [view for view in for_two if view["state"] == "AwaitingHeadroom"]
    assert all("of host memory; at most" in v["reason"] for v in waiting)
    queue = process_site.json("queue")
    assert [entry["position"] for entry in queue] == list(range(1, len(queue) + 1))
    assert queue[0]["resource"] == "host_memory"
    locks = process_site.home / "state/flows"
    for view in waiting:
        assert not (locks / f"{view['run_id']}.lock").exists()
    waits = queue[0]["run_id"]
    said = wait_for(lambda: process_site.artifacts(waits).get("waiting"), process_site.worker_log)
    assert "of host memory; at most" in said
    assert "number 1 in the queue" in said
    lines = wait_for(
        lambda: [line for line in process_site.logged(waits) if line.startswith("waits: ")],
        lambda: str(process_site.logged(waits)),
    )
    assert lines[0].startswith("waits: needs ")
    assert len(lines) <= 2
    gate.touch()
    for run_id in runs:
        assert process_site.until(run_id, "Completed", "Failed")["state"] == ("Completed")
    wait_for(
        lambda: process_site.artifacts(waits)["waiting"].startswith("It waits no more"),
        lambda: str(process_site.artifacts(waits)),
    )


def _two_run_eight_wait(views: list[dict[str, str]]) -> list[dict[str, str]] | None:
    states = sorted(view["state"] for view in views)
    return views if states == ["AwaitingHeadroom"] * 8 + ["Running"] * 2 else None


def _views(site: LiveSite, runs: list[str]) -> list[dict[str, str]]:
    listed = {run["run_id"]: run for run in site.json("runs", "--members")}
    return [listed[run_id] for run_id in runs]


def test_a_time_limit_ends_the_run(process_site: LiveSite, tmp_path: Path) -> None:
    command = ["python", "-c", "import time; time.sleep(60)"]
    run_id = process_site.submit(tmp_path, name="limited", command=command, max_runtime="2s")
    view = process_site.until(run_id, "TimedOut", "Completed", "Failed")
    assert view["state"] == "TimedOut"
    assert view["exit"]["kind"] == "timed_out"
    assert view["measured"]["runtime_s"] < 60  # as long as its program would have slept
    # The step was green although its program had been killed.
    steps = {step["name"]: step["state"] for step in view["steps"]}
    assert steps == {name: "failed" if name == "train" else "done" for name in steps}
    asked = {"flow_runs": {"id": {"any_": [run_id]}}}
    shown = wait_for(  # Prefect learns of a task's end by an event
        lambda: (
            found
            if set(
                found := {
                    t["name"]: t["state_type"]
                    for t in process_site._post("task_runs/filter", asked)
                }
            )
            >= set(steps)
            and set(found.values()) <= {"COMPLETED", "FAILED"}
            else None
        ),
        lambda: str(process_site._post("task_runs/filter", asked)),
    )
    assert [name for name, state in shown.items() if state == "FAILED"] == ["train"]


def test_a_run_killed_for_memory_comes_back_with_more(site: LiveSite, tmp_path: Path) -> None:
    """64 MiB are too few; how many attempts it takes hangs on the peak that was seen."""
    command = [
        "python",
        "-c",
        "import time; x = bytearray(120_000_000); time.sleep(1); print(len(x))",
    ]
    resources = {"host_memory": "64MiB", "cpus": 0.25}
    run_id = site.submit(tmp_path, name="hungry", command=command, resources=resources)
    view = site.until(run_id, "Completed", "Failed")
    assert view["state"] == "Completed", view
    assert view["attempt"] in {2, 3}
    assert view["demand"]["host_memory_basis"] == "retry"
    assert 120_000_000 < view["demand"]["host_memory_bytes"] < 256 * 2**20
    first = site.show(run_id)["attempts"][0]["exit"]["message"]
    assert "it is tried again with" in first, first
    assert_nothing_is_left(site, run_id)


@pytest.mark.docker
def test_a_failed_run_says_its_last_words(docker_site: LiveSite, tmp_path: Path) -> None:
    program = "print('loading', flush=True); raise SystemError('no more disks')"
    run_id = docker_site.submit(tmp_path, name="fails", command=["python", "-c", program])
    view = docker_site.until(run_id, "Failed")
    said = 'the program failed (exit 1): "SystemError: no more disks"; look at the end of its log'
    assert view["exit"]["message"] == said
    assert view["reason"] == said


def test_a_missing_image_is_the_users_to_correct(docker_site: LiveSite, tmp_path: Path) -> None:
    run_id = docker_site.submit(tmp_path, name="no-image", image="headway-test/none:missing")
    view = docker_site.until(run_id, "Failed")
    assert view["exit"]["kind"] == "refused"
    assert "headway-test/none:missing" in view["reason"]
    assert_nothing_is_left(docker_site, run_id)


def test_missing_data_is_the_users_to_correct(process_site: LiveSite, tmp_path: Path) -> None:
    wrong = sleeper(name="no-data", dataset={"uri": str(tmp_path / "none")})
    job = tmp_path / "job.json"
    for key, value in (("dataset", wrong["dataset"]), ("secrets", {"TOKEN": "no-such-block"})):
        job.write_text(json.dumps(sleeper(name="no-data") | {key: value}))
        for more in ((), ("--dry-run",)):
            done = process_site.run("submit", str(job), *more)
            assert done.returncode == 2, done
            assert f"{job}:" in done.stderr
            assert f" {key}." in done.stderr
    # Who submits it otherwise learns it from the run.
    run_id = process_site.start("train/default", job=wrong)
    view = process_site.until(run_id, "Failed")
    assert "dataset.uri" in view["reason"]
    assert (view["exit"]["kind"], view["exit"]["message"]) == ("refused", view["reason"])
    assert_nothing_is_left(process_site, run_id)


@pytest.mark.docker
def test_the_log_is_whole(docker_site: LiveSite, tmp_path: Path) -> None:
    command = ["python", "-c", "for i in range(20000): print('line', i)"]
    run_id = docker_site.submit(tmp_path, name="talker", command=command)
    docker_site.until(run_id, "Completed")
    done = docker_site.run("logs", run_id)
    assert done.stdout.splitlines() == [f"line {i}" for i in range(20000)]


def test_the_doctor_finds_a_healthy_site(process_site: LiveSite) -> None:
    findings = process_site.json("doctor")
    assert all(finding["ok"] for finding in findings), findings


def test_an_absent_site_is_said_so(tmp_path: Path) -> None:
    absent = LiveSite(tmp_path, "process", free_port())
    done = absent.run("runs")
    assert done.returncode == 3
    assert "headway up" in done.stderr
    assert "Traceback" not in done.stderr


PATIENT = """\
import os, pathlib, signal, sys, time
checkpoint = pathlib.Path(os.environ["HEADWAY_CHECKPOINT"]) / "step"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("from step", step, flush=True)
def save(*_):
    checkpoint.write_text("7")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
time.sleep(0.1 if step else 60)
"""


@pytest.mark.docker
def test_a_preempted_run_goes_on_from_its_checkpoint(docker_site: LiveSite, tmp_path: Path) -> None:
    docker_site.call("POST", "work_pools/gpu/queues", {"name": "urgent", "priority": 1})
    (node,) = docker_site.json("nodes")
    most = {"host_memory": f"{node['host_memory_bytes'] * 3 // 5}B", "cpus": 0.1}
    low = docker_site.submit(
        tmp_path,
        name="patient",
        command=["python", "-c", PATIENT],
        resources=most,
        preemptible=True,
        retries=0,
    )
    docker_site.until(low, "Running")
    wait_for(
        lambda: "from step 0" in docker_site.run("logs", low).stdout,
        lambda: docker_site.run("logs", low).stdout,
    )
    path = tmp_path / "urgent.json"
    path.write_text(json.dumps(sleeper(2, name="urgent", resources=most)))
    high = docker_site.json("submit", str(path), "--queue", "urgent")["run_id"]
    assert docker_site.until(high, "Completed", "Failed")["state"] == "Completed"
    view = docker_site.until(low, "Completed", "Failed")
    assert (view["state"], view["attempt"]) == ("Completed", 2), view
    assert "from step 7" in docker_site.run("logs", low).stdout
    assert_nothing_is_left(docker_site, low)
