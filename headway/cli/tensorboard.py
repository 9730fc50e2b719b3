"""The command `tensorboard`."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import say
from headway.cli.outputs import folders_of
from headway.errors import GatewayRefused, GatewayUnreachable, NotInstalled
from headway.model.run_file import name_from

if TYPE_CHECKING:
    from headway.client import Client
    from headway.client.run_files import OutputPlace

_EVERY_S = 5.0
"""As often as TensorBoard looks by itself."""


@click.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True, type=RUN)
@click.option("--port", type=click.IntRange(1, 65_535), default=6006, show_default=True)
def tensorboard(runs: tuple[str, ...], port: int) -> None:
    """Show the event files of runs in TensorBoard.

    It runs on this machine until Ctrl-C. The files below the outputs of the runs come through the
    gateway, and so does what is added to them. An array is all of its members. Other users of
    this machine can see the page: it asks for no password.

    Examples:
      headway tensorboard flights
      headway tensorboard sweep --port 6007
    """
    if find_spec("tensorboard") is None:
        raise NotInstalled("curves in TensorBoard", "tensorboard", "tensorboard")
    with open_client() as client, TemporaryDirectory(prefix="headway-tensorboard-") as kept:
        left = {run_id: Path(kept, name) for run_id, name in folders_of(client, runs).items()}
        _fetch(client, left)
        options = ("--logdir", kept, "--port", str(port))
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, lambda *_: sys.exit(1))
        board = subprocess.Popen([sys.executable, "-P", "-m", "tensorboard.main", *options])
        try:
            while board.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    board.wait(_EVERY_S)
                try:
                    left = _fetch(client, left)
                except (GatewayUnreachable, GatewayRefused) as error:
                    say(str(error), err=True)
            sys.exit(1)  # it has said why
        except KeyboardInterrupt:
            pass
        finally:
            board.terminate()
            board.wait()


def _fetch(client: "Client", folders: Mapping[str, Path]) -> dict[str, Path]:
    """Fetch what is new of each run into its folder; those of runs that go on."""
    from headway.client.download import chosen
    from headway.client.run_files import OutputPlace

    left = {}
    for run_id, folder in folders.items():
        if not client.standing(run_id)["over"]:
            left[run_id] = folder
        try:
            files = client.outputs(run_id)["files"]
        except GatewayRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            continue  # it has not started yet, or has never written any
        for file in chosen(files, ("*.tfevents.*",)):
            with suppress(GatewayRefused, OSError):  # a run may do anything to its files
                _append(client, OutputPlace(run_id, file["href"]), folder, file["bytes"])
    return left


def _append(client: "Client", place: "OutputPlace", folder: Path, size_bytes: int) -> None:
    """Append what an event file has more than what was fetched of it; a shorter one begins anew."""
    name = name_from(place.href)
    if name is None:
        return
    kept = folder / os.fsdecode(name)
    start = kept.stat().st_size if kept.exists() else 0
    if size_bytes == start:
        return
    if size_bytes < start:
        kept.unlink()
        start = 0
    kept.parent.mkdir(parents=True, exist_ok=True)
    with client.output(place, start=start) as sent, kept.open("ab") as file:
        if sent.start == start:
            for piece in sent.pieces():
                file.write(piece)
