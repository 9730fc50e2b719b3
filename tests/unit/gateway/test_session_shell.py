"""A shell is refused before it is queued where no node could open one."""

from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.gateway.actions import refuse_shell
from headway.model.job_text import read_job

_SHELL = b"name: a\nimage: i\ncommand: [x]\nsession: {shell: true}\n"
_PAGE = b"name: a\nimage: i\ncommand: [x]\nsession: {}\n"


def refuse(nodes: dict[str, Any], job: bytes = _SHELL, queue: str = "") -> None:
    records = [
        SimpleNamespace(
            node=SimpleNamespace(name=name, pool="cpu" if name.startswith("c") else "gpu"),
            reading=None if pythons == "away" else SimpleNamespace(pythons=pythons),
        )
        for name, pythons in nodes.items()
    ]
    ledger = SimpleNamespace(nodes=SimpleNamespace(all=lambda: records))
    site: Any = SimpleNamespace(ledger=ledger)
    refuse_shell(site, read_job(job, filename="job.yaml"), pool="cpu", queue=queue)


def test_where_no_node_has_an_engine_those_that_do_are_named() -> None:
    plain, engine = {"3.11": ""}, {"3.11": "python:3.11-slim"}
    with pytest.raises(
        InvalidInput, match=r"c1, c2 run programs without.*g1 in pool gpu"
    ) as caught:
        refuse({"c1": plain, "c2": plain, "g1": engine})
    assert (caught.value.field, caught.value.where) == ("session.shell", "job.yaml:4")
    with pytest.raises(InvalidInput, match="that have one: none"):
        refuse({"c1": plain})
    with pytest.raises(InvalidInput, match="c1 run programs"):
        refuse({"c1": plain, "c2": engine}, queue="c1")


def test_what_may_go_is_not_refused() -> None:
    plain, engine = {"3.11": ""}, {"3.11": "python:3.11-slim"}
    refuse({"c1": plain, "c2": engine})
    for unknown in ("away", None, {}):
        refuse({"c1": unknown})
    refuse({"g1": plain})
    refuse({"c1": plain}, job=_PAGE)
