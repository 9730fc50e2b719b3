"""The wrapper of an engine's job on a shared folder that is full."""

import os
import subprocess
import time
from pathlib import Path

from headway.engine.place import Place
from headway.engine.port import Request
from headway.model.run import ExitKind
from headway.units import MIB
from tests.support.small_disk import filled, small_disk


def test_a_full_folder_costs_no_end_and_no_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        place = Place(disk / "place")
        for key, command in (("ends", "sleep 2; exit 3"), ("begins", "exit 3")):
            request = Request(key, key, "p", ("sh", "-c", command), 1, MIB)
            with place.locked(key):
                script = place.prepare(request, ":")
            # What it says of it lies on the same disk, as by `sbatch`.
            with (disk / f"{key}.log").open("wb") as log:
                env = {"PATH": os.environ["PATH"], "HEADWAY_JOB": "7"}
                if key == "ends":
                    job = subprocess.Popen([script], env=env, stderr=log)
                    while not (disk / "place/ends/started.json").exists():
                        time.sleep(0.05)
                with filled(disk):
                    if key == "begins":
                        job = subprocess.Popen([script], env=env, stderr=log)
                    time.sleep(4.0)
            assert job.wait(30.0) == 3
            record = place.record(key)
            assert record is not None
            assert record.end is not None
            assert (record.end.kind, record.end.code) == (ExitKind.FAILED, 3)
