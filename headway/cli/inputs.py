"""What commands take: files, numbers, and the site that they are about."""

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headway.cli.output import Json, say
from headway.errors import HeadwayError, InvalidInput
from headway.units import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from headway.client import Client
    from headway.estimate.trace_files import ImportedTraces
    from headway.model.job_text import JobText
    from headway.prefect.client import PrefectServer
    from headway.site import Site


A_FILE = click.File("rb")
"""A file to read; ``-`` for standard input."""
OUTPUT = click.Path(dir_okay=False, path_type=Path)
LARGEST_FILE_BYTES = 1 << 30


def overrides(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the options that set fields of its job, as ``overrides``."""

    @click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a job's field.")
    @click.option("--data", metavar="URI", help="The program's data set, such as headway://NAME.")
    @functools.wraps(command)
    def overriding(*, sets: tuple[str, ...], data: str | None, **options: Any) -> None:
        own = () if data is None else (f"dataset.uri={json.dumps(data)}",)
        command(overrides=(*own, *sets), **options)

    return overriding


class Quantity(click.ParamType[Any]):
    """A number that people write with its unit."""

    def __init__(
        self, name: str, parse: Callable[[str], float], such: str, *, above_zero: bool = False
    ) -> None:
        """As *parse* reads it, *such* as that."""
        self.name = name
        self._parse = parse
        self._such = such
        self._above_zero = above_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """The number that *value* means."""
        option = param.opts[0] if param is not None else self.name
        try:
            number = self._parse(value)
        except (ValueError, OverflowError):
            raise InvalidInput(option, value, f"give a {self.name} such as {self._such}") from None
        if self._above_zero and not number > 0:
            raise InvalidInput(option, value, f"give more than 0, such as {self._such}")
        return number


DURATION = Quantity("duration", parse_duration, "90d")
"""In seconds."""
SIZE = Quantity("size", parse_size, "500GiB")
"""In bytes."""
SOME_SIZE = Quantity("size", parse_size, "24GiB", above_zero=True)


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


def read_job_file(file: BinaryIO, overrides: Sequence[str]) -> "JobText":
    """The job in *file*.

    Raises:
        InvalidInput: Something is wrong with it. Of resources it says what the site's nodes allow,
            where a gateway tells.
    """
    from headway.model.job_text import read_job
    from headway.model.yaml_document import MAX_TEXT_BYTES

    text = file.read(MAX_TEXT_BYTES + 1)  # of too much, enough to be refused
    try:
        return read_job(text, filename=name_of(file), overrides=overrides)
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
    data = file.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        most = format_size(LARGEST_FILE_BYTES)
        raise InvalidInput("file", f"more than {most}", f"give at most {most}", where=name_of(file))
    return data


def open_client() -> "Client":
    """The gateway that this user comes in at."""
    from headway.client import Client

    return Client()


def open_server(site: "Site") -> "PrefectServer":
    """The Prefect server that PREFECT_API_URL names, or this machine's."""
    from headway.prefect.auth import auth_for
    from headway.prefect.client import PrefectServer
    from headway.prefect.transport import checked_address

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


def read_traces(file: BinaryIO, source: str) -> "ImportedTraces":
    """The traces in *file*, kept as of *source*."""
    from headway.estimate.trace_files import parse

    return parse(read_data(file), Path(name_of(file)).name, source)


def with_folder(job: Json, job_file: BinaryIO) -> Json:
    """*job* whose working directory, if it has one, is found from here: it lies by its file."""
    name = name_of(job_file)
    if not job["workdir"] or name == "-":
        return job
    return job | {"workdir": str(Path(name).parent / job["workdir"])}
