"""Commands on a cluster that Slurm schedules: slurm pools, submit, jobs, follow, cancel, forget."""

import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from headway.cli.inputs import A_FILE, name_of, read_job_file, this_site, with_places
from headway.cli.output import as_json, print_json, print_table, say

if TYPE_CHECKING:
    from headway.engine.slurm import SlurmEngine


@click.group()
def slurm() -> None:
    """On a cluster's submit host: hand jobs to Slurm, as yourself and without a site."""


@slurm.command()
@as_json
def pools(machine: bool) -> None:
    """Its partitions, their nodes, GPUs and limits, and what it lacks that headway could use."""
    from dataclasses import asdict

    from headway.units import format_duration

    found = _engine().inspect()
    if machine:
        print_json(asdict(found))
        return
    rows = []
    for pool in found.pools:
        gpus = sorted({f"{kind.count} {kind.type}".strip() for n in pool.nodes for kind in n.gpus})
        limit = "none" if pool.max_time_s is None else format_duration(pool.max_time_s)
        state = "up" if pool.is_up else "down"
        default = f"{pool.name} (default)" if pool.is_default else pool.name
        rows.append([default, state, str(len(pool.nodes)), ", ".join(gpus) or "–", limit])
    print_table(["partition", "state", "nodes", "GPUs of a node", "time limit"], rows)
    for lack in found.lacks:
        say(f"Slurm {found.version}: {lack}")


@slurm.command()
@click.argument("job_file", type=A_FILE)
@click.option("--pool", help="Partition; the cluster's default where none is given.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one field.")
@click.option("--key", help="Submitting twice with one key gives one job.")
@click.option("--watch", is_flag=True, help="Follow the job to its end.")
@as_json
def submit(
    *,
    job_file: BinaryIO,
    pool: str | None,
    overrides: tuple[str, ...],
    key: str | None,
    watch: bool,
    machine: bool,
) -> None:
    """Hand a job to Slurm: its command starts in its file's folder, with what the nodes have."""
    from pathlib import Path
    from uuid import uuid4

    from headway.admin.cluster import asked_for, pool_of, request_of

    read, name = read_job_file(job_file, overrides), name_of(job_file)
    folder = Path.cwd() if name == "-" else Path(name).resolve().parent
    engine = _engine()
    key = key or uuid4().hex[:12]
    if read.array is not None:
        raise click.UsageError("arrays cannot be handed to Slurm from here: submit single jobs")
    with with_places(read):
        request = request_of(read.job, key, pool_of(engine.inspect(), pool), folder)
    made = engine.submit(request)
    if machine:
        print_json({"key": key, "slurm_id": made.engine_id, "is_new": made.is_new})
    else:
        done = "handed in" if made.is_new else "was handed in before"
        say(f"job {key} {done}: {made.engine_id} of partition {request.pool}")
        say(f"asked for: {asked_for(request)}")
        image = read.job.image or f"for Python {read.job.python}"
        say(f"no container: the image {image} is not used, the command finds what the nodes have")
    if watch:
        _follow(engine, key)


@slurm.command()
@as_json
def jobs(machine: bool) -> None:
    """Jobs handed in from this home and not forgotten: what each does, and why it waits."""
    from headway.admin.cluster import about

    found = [(job.key, job.engine_id, about(job)) for job in _engine().jobs()]
    if machine:
        print_json([{"key": k, "slurm_id": i, "state": text} for k, i, text in found])
    else:
        print_table(["key", "Slurm's id", "state"], [list(each) for each in found])


@slurm.command()
@click.argument("key")
def follow(key: str) -> None:
    """Print the log of job KEY until it has ended; exit status 0 where it ended well."""
    _follow(_engine(), key)


@slurm.command()
@click.argument("key")
def cancel(key: str) -> None:
    """Ask job KEY to stop; it has its stop_grace for that."""
    from headway.admin.cluster import find

    engine = _engine()
    find(engine, key)
    engine.cancel([(key, 0)])
    say(f"job {key} is asked to stop")


@slurm.command()
@click.argument("key")
def forget(key: str) -> None:
    """Remove all files of job KEY, which has ended: log, outputs and record."""
    from headway.admin.cluster import find
    from headway.engine.port import Phase

    engine = _engine()
    if any(job.phase is not Phase.ENDED for job in find(engine, key)):
        raise click.ClickException(f"job {key} has not ended: `headway slurm cancel {key}` ends it")
    engine.forget(key)
    say(f"job {key} is forgotten")


def _engine() -> "SlurmEngine":
    from headway.admin.cluster import open_engine

    return open_engine(this_site())


def _follow(engine: "SlurmEngine", key: str) -> None:
    """Print what becomes known of it, and exit as it ended."""
    from headway.admin.cluster import follow
    from headway.clock import SystemClock
    from headway.model.run import ExitKind
    from headway.units import format_size
    from headway.views.terminal import LogText

    clean = LogText(colours=sys.stdout.isatty())
    for news in follow(engine, key, SystemClock()):
        click.echo(clean.feed(news.log), nl=False)
        if news.ended is not None:
            click.echo(clean.rest(), nl=False)
        if news.sentence:
            say(f"job {key}: {news.sentence}", err=True)
        if news.ended is not None:
            used, end = engine.used(key), news.ended.end
            if used is not None and used.host_peak_bytes is not None:
                say(f"job {key}: {format_size(used.host_peak_bytes)} of memory at most", err=True)
            say(f"job {key}: its outputs are in {engine.outputs(key)}", err=True)
            sys.exit(0 if end is not None and end.kind is ExitKind.OK else 1)


COMMANDS = (slurm,)
