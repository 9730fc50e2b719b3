"""What other tools submit: each sample as it is, and what becomes of errors and cancellation."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import httpx
import joblib
import psij
import pytest
import submitit

import headway
from headway.bridges import joblib_backend
from headway.bridges.calls import RemoteTraceback
from headway.errors import InvalidInput, RunFailed
from tests.ports.runtime_harness import until
from tests.support.site import BIN, ROOT, LiveSite, free_port, wait_for

pytestmark = pytest.mark.prefect

SMALL = {"cpus": 0.25}
SAMPLES = {
    "functions": "[1024.0, 27.0]",
    "grid_search": "{'C': 1.0}",
    "submitit_functions": "[2.0, 3.0]",
    "study": "2",
    "psij_job": "hello",
}


@pytest.fixture(autouse=True)
def _come_in(process_site: LiveSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in process_site.at_the_gateway().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_sample_does_what_it_says(name: str, tmp_path: Path) -> None:
    program = ROOT / "samples/tools" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(SAMPLES[name])


def _divided(dividend: float, by: float) -> float:
    return dividend / by


class TestExecutor:
    def test_what_the_function_raises_is_raised_with_the_traceback_of_the_run(self) -> None:
        with headway.Executor(resources=SMALL) as executor:
            call = executor.submit(_divided, 1.0, by=0.0)
            with pytest.raises(ZeroDivisionError) as raised:
                call.result()
        assert isinstance(raised.value.__cause__, RemoteTraceback)
        assert "headway_call.py" in str(raised.value.__cause__)
        assert call.run is not None
        settings = call.run["job"]["training"]["settings"]
        assert settings == {"dividend": 1.0, "by": 0.0}

    def test_a_run_that_goes_on_is_ended_by_cancel(self) -> None:
        with headway.Executor(resources=SMALL) as executor:
            call = executor.submit(_sleeps())
            until(lambda: call.run is not None)
            assert not call.cancel()
            with pytest.raises(RunFailed, match="Cancelled"):
                call.result()

    def test_what_waits_here_is_never_handed_in_after_an_error(self) -> None:
        executor = headway.Executor(1, resources=SMALL)
        first, second = executor.submit(_sleeps()), executor.submit(_divided, 1.0, 1.0)
        until(lambda: first.run is not None)
        with pytest.raises(KeyError), executor:
            raise KeyError
        assert second.run is None
        with pytest.raises(CancelledError):
            second.result()
        with pytest.raises(RunFailed):
            first.result()

    def test_ignore_files_of_the_project_leave_nothing_of_the_call_behind(
        self, tmp_path: Path
    ) -> None:
        project = tmp_path / "project"
        project.mkdir()
        (project / ".gitignore").write_text("*.pkl\ncloudpickle/\n")
        (project / "mine.py").write_text("def three():\n    return 3\n")

        def asked(most: float) -> int:
            import mine

            return min(int(mine.three()), int(most) if most < 9 else 9)

        with headway.Executor(resources=SMALL, workdir=project) as executor:
            assert executor.submit(asked, most=float("inf")).result() == 3

    def test_its_runs_can_be_asked_for_more_once_it_is_shut_down(self) -> None:
        with headway.Executor(resources=SMALL) as executor:
            call = executor.submit(_divided, 1.0, 4.0)
        assert call.result() == 0.25
        assert call.run is not None
        assert call.run.state == "Completed"

    def test_the_end_of_the_program_waits_for_what_was_handed_in(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            "import headway\n"
            f"executor = headway.Executor(1, resources={SMALL})\n"
            "for by in (2, 4):\n"
            "    call = executor.submit(lambda by=by: 1 / by)\n"
            "    call.add_done_callback(lambda done: print(done.result()))\n"
            "executor.shutdown(wait=False)\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", program], capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.returncode) == ("0.5\n0.25\n", 0), done.stderr

    def test_a_command_is_not_for_the_caller_to_say(self) -> None:
        with headway.Executor(command=["true"]) as executor:
            error = executor.submit(_divided, 1.0, 1.0).exception()
        assert isinstance(error, InvalidInput)
        assert error.field == "command"


def _sleeps() -> Callable[[], None]:
    def sleeps() -> None:
        import time

        time.sleep(600)

    return sleeps


def test_joblib_raises_what_a_task_raises_and_ends_the_others() -> None:
    joblib_backend.register()
    tasks = [joblib.delayed(_divided)(1.0, by) for by in (1.0, 0.0)]
    at_the_site = joblib.parallel_config("headway", n_jobs=2, resources=SMALL)
    with at_the_site, pytest.raises(ZeroDivisionError):
        joblib.Parallel()(tasks)


def test_hydras_sweep_is_a_run_for_each_job(tmp_path: Path) -> None:
    program = ROOT / "samples/tools/sweep.py"
    launcher = ["hydra/launcher=headway", "+hydra.launcher.job.resources.cpus=0.25"]
    done = subprocess.run(
        [sys.executable, program, "--multirun", "+lr=0.1,0.01", *launcher],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with headway.Client() as client:
        states = [run["state"] for run in client.runs(name="sweep")]
    assert states == ["Completed", "Completed"]
    kept = sorted(tmp_path.glob("multirun/*/*/*/.hydra/overrides.yaml"))
    assert [each.read_text().strip() for each in kept] == ["- +lr=0.1", "- +lr=0.01"]


class TestSubmitit:
    def _executor(self, folder: Path) -> submitit.AutoExecutor:
        executor = submitit.AutoExecutor(folder=folder, cluster="headway")
        executor.update_parameters(timeout_min=10, headway_resources=SMALL)
        return executor

    def test_a_function_knows_its_job_and_its_log_is_read(self, tmp_path: Path) -> None:
        def told() -> tuple[str, str]:
            environment = submitit.JobEnvironment()
            print("said by the function")
            return environment.job_id, environment.cluster

        job = self._executor(tmp_path).submit(told)
        assert job.result() == (job.job_id, "headway")
        assert "said by the function" in (job.stdout() or "")

    def test_an_error_is_told_with_its_traceback(self, tmp_path: Path) -> None:
        job = self._executor(tmp_path).submit(_divided, 1.0, 0.0)
        with pytest.raises(submitit.core.utils.FailedJobError, match="ZeroDivisionError"):
            job.result()
        assert job.state == "FAILED"

    def test_what_a_run_has_no_counterpart_of_is_refused(self, tmp_path: Path) -> None:
        executor = self._executor(tmp_path)
        executor.update_parameters(tasks_per_node=2)
        with pytest.raises(InvalidInput, match="tasks_per_node"):
            executor.submit(_divided, 1.0, 1.0)


class TestPsij:
    def _ended(self, spec: psij.JobSpec) -> psij.JobStatus:
        executor, job = psij.JobExecutor.get_instance("headway"), psij.Job(spec)
        executor.submit(job)
        assert job.native_id in executor.list()
        status = job.wait()
        assert status is not None
        return status

    def test_streams_environment_and_exit_status_come_back(self, tmp_path: Path) -> None:
        paths = [tmp_path / name for name in ("in", "out", "err")]
        paths[0].write_text("read")
        words = ["-c", "cat; echo $X >&2; exit 3"]
        spec = psij.JobSpec("/bin/sh", words, environment={"X": 1})
        spec.stdin_path, spec.stdout_path, spec.stderr_path = paths
        status = self._ended(spec)
        assert (status.state, status.exit_code) == (psij.JobState.FAILED, 3)
        assert [each.read_text() for each in paths] == ["read", "read", "1\n"]

    def test_what_a_run_has_no_counterpart_of_is_refused(self) -> None:
        executor = psij.JobExecutor.get_instance("headway")
        for spec in (
            psij.JobSpec("/bin/date", resources=psij.ResourceSpecV1(process_count=2)),
            psij.JobSpec("/bin/date", launcher="mpirun"),
        ):
            with pytest.raises(psij.InvalidJobException):
                executor.submit(psij.Job(spec))


def test_tensorboard_shows_what_a_run_has_written_and_goes_on_to_write(
    process_site: LiveSite, tmp_path: Path
) -> None:
    live, port, events = process_site, free_port(), "events.out.tfevents.1.node"
    (tmp_path / "code").mkdir()
    shutil.copy(ROOT / "tests/data/written" / events, tmp_path / "code")
    kept = f'"$HEADWAY_OUTPUTS"/tb/{events}'
    script = (
        f"trap 'tail -c +301 {events} >>{kept}; exit 0' TERM;"
        f' mkdir "$HEADWAY_OUTPUTS"/tb; head -c 300 {events} >{kept}; sleep 600 & wait'
    )
    code = str(tmp_path / "code")
    run_id = live.submit(tmp_path, name="curves", command=["sh", "-c", script], workdir=code)
    live.until(run_id, "Running")
    board = subprocess.Popen(
        ["sh", ROOT / "samples/tools/curves.sh", "curves", str(port)],
        env=live.env | {"PATH": f"{BIN}:{live.env['PATH']}"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    asked = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?run=curves/tb&tag=train/loss"

    def last_step() -> int:
        assert board.poll() is None, board.communicate()[1]
        try:
            answer = httpx.get(asked)
        except httpx.TransportError:
            return 0
        return int(answer.json()[-1][1]) if answer.status_code == 200 else 0

    try:
        wait_for(last_step, live.worker_log)
        assert last_step() < 50
        live.run("cancel", run_id)
        wait_for(lambda: last_step() == 50, live.worker_log)
    finally:
        board.send_signal(signal.SIGINT)
        board.communicate(timeout=60)
    assert board.returncode == 0
    live.until(run_id, "Cancelled")
