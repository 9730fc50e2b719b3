"""Commands about schedulers of others below the site: engine add, engine list."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headway.cli.inputs import this_site
from headway.cli.output import as_json, print_json, print_table, say
from headway.errors import InvalidInput
from headway.model.engine import ENGINES, EnginePool
from headway.units import format_duration

if TYPE_CHECKING:
    from headway.ledger.engines import EnginePoolRecord
    from headway.site import Site


@click.group()
def engine() -> None:
    """Use another scheduler, such as Slurm: the same jobs run on it."""


@engine.command()
@click.argument("kind", type=click.Choice(sorted(ENGINES)))
@click.option("--address", help="Of a Ray: its dashboard, such as http://head:8265.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="'NAME nodes=… cpus=… memory=… max_time=…'",
    help="Of PBS or LSF, which PSI/J cannot ask: a queue, and what each node of it has.",
)
@as_json
def add(kind: str, address: str | None, queues: tuple[str, ...], machine: bool) -> None:
    """Make a work pool of each partition that this user sees.

    Run it on the submit host, which is a node of the site, and again when partitions have changed.
    The site's home (HEADWAY_HOME) has to be in a folder that the cluster's nodes share.

    Examples:
      headway engine add slurm
      headway engine add ray --address http://head:8265
    """
    from headway.admin.engines import add_engine
    from headway.engine.kinds import RAY, SLURM, told_queue
    from headway.prefect.transport import checked_address

    said = tuple(told_queue(each) for each in queues)
    if kind == RAY and address:
        said = (EnginePool(RAY, (), address=checked_address("address", address)),)
    site = this_site()
    if not said and kind != SLURM and kind not in {each.engine for each in _known(site)}:
        what = (
            ("address", "the one of Ray's dashboard") if kind == RAY else ("queue", "each of them")
        )
        raise InvalidInput(what[0], "", f"give {what[1]}, by --{what[0]}")
    found, names = add_engine(site, (lambda _: None) if machine else say, kind, said)
    if machine:
        print_json(asdict(found) | {"engine": kind, "work_pools": names})
        return
    _print((names[pool.name], pool) for pool in found.pools)
    for lack in found.lacks:
        say(f"{kind} {found.version}: {lack}")
    default = next((names[pool.name] for pool in found.pools if pool.is_default), "NAME")
    say(f"submit a job there with `headway submit job.yaml --pool {default}`")


@engine.command(name="list")
@as_json
def list_(machine: bool) -> None:
    """List the work pools whose runs an engine starts.

    Examples:
      headway engine list
      headway engine list --json
    """
    pools = _known(this_site())
    if machine:
        print_json([asdict(each) | {"read_at": each.read_at.isoformat()} for each in pools])
    else:
        _print((each.pool, each.has) for each in pools)


def _known(site: "Site") -> "list[EnginePoolRecord]":
    return list(site.ledger.engines.pools().values())


def _print(pools: Iterable[tuple[str, EnginePool]]) -> None:
    rows = []
    for name, pool in pools:
        gpus = sorted({f"{kind.count} {kind.type}".strip() for n in pool.nodes for kind in n.gpus})
        limit = "none" if pool.max_time_s is None else format_duration(pool.max_time_s)
        partition = f"{pool.name} (default)" if pool.is_default else pool.name
        state = "up" if pool.is_up else "down"
        rows.append([name, partition, state, str(len(pool.nodes)), ", ".join(gpus) or "–", limit])
    columns = ["work pool", "partition", "state", "nodes", "GPUs of a node", "time limit"]
    print_table(columns, rows)
