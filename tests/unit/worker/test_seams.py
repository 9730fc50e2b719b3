"""Every private name of Prefect that headway leans on is where it was, and is still used."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from prefect.workers.base import BaseWorker

from headway.worker import gpu_node
from headway.worker.gpu_node import GpuNodeWorker
from headway.worker.seams import SEAMS, Seam


def names_in(code: CodeType) -> Iterator[str]:
    """What *code* uses, the functions in it too."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)


def found(module: str, path: str) -> Any:
    part = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        part = getattr(part, name)
    return part


def what_moved(seam: Seam) -> str:
    """Empty where *seam* is as the table has it."""
    module, _, owner = seam.owner.partition(":")
    place = found(module, owner)
    if place is not None and owner == "BaseWorker":
        place = GpuNodeWorker(work_pool_name="p")  # some names are those of an instance
    fields = getattr(place, "__private_attributes__", {})
    if not hasattr(place, seam.name) and seam.name not in fields:
        return f"{seam.owner} has no {seam.name} any more"
    if seam.asked_by and seam.name not in names_in(
        inspect.unwrap(found(module, seam.asked_by)).__code__
    ):
        return f"{module}:{seam.asked_by} does not use {seam.name} any more"
    return ""


def test_the_seams_of_prefect_are_where_they_were() -> None:
    assert "\n".join(filter(None, map(what_moved, SEAMS))) == ""


def test_a_seam_that_moved_is_named() -> None:
    base = "prefect.workers.base:BaseWorker"
    assert what_moved(Seam(base, "_gone")) == f"{base} has no _gone any more"
    unused = Seam(base, "_prefetch_seconds", "BaseWorker.teardown")
    assert what_moved(unused) == (
        "prefect.workers.base:BaseWorker.teardown does not use _prefetch_seconds any more"
    )


def test_the_table_has_every_seam() -> None:
    """Every private name that the worker takes from Prefect's own is a row."""
    own = set(vars(GpuNodeWorker(work_pool_name="p"))) | set(dir(BaseWorker))
    private = {name for name in own if name.startswith("_") and not name.startswith("__")}
    source = Path(gpu_node.__file__).read_text()
    used = set(re.findall(r"(?:self|super\(\))\.(_\w+)|def (_\w+)\(self", source))
    names = {first or second for first, second in used} & private
    assert names - {seam.name for seam in SEAMS} == set()
