"""A call of a Python function as a job, and what came of it.

The function travels as cloudpickle writes it: what `__main__`, a notebook or a lambda holds by
value, what an importable module holds by its name. A module that the node has not is sent along
with `workdir`.
"""

import inspect
import pickle
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from headway.bridges.sent import headway_call
from headway.client.run import Run
from headway.code.folder import INCLUDE, pack
from headway.errors import InvalidInput, RunFailed

REQUIREMENTS = "headway-requirements.txt"
_TOO_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 60
_LARGEST = 1e300
"""Of a number that the estimators are told; infinities and what is no number are left out."""


class RemoteTraceback(Exception):
    """Where in the run an error was raised: the cause of the error as it is raised here."""

    def __str__(self) -> str:
        """The traceback, as the run's log has it."""
        return f"\n{self.args[0]}"


@contextmanager
def sent_with(
    job: Mapping[str, Any], files: Mapping[str, bytes], modules: Sequence[ModuleType]
) -> Iterator[dict[str, Any]]:
    """*job* with a folder to be sent, within the block.

    Args:
        job: What of its `workdir` travels is in the folder, too; `requirements` is a list of
            packages of the environment that the run is to have.
        files: Content of each, by its name.
        modules: Are importable on the node: packages, or modules of one file, of pure Python.
    """
    sent = dict(job)
    workdir, requirements = sent.pop("workdir", None), sent.pop("requirements", ())
    with tempfile.TemporaryDirectory(prefix="headway-call-") as made:
        folder = Path(made)
        if workdir:
            for each in pack(Path(workdir)).manifest.files:
                (folder / each.path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(workdir) / each.path, folder / each.path)
        for module in modules:
            source = Path(str(module.__file__))
            if source.name == "__init__.py":
                unwanted = shutil.ignore_patterns("__pycache__")
                beside = folder / source.parent.name
                shutil.copytree(source.parent, beside, ignore=unwanted, dirs_exist_ok=True)
            else:
                shutil.copy(source, folder)
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        if requirements:
            (folder / REQUIREMENTS).write_text("\n".join(requirements) + "\n")
            sent["requirements"] = REQUIREMENTS
        # All of it travels, whatever the ignore files say that were copied, or the user's own.
        (folder / INCLUDE).write_text("*\n")
        yield sent | {"workdir": str(folder)}


@contextmanager
def job_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """The job that calls ``function(*args, **kwargs)``, with its folder, within the block.

    Args:
        function: Its name is the job's; its numbers are what the estimators learn from.
        args: As cloudpickle can write them.
        kwargs: Likewise.
        fields: Of a job file. `workdir` is sent along, `requirements` is a list of packages;
            `command` is not for the caller to say.

    Raises:
        InvalidInput: `command` is among the fields.
    """
    if "command" in fields:
        raise InvalidInput(
            "command",
            str(fields["command"]),
            "a call of a function makes its own command: leave it out",
        )
    training = {"settings": _numbers(function, args, kwargs)} | dict(fields.get("training") or {})
    job = in_this_python(fields) | {
        "name": fields.get("name") or name_of(function),
        "command": ["python", Path(str(headway_call.__file__)).name],
        "training": training,
    }
    call = cloudpickle.dumps((function, tuple(args), dict(kwargs)))
    with sent_with(job, {headway_call.CALL: call}, [headway_call, cloudpickle]) as sent:
        yield sent


def in_this_python(fields: Mapping[str, Any]) -> dict[str, Any]:
    """*fields* with this Python's version, unless they name an image or a Python.

    What is pickled by one minor version of Python is not to be read by another.
    """
    given = dict(fields)
    if not given.get("image") and not given.get("python"):
        given["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    return given


def name_of(function: Callable[..., Any]) -> str:
    """A job's name for *function*."""
    inner = getattr(function, "func", function)  # of functools.partial
    name = getattr(inner, "__qualname__", type(inner).__qualname__).replace("<locals>.", "")
    return as_name(name)


def as_name(text: str) -> str:
    """*text* with what a job's name may not have left out, and its end where it is too long."""
    return _TOO_ODD.sub("-", text).strip("-._")[-_LONGEST_NAME:].strip("-._") or "call"


def _numbers(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, int | float]:
    """The numbers among the arguments, by their names."""
    try:
        named = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        named = dict(kwargs)
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and -_LARGEST <= value <= _LARGEST
    }


def result_of(run: Run) -> Any:
    """What the call of *run*, which has ended, returned.

    It is read by `pickle`, which does what the file says: the site runs the caller's code, and
    who keeps its nodes could run code here in return.

    Raises:
        Exception: What the function raised, with `RemoteTraceback` as its cause.
        RunFailed: The run ended without a result.
    """
    with tempfile.TemporaryDirectory(prefix="headway-result-") as made:
        found = run.outputs(Path(made) / "outputs", [headway_call.RESULT]) if _kept(run) else []
        if not found:
            kept = "its result was not kept" if run["state"] == "Completed" else run.message
            raise RunFailed(run.run_id, run["name"], run["state"], kept)
        returned, error, trace = pickle.loads(found[0].read_bytes())  # noqa: S301
    if error is not None:
        raise error from RemoteTraceback(trace)
    return returned


def _kept(run: Run) -> bool:
    """Whether what it wrote may be a result: not where it never began, or was ended."""
    return run["state"] in {"Completed", "Failed"} and bool(run["attempts"])
