"""Completion in the shell: the script for it, and the names that the site knows."""

import re
from collections.abc import Iterator
from contextlib import suppress

import click
from click.shell_completion import CompletionItem, get_completion_class

from headway.cli.inputs import open_client
from headway.errors import HeadwayError

_MOST_RUNS = 200
_SHELLS = ("bash", "zsh", "fish")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
"""Names that a shell takes as they are: a user may have called a run anything."""
_VARIABLE = "_HEADWAY_COMPLETE"
"""Click's name for it: the script sets it when it asks for completions."""


class _KnownName(click.ParamType[str]):
    """A name that the gateway can list. Any text is taken: the gateway says what is there."""

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's interface
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The known names that begin so; none where no gateway answers."""
        with suppress(HeadwayError, OSError):
            known = dict.fromkeys(self.known())
            return [
                CompletionItem(name, help=told)
                for name, told in known
                if name.startswith(incomplete) and _PLAIN.fullmatch(name)
            ]
        return []

    def known(self) -> Iterator[tuple[str, str]]:
        """Names, each with what is said of it."""
        raise NotImplementedError


class RunName(_KnownName):
    """The name or id of a run."""

    name = "run"

    def known(self) -> Iterator[tuple[str, str]]:
        """Names of the newest runs, then their ids."""
        with open_client() as client:
            runs = client.runs(limit=_MOST_RUNS)
        yield from ((run["name"], run["state"]) for run in runs)
        yield from ((run["run_id"], f"{run['name']}, {run['state']}") for run in runs)


class NodeName(_KnownName):
    """The name of a node."""

    name = "node"

    def known(self) -> Iterator[tuple[str, str]]:
        """Every node of the site."""
        with open_client() as client:
            yield from ((node["node"], node["state"]) for node in client.nodes())


RUN, NODE = RunName(), NodeName()


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, runs and nodes.

    Examples:
      eval "$(headway completion bash)"     # in ~/.bashrc; likewise zsh
      headway completion fish > ~/.config/fish/completions/headway.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "headway", _VARIABLE).source())
