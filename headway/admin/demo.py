"""The demo: a site on this machine trains the flights sample."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headway.admin.environment import site_environment
from headway.admin.up import bring_up
from headway.client import Client
from headway.credentials import local_address
from headway.errors import HeadwayError, SiteUnreachable
from headway.home import have_passable, samples
from headway.model.run import Measurement, Prediction
from headway.prefect.client import DEPLOYMENT
from headway.project import PROJECT
from headway.runtime.errors import ImageMissing
from headway.runtime.port import RuntimeKind
from headway.site import Site
from headway.this_node import os_user
from headway.units import format_duration
from headway.views.run_document import comparison
from headway.views.watch import watch_run

Say = Callable[[str], None]
SAMPLE_IMAGE = "headway-samples:local"
_BUILD_S = 600


def run_demo(site: Site, *, rows: int, rounds: int, machine: bool) -> int:
    """Train the flights sample on this machine; 0 only if its run is Completed."""
    started = site.clock.monotonic_s()
    say: Say = (lambda _: None) if machine else click.echo
    report = bring_up(site, say)
    data = _flights(site, rows, say)
    if site.runtime.kind is RuntimeKind.DOCKER:
        _sample_image(site, say)
    job = _flights_job(data, rows, rounds)
    say(f"submitting the sample: prefect deployment run {DEPLOYMENT} …")
    run_id = _submit_through_prefect(site, job)
    with Client(local_address(site.settings)) as client:
        say(f"run {run_id}: {report['url']}/runs/flow-run/{run_id}")
        status = watch_run(client, run_id, site.clock, machine=machine)
    if not machine:
        _summary(site, run_id, site.clock.monotonic_s() - started, report)
    return status


def _flights(site: Site, rows: int, say: Say) -> Path:
    """The sample's data set: real flights, written once."""
    path = samples(site.settings.home) / f"flights-{rows}.csv"
    if not path.exists():
        say(f"writing {rows:,} real flights to {path} …")
        have_passable(path.parent)
        prepare = [sys.executable, "-m", "samples.flights.prepare"]
        subprocess.run([*prepare, "--rows", str(rows), str(path)], cwd=PROJECT, check=True)
    path.parent.chmod(0o755)  # public data: its job's user reads it
    path.chmod(0o644)
    return path


def _flights_job(data: Path, rows: int, rounds: int) -> dict[str, Any]:
    return {
        "name": "flights",
        "owner": os_user(),
        "image": SAMPLE_IMAGE,
        "command": ["python", "-m", "samples.flights.train", "--rounds", str(rounds)],
        # Its size is said: of data of unknown size the job is given 2 GiB.
        "dataset": {"uri": str(data), "size": f"{data.stat().st_size}B"},
        "resources": {"cpus": 2.0} if _cpus() >= 2 else {},
        "training": {
            "framework": "scikit-learn",
            "network": "hist-gradient-boosting",
            "epochs": rounds,
            "samples": rows,
        },
        "max_runtime": "30m",
    }


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _sample_image(site: Site, say: Say) -> None:
    """Have the sample's image: built from the Dockerfile, or made of this machine's Python.

    Raises:
        ImageMissing: It can be had in neither way.
    """
    with contextlib.suppress(HeadwayError):
        site.runtime.ensure_image(SAMPLE_IMAGE)
        say(f"image {SAMPLE_IMAGE} is there already, and is used again")
        return
    say(f"building image {SAMPLE_IMAGE} (once; up to a minute) …")
    if shutil.which("docker") is not None:
        build = ["docker", "build", "-t", SAMPLE_IMAGE, "-f", "samples/Dockerfile", "."]
        if _shown("building from samples/Dockerfile", build).returncode == 0:
            return
    say("no base image can be had here; the image is made of this machine's own Python …")
    here = [sys.executable, "-m", "samples.local_image", SAMPLE_IMAGE]
    made = _shown("packing Python, scikit-learn and pandas", here)
    if made.returncode != 0:
        said = made.stdout.strip().splitlines()
        raise ImageMissing(SAMPLE_IMAGE, said[-1] if said else f"exit status {made.returncode}")


def _shown(title: str, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run *command*; a terminal shows how long it has been at it and what it said last."""
    from rich.console import Console  # noqa: PLC0415 - only here
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines: list[str] = []
    said = TextColumn("{task.description}", markup=False)
    with (
        Progress(
            SpinnerColumn(), TimeElapsedColumn(), said, console=Console(stderr=True), transient=True
        ) as progress,
        subprocess.Popen(
            command,
            cwd=PROJECT,
            umask=0o022,  # the image's user reads what is made here
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child,
    ):
        task = progress.add_task(title)
        limit = threading.Timer(_BUILD_S, child.kill)
        limit.start()
        for line in child.stdout or ():
            lines.append(line)
            last = Text.from_ansi(line.strip()).plain[:60]
            progress.update(task, description=f"{title}  {last}")
        limit.cancel()
    return subprocess.CompletedProcess(command, child.wait(), "".join(lines))


def _submit_through_prefect(site: Site, job: dict[str, Any]) -> str:
    """Submit exactly as a user of Prefect would; the run's id."""
    prefect = str(Path(sys.executable).parent / "prefect")
    command = [prefect, "deployment", "run", DEPLOYMENT, "--flow-run-name", str(job["name"])]
    submitted = subprocess.run(
        [*command, "--params", json.dumps({"job": job})],
        env=site_environment(site.settings),
        capture_output=True,
        text=True,
        check=False,
    )
    for word in submitted.stdout.replace("/", " ").split():
        if len(word) == 36 and word.count("-") == 4:
            return word
    # Of a traceback its last line says it.
    said = submitted.stderr.strip().splitlines()[-1:] or ["it gave no run"]
    raise SiteUnreachable(site.settings.api_url, said[0].strip()[:300])


def _summary(site: Site, run_id: str, took_s: float, report: dict[str, Any]) -> None:
    record = site.ledger.runs.get(run_id)
    click.echo("")
    for step in site.ledger.steps.of_run(run_id):
        seconds = (step.ended_at - step.started_at).total_seconds() if step.ended_at else 0.0
        click.echo(f"  {step.name:<18}{step.state.value:<9}{format_duration(seconds)}")
    said = record.prediction or Prediction()
    click.echo(f"\n  {'':<18}{'predicted':<32}measured")
    for row in comparison(said, record.measurement or Measurement()):
        click.echo(f"  {row['quantity']:<25}{row['predicted']:<32}{row['measured']}")
    click.echo(f"  rests on {said.basis}")
    click.echo(f"\n  outputs     {site.settings.runs_dir / run_id / 'outputs'}")
    click.echo(f"  runtime     {report['runtime']}")
    for weakness in report["weaknesses"]:
        click.echo(f"              {weakness}")
    click.echo(f"  look at it  {report['url']}/runs/flow-run/{run_id}")
    click.echo(f"  log in      with the line in {report['auth_file']}")
    click.echo(f"  the site    {report['gateway']}, with the line in {site.settings.token_file}")
    programs = Path(sys.executable).parent  # `uvx` leaves nothing on the PATH
    click.echo(f"  prefect     {programs}/{report['prefect']} deployment run {DEPLOYMENT}")
    click.echo(f"  took        {format_duration(took_s)} in all")
    click.echo(f"  stop it     {programs}/headway down")
