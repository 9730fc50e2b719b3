"""Bringing a site up and down on one machine, and the demo that shows it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from headway.admin.up import (
    only_one,
    prefect_command,
    register,
    site_environment,
    start_server,
    start_worker,
    write_profile,
)
from headway.clock import Clock
from headway.errors import (
    HeadwayError,
    ImageMissing,
    LedgerUnreachable,
    RunUnknown,
    SiteUnreachable,
)
from headway.gateway.submit import os_user
from headway.home import ROOT_HOME, have_passable, samples, settle
from headway.model.job_text import job_from_document
from headway.model.run import CANCELLED_BY, Measurement, Prediction
from headway.node.daemon import server_daemon, worker_daemon
from headway.node.forkserver import running_server
from headway.prefect.auth import site_auth
from headway.prefect.client import DEPLOYMENT, PrefectServer
from headway.project import PROJECT
from headway.runtime.port import RuntimeKind
from headway.site import Site
from headway.units import format_duration
from headway.views.documents import comparison
from headway.views.watch import watch_run

Say = Callable[[str], None]

SAMPLE_IMAGE = "headway-samples:local"
_BUILD_S = 600
_END_S = 60.0
"""For cancelled runs to be gone, beyond their grace time."""


def bring_up(site: Site, say: Say) -> dict[str, Any]:
    """Start what does not run yet. What it reports is what `headway up --json` prints."""
    settings = site.settings
    settle(settings.home)
    if os.geteuid() == 0 and settings.home == Path.home() / ".headway":
        say(f"going on with the site in {settings.home}; a new one of root's is in {ROOT_HOME}")
    with only_one(settings):
        site.make_ledger()
        if worker_daemon(settings).process() is None:
            site.choose_runtime()  # here, where somebody reads why it cannot be
        server = start_server(settings, site.clock, say)
        registered = register(settings, say)
        if registered:
            write_profile(settings, say)
        worker = start_worker(settings, site.clock, say)
    return {
        "url": settings.api_url.removesuffix("/api"),
        "started": [n for n, new in (("server", server), ("worker", worker)) if new],
        "registered": registered,
        "node": settings.node,
        "auth_file": str(settings.auth_file),
        "prefect": prefect_command(settings),
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
        with PrefectServer(site.settings.api_url, auth=site_auth(site.settings)) as server:
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
    with PrefectServer(site.settings.api_url, auth=site_auth(site.settings)) as server:
        say(f"run {run_id}: {report['url']}/runs/flow-run/{run_id}")
        status = watch_run(site, server, run_id, machine=machine)
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
    """Have the sample's image: built from the Dockerfile, or made of this machine's Python.

    Raises:
        ImageMissing: It can be had in neither way.
    """
    with contextlib.suppress(HeadwayError):
        site.runtime.ensure_image(SAMPLE_IMAGE)
        return
    say(f"building image {SAMPLE_IMAGE} (once; up to a minute) …")
    if shutil.which("docker") is not None:
        build = ["docker", "build", "-t", SAMPLE_IMAGE, "-f", "samples/Dockerfile", "."]
        if _shown(site.clock, "building from samples/Dockerfile", build).returncode == 0:
            return
    say("no base image can be had here; the image is made of this machine's own Python …")
    here = [sys.executable, "-m", "samples.local_image", SAMPLE_IMAGE]
    made = _shown(site.clock, "packing Python, scikit-learn and pandas", here)
    if made.returncode != 0:
        said = made.stdout.strip().splitlines()
        raise ImageMissing(SAMPLE_IMAGE, said[-1] if said else f"exit status {made.returncode}")


def _shown(clock: Clock, title: str, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run *command*; a terminal shows how long it has been at it and what it said last."""
    from rich.console import Console  # noqa: PLC0415 - only here
    from rich.text import Text  # noqa: PLC0415

    lines: list[str] = []

    def read(words: Iterable[str]) -> None:
        for line in words:
            lines.append(line)  # noqa: PERF402 - each line as it comes, not all at the end

    begun_s = clock.monotonic_s()
    with (
        Console(stderr=True).status(title) as status,
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
        reader = threading.Thread(target=read, args=(child.stdout or (),), daemon=True)
        reader.start()
        while reader.is_alive():
            took_s = clock.monotonic_s() - begun_s
            if took_s > _BUILD_S:
                child.kill()
            last = Text.from_ansi(lines[-1].strip()).plain[:60] if lines else ""
            status.update(Text(f"{title}, {format_duration(took_s)}  {last}"))
            reader.join(0.5)
    return subprocess.CompletedProcess(command, child.wait(), "".join(lines))


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
    click.echo(f"  log in      with the line in {report['auth_file']}")
    click.echo(f"  prefect     {report['prefect']} deployment run {DEPLOYMENT}")
    click.echo(f"  took        {format_duration(took_s)} in all")
    click.echo("  stop it     make down")
