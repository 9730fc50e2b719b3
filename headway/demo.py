"""Bringing a site up and down on one machine, and the demo that shows it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headway.errors import HeadwayError, LedgerUnreachable, RunUnknown, SiteUnreachable
from headway.forkserver import running_server
from headway.model.job_text import job_from_document
from headway.model.run import CANCELLED_BY, Measurement, Prediction
from headway.project import PROJECT
from headway.runtime.port import Runtime, RuntimeKind
from headway.server import DEPLOYMENT, PrefectServer
from headway.site import Site
from headway.submit import os_user
from headway.units import format_duration
from headway.up import (
    only_one,
    register,
    server_daemon,
    site_environment,
    start_server,
    start_worker,
    worker_daemon,
)
from headway.view import comparison
from headway.watch import watch_run

Say = Callable[[str], None]

SAMPLE_IMAGE = "headway-samples:local"
_BUILD_S = 600
_END_S = 60.0
"""For cancelled runs to be gone, beyond their grace time."""


def bring_up(site: Site, say: Say) -> dict[str, Any]:
    """Start what does not run yet. What it reports is what `headway up --json` prints."""
    settings = site.settings
    with only_one(settings):
        site.ledger.close()
        server = start_server(settings, site.clock, say)
        registered = register(settings, say)
        worker = start_worker(settings, site.clock, say)
    return {
        "url": settings.api_url.removesuffix("/api"),
        "started": [n for n, new in (("server", server), ("worker", worker)) if new],
        "registered": registered,
        "node": settings.node,
        "runtime": site.runtime.kind.value,
        "weaknesses": list(site.runtime.weaknesses()),
    }


def take_down(site: Site, say: Say) -> dict[str, Any]:
    """Stop all of it: runs first, each with its grace time, then worker and server."""
    settings = site.settings
    cancelled = _end_runs(site, say)
    stopped = []
    with only_one(settings):
        if worker_daemon(settings).stop(signal.SIGTERM, 10.0):
            stopped.append("worker")
        fork_server = running_server(settings.state_dir)
        if fork_server is not None:
            with contextlib.suppress(ProcessLookupError):
                signal_process(fork_server)
            stopped.append("fork server")
        if server_daemon(settings).stop(signal.SIGTERM, 20.0):
            stopped.append("server")
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return {"stopped": stopped, "cancelled": cancelled}


def signal_process(pid: int) -> None:
    """Ask one of our own processes to end."""
    os.kill(pid, signal.SIGTERM)


def _end_runs(site: Site, say: Say) -> list[str]:
    """Cancel what is under way on this node and wait until it is gone."""
    if worker_daemon(site.settings).process() is None:
        return []
    try:
        under_way = site.ledger.runs.on_node(site.settings.node)
        with PrefectServer(site.settings.api_url) as server:
            for run in under_way:
                say(f"cancelling {run.name} ({run.run_id[:8]}) …")
                with contextlib.suppress(RunUnknown):  # deleted: the janitor ends it
                    server.cancel(run.run_id, f"{CANCELLED_BY}{os_user()} (headway down)")
        grace_s = max((job_from_document(run.job).stop_grace for run in under_way), default=0.0)
        end = site.clock.monotonic_s() + grace_s + _END_S
        while (left := _still_here(site)) and site.clock.monotonic_s() < end:
            site.clock.sleep(0.5)
    except (LedgerUnreachable, SiteUnreachable) as error:
        say(f"runs were not cancelled: {error}")
        return []
    for run_id in sorted(left):
        say(f"run {run_id} has not ended; its container goes on until a worker is here again")
    return [run.run_id for run in under_way if run.run_id not in left]


def _still_here(site: Site) -> set[str]:
    return {lease.run_id for lease in site.ledger.leases.live(site.settings.node)}


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
    with PrefectServer(site.settings.api_url) as server:
        say(f"run {run_id}: {report['url']}/runs/flow-run/{run_id}")
        status = watch_run(site, server, run_id, machine=machine)
    if not machine:
        _summary(site, run_id, site.clock.monotonic_s() - started, report)
    return status


def _flights(site: Site, rows: int, say: Say) -> Path:
    """The sample's data set: real flights, written once."""
    path = site.settings.home / "samples" / f"flights-{rows}.csv"
    if not path.exists():
        say(f"writing {rows:,} real flights to {path} …")
        path.parent.mkdir(parents=True, exist_ok=True)
        prepare = [sys.executable, "-m", "samples.flights.prepare"]
        subprocess.run([*prepare, "--rows", str(rows), str(path)], cwd=PROJECT, check=True)
    return path


