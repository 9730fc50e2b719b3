"""The wrapper as a machine of an engine runs it: alone, by a script, in a folder."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.engine import wrapper
from headway.engine.place import Place
from headway.engine.port import Request
from headway.model.run import ExitKind
from headway.units import MIB

SMI = """\
#!/bin/sh
[ "$1" = --id=0,1 ] && printf '30, 1000\\n50, 2000\\n'
"""


def run(place: Place, command: str, job: str = "7", python: str = "", **env: str) -> int:
    request = Request("k", "k", "p", ("sh", "-c", command), 1, MIB, python=python)
    with place.locked("k"):
        script = place.prepare(request, ":")
    given = {"PATH": os.environ["PATH"], "HEADWAY_JOB": job} | env
    return subprocess.run([script], env=given, check=False, timeout=30).returncode


def test_what_gpus_do_is_measured(tmp_path: Path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    place = Place(tmp_path / "place")
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert run(place, "sleep 1.5", PATH=path, CUDA_VISIBLE_DEVICES="0,1") == 0
    used = place.used("k")
    assert used is not None
    assert (used.gpu_utilisation_frac, used.gpu_peak_bytes) == (0.4, 2000 * MIB)


def test_memory_of_children_counts(tmp_path: Path):
    place = Place(tmp_path)
    holds = "python3 -c 'import time; held = bytearray(80 << 20); time.sleep(2)'"
    run(place, f"{holds} & {holds} & wait")
    used = place.used("k")
    assert used is not None
    assert used.host_peak_bytes is not None
    assert 160 * MIB < used.host_peak_bytes < 240 * MIB


def test_the_python_of_its_version_is_python(tmp_path: Path):
    place, there = Place(tmp_path / "place"), tmp_path / "bin"
    there.mkdir()
    (there / "python3.99").write_text("#!/bin/sh\necho three ninety-nine\n")
    (there / "python3.99").chmod(0o755)
    path = f"{os.environ['PATH']}:{there}"
    assert run(place, "python; python3", python="3.99", PATH=path) == 0
    assert (tmp_path / "place/k/log").read_text() == "three ninety-nine\n" * 2


def test_without_a_python_of_its_version_nothing_begins(tmp_path: Path):
    place = Place(tmp_path)
    assert run(place, "echo up", python="3.98") == 127
    assert (tmp_path / "k/log").read_text().startswith("there is no python3.98 on ")
    record = place.record("k")
    assert record is not None
    assert record.end is not None
    assert "no python3.98" in record.end.message


def test_a_program_does_not_get_what_says_who_hands_in(tmp_path: Path):
    assert run(Place(tmp_path), 'test -z "$SLURM_JWT"; exit $?', SLURM_JWT="secret") == 0


def test_a_job_that_another_one_runs_is_left_alone(tmp_path: Path):
    place = Place(tmp_path)
    assert run(place, "echo once") == 0
    assert run(place, "echo twice", job="8") == 75
    record = place.record("k")
    assert record is not None
    assert (record.job, (tmp_path / "k" / "log").read_text()) == ("7", "once\n")


def test_one_that_was_cancelled_before_it_began_runs_nothing(tmp_path: Path):
    place = Place(tmp_path)
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "cancelled").touch()
    assert run(place, "echo once") == 143
    assert not (tmp_path / "k" / "log").exists()
    record = place.record("k")
    assert record is not None
    assert record.end is not None
    assert record.end.kind is ExitKind.CANCELLED


def test_a_job_that_is_started_again_leaves_both_records(tmp_path: Path):
    place = Place(tmp_path)
    run(place, "exit 3")
    run(place, "exit 0", HEADWAY_RESTART="1")
    assert (tmp_path / "k" / "ended.json.1").exists()
    record = place.record("k")
    assert record is not None
    assert (record.restart, record.exit_code) == (1, 0)


def test_one_that_is_started_again_by_an_engine_that_forgot_it_runs_once(tmp_path: Path):
    place = Place(tmp_path)
    for again in ("0", "0"):
        assert run(place, "echo once; exit 3", HEADWAY_RESTART=again) == 3
    assert (tmp_path / "k/log").read_text() == "once\n"
    assert run(place, "echo once; exit 3", HEADWAY_RESTART="1") == 3  # somebody queued it again
    assert (tmp_path / "k/log").read_text() == "once\n" * 2


def test_starts_are_counted_where_the_engine_does_not(tmp_path: Path):
    for _ in range(3):
        run(Place(tmp_path), "echo $HEADWAY_RESTART")
    assert (tmp_path / "k/log").read_text() == "0\n1\n2\n"


def test_alone_all_of_its_group_ends_with_a_wrapper_that_is_killed(tmp_path: Path):
    place = Place(tmp_path)
    command = "sleep 300 & echo $! > ../child; echo $PPID > ../wrapper; wait"
    request = Request("k", "k", "p", ("sh", "-c", f"cd {tmp_path}/k/outputs; {command}"), 1, MIB)
    with place.locked("k"):
        script = place.prepare(request, ":")
    env = {"PATH": os.environ["PATH"], "HEADWAY_JOB": "7", "HEADWAY_ALONE": "1"}
    with subprocess.Popen([script], env=env) as wrapper:
        until((tmp_path / "k/wrapper").exists)
        child = int((tmp_path / "k/child").read_text())
        time.sleep(1.5)  # until what guards it is there
        wrapper.kill()
    until(lambda: not is_alive(child))


def test_a_program_that_has_started_goes_on_without_its_guard(monkeypatch: pytest.MonkeyPatch):
    def none_left(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(subprocess, "Popen", none_left)
    monkeypatch.setenv("HEADWAY_ALONE", "1")
    program: Any = SimpleNamespace(pid=1)
    assert wrapper.guarded(program, None) is None


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_alone_it_sees_to_the_mark_of_who_cancels(tmp_path: Path):
    (tmp_path / "k").mkdir()
    command = f"trap 'exit 7' TERM; touch {tmp_path}/k/cancelled; while :; do sleep 0.05; done"
    assert run(Place(tmp_path), command, HEADWAY_ALONE="1") == 7
    record = Place(tmp_path).record("k")
    assert record is not None
    assert record.end is not None
    assert record.end.kind is ExitKind.CANCELLED
