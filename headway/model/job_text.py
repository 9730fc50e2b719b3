"""Text becomes a job, or one line that says what to correct and where."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from headway.errors import InvalidInput, shown
from headway.model.array import Array, take_array, written
from headway.model.document import NOTHING, Document, Path, dotted
from headway.model.job import TrainingJob
from headway.model.job_problem import explain
from headway.model.yaml_document import MAX_DEPTH, MAX_VALUES, read_document

USUAL_STOP_GRACE_S: float = TrainingJob.model_fields["stop_grace"].default
"""Of a job that says nothing of it, and of one that cannot be read."""
_EXAMPLE = "give at least name, image or python, and command, each with its value"


@dataclass(frozen=True)
class JobText:
    """A job, and where each field of it was written."""

    job: TrainingJob
    document: Document
    array: Array | None = None
    """Its members' parameters, where it is to run many times."""

    def place(self, field: str) -> str:
        """File and line of *field*, such as ``resources.cpus``, or of the group it belongs to."""
        return self.document.place(tuple(field.split(".")))


def read_job(
    text: str | bytes, *, filename: str = "job.yaml", overrides: Sequence[str] = ()
) -> JobText:
    """The job that *text*, YAML or JSON, describes, with its lines for what is found out later.

    Args:
        text: The document, at most 256 KiB.
        filename: Named in messages, with the line.
        overrides: ``key.sub=value`` pairs that win over the document; the
            value is read as YAML, below ``env`` as text.

    Raises:
        InvalidInput: Something is wrong with it; the message is one line.
    """
    document = read_document(text, _plain_name(filename))
    if not isinstance(document.values, dict):
        value = NOTHING if document.values is None else document.values
        raise InvalidInput("job", value, _EXAMPLE, where=document.place(()))
    for override in overrides:
        _apply(override, document)
    array = take_array(document)
    return JobText(_validated(document), document, array)


def _plain_name(filename: str) -> str:
    """*filename* as it may stand in front of a message: its end, on one line."""
    end = filename if len(filename) <= 200 else f"…{filename[-199:]}"
    return shown(end, 400)[1:-1]


def job_from_document(document: object) -> TrainingJob:
    """The job that plain data describes, such as a flow's parameter.

    Raises:
        InvalidInput: Something is wrong with it; the message is one line.
    """
    if isinstance(document, TrainingJob):
        return document
    _check_shape(document)
    if not isinstance(document, Mapping):
        raise InvalidInput("job", NOTHING if document is None else document, _EXAMPLE)
    return _validated(Document(dict(document)))


def job_text(job: TrainingJob, array: Array | None = None) -> str:
    """*job*, and the *array* of it, as a job file: YAML, without what is usual."""
    values = job.model_dump(mode="json", exclude_defaults=True, exclude={"owner", "team"})
    if array is not None:
        values["array"] = {key: each for key, each in array.document().items() if each is not None}
        if array.grid:
            values["array"]["parameters"] = {n: written(each) for n, each in array.grid.items()}
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style = None
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # it takes one
    writer.dump(json.loads(json.dumps(values)), text)  # numbers that know how they were written
    return text.getvalue()


def kept_job(document: Mapping[str, Any]) -> TrainingJob | None:
    """The job that the ledger keeps as *document*; None where it is none any more.

    So it may be where another version of headway wrote it, or the row was damaged.
    """
    try:
        return job_from_document(document)
    except InvalidInput:
        return None


def stop_grace_s(document: Mapping[str, Any]) -> float:
    """How long the program of the job that the ledger keeps as *document* has to end."""
    job = kept_job(document)
    return job.stop_grace if job is not None else USUAL_STOP_GRACE_S


def job_nodes(document: Mapping[str, Any]) -> int:
    """On how many nodes the job of *document*, once validated, runs; the fewest of a range."""
    return _least((document.get("resources") or {}).get("nodes", 1))


def job_gpus(document: Mapping[str, Any]) -> int:
    """How many GPUs it asks for on each of them; the fewest of a range."""
    return _least((document.get("resources") or {}).get("gpus") or 0)


def _least(number: int | str) -> int:
    return int(str(number).partition("-")[0])


def _validated(document: Document) -> TrainingJob:
    try:
        return TrainingJob.model_validate(document.values)
    except ValidationError as error:
        raise explain(error, document, TrainingJob) from None


# --- plain data ---


def _check_shape(document: object) -> None:
    """Refuse what is too deep, too much, or cannot even be shown."""
    waiting: list[tuple[Path, object]] = [((), document)]
    seen = 0
    while waiting:
        path, value = waiting.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise InvalidInput("job", f"more than {MAX_VALUES} values", "give fewer")
        if len(path) > MAX_DEPTH:
            allowed = f"nest at most {MAX_DEPTH} levels deep"
            raise InvalidInput(dotted(path[:2]), "deeper", allowed)
        if isinstance(value, Mapping):
            for key, below in value.items():
                if not isinstance(key, str):
                    raise InvalidInput(dotted(path), _short(key), "give keys that are text")
                waiting.append(((*path, key), below))
        elif isinstance(value, list | tuple):
            waiting += [((*path, position), below) for position, below in enumerate(value)]
        elif isinstance(value, int) and value.bit_length() > 128:
            raise InvalidInput(dotted(path), _short(value), "give a number below 2^63")


def _short(value: object) -> object:
    """*value*, or the magnitude of a number that has too many digits to be shown."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1} or more"
    return value


# --- overrides ---


def _apply(override: str, document: Document) -> None:
    """Put the value of ``key.sub=value`` where it belongs in *document*."""
    key, sign, text = override.partition("=")
    path = tuple(key.strip().split("."))
    if not sign or not all(path) or any("\ud800" <= each <= "\udfff" for each in key):
        raise InvalidInput("--set", override, "give key=value, such as resources.cpus=2")
    place = document.values
    for length, part in enumerate(path[:-1], start=1):
        if place.get(part) is None:
            place[part] = {}
            document.places[path[:length]] = "--set"
        place = place[part]
        if not isinstance(place, dict):
            allowed = f"{dotted(path[:length])} has no keys below it"
            raise InvalidInput(dotted(path), text, allowed, where="--set")
    place[path[-1]] = text if path[0] == "env" else read_document(text, "--set").values
    for known in [known for known in document.places if known[: len(path)] == path]:
        del document.places[known]
    document.places[path] = "--set"
