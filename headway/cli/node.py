"""Commands about nodes: node add, join, serve, leave, drain, resume, gpu, remove."""

import os
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from headway.cli.completion import NODE
from headway.cli.inputs import agreed, this_site
from headway.cli.output import Json, as_json, print_json, say, told_by
from headway.model.node import NodeState

if TYPE_CHECKING:
    from headway.site import Site


@click.group()
def node() -> None:
    """Add, drain and remove nodes, and join this machine to a site."""


def _tell_login(made: Json) -> None:
    name, ledger = made["node"], shlex.quote(made["ledger"])
    say(f"on {name}, where PREFECT_API_AUTH_STRING or a question gives the site's auth string:")
    say(f"HEADWAY_NODE={name} headway node join --server {made['server']} --ledger {ledger}")


@node.command()
@click.argument("name")
@told_by(_tell_login)
def add(name: str) -> Json:
    """Make the database login with which the machine NAME joins.

    Run it on the site's own machine. The login is shown once; it allows what a node's agent does
    and nothing else. An earlier login of NAME stops working; `headway node remove` ends this one.

    Examples:
      headway node add gpu-2
      headway node add gpu-2 --json
    """
    from headway.admin import join as joining

    site = this_site()
    ledger = joining.add_node(site.settings, site.ledger, name)
    return {"node": name, "server": site.settings.api_url, "ledger": ledger}


@node.command()
@click.option(
    "--server", required=True, metavar="URL", help="The Prefect API, http://head:4200/api."
)
@click.option("--ledger", required=True, metavar="URL", help="What `headway node add` has printed.")
@click.option("--install", is_flag=True, help="Let systemd keep it, as `headway install` does.")
@as_json
def join(server: str, ledger: str, install: bool, machine: bool) -> None:
    """Make this machine a node of a site and start its worker.

    HEADWAY_NODE names the node, HEADWAY_POOL its work pool, which is made where there is none. The
    site's auth string is taken from PREFECT_API_AUTH_STRING, or asked for.

    Examples:
      headway node join --server http://head:4200/api --ledger LOGIN
      HEADWAY_POOL=a100 headway node join --server http://head:4200/api --ledger LOGIN --install
    """
    from headway.admin import install as installing
    from headway.admin import join as joining
    from headway.admin.register import write_profile

    site = this_site()

    def tell(text: str) -> None:
        say(text, err=machine)

    def ask() -> str:
        answer: str = click.prompt("the site's auth string", hide_input=True, err=True)
        return answer.strip()

    if not install:
        installing.leave_to_systemd(
            site.settings, "join with --install, then `systemctl restart 'headway-*'`"
        )
    joining.join(
        site.settings,
        server_url=server,
        ledger_url=ledger,
        say=tell,
        ask=ask if sys.stdin.isatty() else None,
    )
    write_profile(site.settings, tell)
    if install:
        installing.install(site.settings, os.environ, tell, start=True, dry=False)
    else:
        _start(site, tell)
    if machine:
        print_json({"node": site.settings.node, "pool": site.settings.pool, "server": server})
    else:
        say(f"node {site.settings.node} takes runs of pool {site.settings.pool}")


def _start(site: "Site", tell: Callable[[str], None]) -> None:
    from headway.admin.processes import start_guard, start_worker
    from headway.admin.supervisor import start_supervisor
    from headway.admin.told import note_told
    from headway.admin.up import stop_told_otherwise

    stop_told_otherwise(site, tell)
    start_guard(site.settings, site.clock, tell)
    start_worker(site.settings, site.clock, tell)
    start_supervisor(site.settings)
    note_told(site.settings)


@node.command()
def serve() -> None:
    """Run a node's worker in the foreground, for systemd and containers.

    HEADWAY_SERVER_URL and HEADWAY_LEDGER_URL name the site, unless this machine has joined one.

    Examples:
      headway node serve
      HEADWAY_NODE=gpu-2 headway node serve
    """
    from headway.admin import join as joining

    joining.serve(this_site(), say)


