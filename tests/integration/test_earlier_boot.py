"""A machine that lost its power: what its node held is of an earlier boot."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from headway.clock import SystemClock
from headway.model.run import RESTARTED, ExitKind, RunState
from headway.run.here import container_name
from headway.runtime.process.shim import identity
from headway.settings import Settings
from headway.site import Site
from tests.support.one_run import OneRun
from tests.support.postgresql import with_ledger
from tests.support.site import ROOT, wait_for

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def test_a_run_of_an_earlier_boot_is_tried_again_and_nobody_else_is_killed(tmp_path: Path) -> None:
    """All of it is dead, and its program's pid is another process's in this boot."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("another boot id needs root and a mount namespace")
    home, boot = tmp_path / "home", tmp_path / "boot_id"
    run = OneRun(
        Site(Settings(home=with_ledger(home), runtime="process", node="here"), SystemClock())
    )
    run.submit(600.0)
    run.until_said("start")
    notes = home / "containers" / container_name(run.run_id, 1) / "running.json"
    wait_for(notes.exists, lambda: "no note of the program that runs")
    known = json.loads(notes.read_text())
    run.flows[0].kill()
    run.flows[0].join()
    for pid in (known["shim"]["pid"], known["program"]["pid"]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "600"])
    for each in ("shim", "program"):
        known[each] = {"pid": stranger.pid, "identity": identity(stranger.pid)}
    notes.write_text(json.dumps(known))
    boot.write_text(f"{uuid4()}\n")
    after = f"mount --bind {boot} {BOOT_ID} && exec {sys.executable} -m tests.support.after_boot"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{after} {home} {run.run_id}"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split()[-1:] == boot.read_text().split(), done.stderr
    record = run.record()
    assert (record.state, record.attempt) == (RunState.WAITING, 2), f"{record}\n{done.stderr}"
    (first,) = run.site.ledger.attempts.of_run(run.run_id)
    assert first.exit is not None
    assert (first.exit.kind, first.exit.message) == (ExitKind.PREEMPTED, RESTARTED)  # no retry
    assert run.site.ledger.leases.of_run(run.run_id) is None
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    run.close()