def _flights_job(data: Path, rows: int, rounds: int) -> dict[str, Any]:
    return {
        "name": "flights",
        "owner": os_user(),
        "image": SAMPLE_IMAGE,
        "command": ["python", "-m", "samples.flights.train", "--rounds", str(rounds)],
        "dataset": {"uri": str(data)},
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
    """Have the sample's image: built from the Dockerfile, or made of this machine's Python."""
    runtime: Runtime = site.runtime
    with contextlib.suppress(HeadwayError):
        runtime.ensure_image(SAMPLE_IMAGE)
        return
    say(f"building image {SAMPLE_IMAGE} …")
    build = ["docker", "build", "-t", SAMPLE_IMAGE, "-f", "samples/Dockerfile", "."]
    if shutil.which("docker") is not None:
        built = subprocess.run(
            build, cwd=PROJECT, capture_output=True, timeout=_BUILD_S, check=False
        )
        if built.returncode == 0:
            return
    say("no base image can be had here; the image is made of this machine's own Python")
    subprocess.run(
        [sys.executable, "-m", "samples.local_image", SAMPLE_IMAGE], cwd=PROJECT, check=True
    )


def _submit_through_prefect(site: Site, job: dict[str, Any]) -> str:
    """Submit exactly as a user of Prefect would; the run's id."""
    prefect = str(Path(sys.executable).parent / "prefect")
    submitted = subprocess.run(
        _deployment_run(prefect, job),
        env=site_environment(site.settings),
        capture_output=True,
        text=True,
        check=False,
    )
    for word in submitted.stdout.replace("/", " ").split():
        if len(word) == 36 and word.count("-") == 4:
            return word
    raise SiteUnreachable(site.settings.api_url, submitted.stderr.strip()[-300:] or "no run")


def _deployment_run(prefect: str, job: dict[str, Any]) -> list[str]:
    command = [prefect, "deployment", "run", DEPLOYMENT, "--flow-run-name", str(job["name"])]
    return [*command, "--params", json.dumps({"job": job})]


def _summary(site: Site, run_id: str, took_s: float, report: dict[str, Any]) -> None:
    record = site.ledger.runs.get(run_id)
    click.echo("")
    for step in site.ledger.runs.steps(run_id):
        seconds = (step.ended_at - step.started_at).total_seconds() if step.ended_at else 0.0
        click.echo(f"  {step.name:<18}{step.state.value:<9}{format_duration(seconds)}")
    said = record.prediction or Prediction()
    click.echo(f"\n  {'':<18}{'predicted':<32}measured")
    for row in comparison(said, record.measurement or Measurement()):
        click.echo(f"  {row['quantity']:<18}{row['predicted']:<32}{row['measured']}")
    click.echo(f"  rests on {said.basis}")
    click.echo(f"\n  outputs     {site.settings.runs_dir / run_id / 'outputs'}")
    click.echo(f"  runtime     {report['runtime']}")
    for weakness in report["weaknesses"]:
        click.echo(f"              {weakness}")
    click.echo(f"  look at it  {report['url']}/runs/flow-run/{run_id}")
    click.echo(f"  prefect     export PREFECT_API_URL={report['url']}/api")
    click.echo(f"  took        {format_duration(took_s)} in all")
    click.echo("  stop it     make down")