@node.command()
@click.option("--wait", is_flag=True, help="Wait until what runs here has ended.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def leave(*, wait: bool, yes: bool) -> None:
    """Stop this node's worker and leave the site.

    It asks before it stops what runs here. Each run gets its grace time and continues elsewhere
    from its checkpoint.

    Examples:
      headway node leave
      headway node leave --wait
    """
    from headway.admin import join as joining
    from headway.admin.down import AtDown, take_down

    site = this_site()
    agree = agreed("stop, and go back to the site's queue", yes=yes or wait)
    if take_down(site, say, AtDown.WAIT if wait else AtDown.STOP, agree)["going_on"] != []:
        raise click.ClickException("this node has not left: its runs were not stopped; try again")
    joining.leave(site.settings)


def _tell_state(done: Json) -> None:
    say(f"node {done['node']} is {done['state']}")


@node.command()
@click.argument("name", type=NODE)
@click.option("--reason", default="drained by an operator", show_default=True)
@told_by(_tell_state)
def drain(name: str, reason: str) -> Json:
    """Start nothing new on NAME; what runs there runs to its end.

    Examples:
      headway node drain gpu-2
      headway node drain gpu-2 --reason 'new driver'
    """
    return _set_state(name, NodeState.DRAINING, reason)


@node.command()
@click.argument("name", type=NODE)
@told_by(_tell_state)
def resume(name: str) -> Json:
    """Let NAME take runs again.

    Examples:
      headway node resume gpu-2
      headway node resume gpu-2 --json
    """
    return _set_state(name, NodeState.READY, "")


def _set_state(name: str, state: NodeState, reason: str) -> Json:
    from headway.admin.node_removal import unknown_node
    from headway.this_node import os_user

    site = this_site()
    if not site.ledger.nodes.set_state(name, state, reason, actor=os_user()):
        raise unknown_node(site, name)
    return {"node": name, "state": state.value, "reason": reason}


@node.group()
def gpu() -> None:
    """Return GPUs of a node to service after they were reset.

    A sick GPU takes no runs until the node's agent has found it healthy.
    """


def _tell_reset(done: Json) -> None:
    say(f"gpu{done['index']} of node {done['node']} takes runs again")


@gpu.command("reset-ok")
@click.argument("name", type=NODE)
@click.argument("gpu")
@told_by(_tell_reset)
def reset_ok(name: str, gpu: str) -> Json:
    """Say that GPU of NAME was reset: its agent checks it.

    GPU is a number or a uuid. A healthy GPU is taken back; one that is still sick stays drained,
    with the reason.

    Examples:
      headway node gpu reset-ok gpu-2 0
      headway node gpu reset-ok gpu-2 GPU-4d5e6f
    """
    from headway.admin.gpu_reset import gpu_was_reset

    return gpu_was_reset(this_site(), name, gpu)


@node.command()
@click.argument("name", type=NODE)
@click.option("--powered-off", is_flag=True, help="You know that its machine is off: do not wait.")
@as_json
def remove(name: str, powered_off: bool, machine: bool) -> None:
    """Forget NAME, whose machine does not come back.

    Its runs are tried elsewhere, or fail. A silent node may go on training: its guard stops what
    runs there once leases could not be renewed for too long. This command waits until then, at
    most HEADWAY_LEASE_TTL_S and a minute after the last renewal.

    Examples:
      headway node remove gpu-2
      headway node remove gpu-2 --powered-off
    """
    from headway.admin.node_removal import remove_node

    removed = remove_node(
        this_site(), name, powered_off=powered_off, say=lambda text: say(text, err=machine)
    )
    if machine:
        print_json({"node": name, "runs": [each._asdict() for each in removed]})
        return
    for each in removed:
        say(f"{each.name} ({each.run_id}) {each.then}")
    say(f"node {name} is removed")
