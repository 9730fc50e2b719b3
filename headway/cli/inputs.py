"""What commands take: files, numbers, and the site that they are about."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

if TYPE_CHECKING:
    from headway.client import Client
    from headway.estimate.trace_files import ImportedTraces
    from headway.model.job_text import JobText
    from headway.prefect.client import PrefectServer
    from headway.site import Site


A_FILE = click.File("rb")
"""A file to read; ``-`` for standard input."""
LARGEST_FILE_BYTES = 1 << 30


class FiniteRange(click.FloatRange):
    """Numbers of a range; neither infinite nor "nan", which no comparison keeps out."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number in *value*."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def name_of(file: BinaryIO) -> str:
    """The path that *file* was opened with; ``-`` for standard input."""
    # Whoever puts something else in the place of standard input need not name it.
    name: str = getattr(file, "name", "<stdin>")
    return "-" if name == "<stdin>" else name


def read_text(file: BinaryIO) -> bytes:
    """The text of a job; of too much, enough to be refused."""
    from headway.model.yaml_document import MAX_TEXT_BYTES

    return file.read(MAX_TEXT_BYTES + 1)


def read_job_file(file: BinaryIO, overrides: Sequence[str]) -> "JobText":
    """The job in *file*.

    Raises:
        InvalidInput: Something is wrong with it. Of resources it says what the site's nodes allow,
            where a gateway tells.
    """
    from headway.errors import HeadwayError, InvalidInput
    from headway.model.job_text import read_job

    try:
        return read_job(read_text(file), filename=name_of(file), overrides=overrides)
    except InvalidInput as error:
        allowed = ""
        if error.field.startswith("resources."):
            with suppress(HeadwayError), open_client() as client:
                allowed = client.limit(error.field)
        if not allowed:
            raise
        where, also = error.where, error.also
        raise InvalidInput(error.field, error.value, allowed, where=where, also=also) from None


@contextmanager
def with_places(read: "JobText") -> Iterator[None]:
    """Within it, what a gateway says of a field of *read* names the line of the file, too."""
    from headway.errors import InvalidInput
    from headway.model.job import TrainingJob

    try:
        yield
    except InvalidInput as error:
        known = error.field.partition(".")[0] in TrainingJob.model_fields
        where = read.place(error.field) if known else ""
        raise InvalidInput(error.field, error.value, error.allowed, where=where) from None


def read_data(file: BinaryIO) -> bytes:
    """All that is in *file*.

    Raises:
        InvalidInput: It is larger than `LARGEST_FILE_BYTES`.
    """
    from headway.errors import InvalidInput
    from headway.units import format_size

    data = file.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        most = format_size(LARGEST_FILE_BYTES)
        raise InvalidInput("file", f"more than {most}", f"give at most {most}", where=name_of(file))
    return data


def open_client() -> "Client":
    """The gateway that this user comes in at."""
    from headway.client import Client
    from headway.credentials import find_address
    from headway.settings import read_settings

    return Client(find_address(read_settings()))


def open_server(site: "Site") -> "PrefectServer":
    """The Prefect server that PREFECT_API_URL names, or this machine's."""
    import os

    from headway.prefect.auth import auth_for
    from headway.prefect.client import PrefectServer, checked_address

    url = os.environ.get("PREFECT_API_URL") or site.settings.api_url
    url = checked_address("PREFECT_API_URL", url)
    return PrefectServer(url, auth=auth_for(site.settings, url))


def this_site() -> "Site":
    """The site that the environment names."""
    from headway.site import current_site

    return current_site()


def agreed(becomes: str, *, yes: bool) -> Callable[[list[str]], None]:
    """What tells a person of the runs that are under way, each a line, and asks; not with *yes*.

    Args:
        becomes: What they do then.
        yes: Nobody is asked.
    """
    import sys

    from headway.cli.output import say

    def agree(lines: list[str]) -> None:
        for line in lines:
            say(f"under way: {line}", err=True)
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"{len(lines)} run(s) are under way, and nobody can be asked: add --yes to have "
                f"them {becomes}"
            )
        click.confirm(f"{len(lines)} run(s) {becomes}. Go on?", abort=True, err=True)

    return agree


def ui_url(server: "PrefectServer") -> str:
    """Where a person looks at this site."""
    return server.api_url.removesuffix("/api")


def read_traces(file: BinaryIO, source: str) -> "ImportedTraces":
    """The traces in *file*, kept as of *source*."""
    from headway.estimate.trace_files import parse

    return parse(read_data(file), Path(name_of(file)).name, source)
