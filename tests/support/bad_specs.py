"""Bad jobs as texts, and the two checks that a text goes through on its way into a site.

The client reads the file (`read_job`); the gateway checks the body of the request with all that it
has: the token, strict JSON, the fields, and what the site could never run.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import httpx
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.errors import InvalidInput, RunUnknown
from headway.gateway.app import create_app
from headway.ledger import Ledger
from headway.model.job_text import read_job
from headway.model.node import Capacity, Gpu, Node, Reserve
from headway.model.yaml_document import read_document
from headway.policy.settings import LINE
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.support import bad_values as tables
from tests.support.api import MEMBER, bearer
from tests.support.bad_values import text
from tests.support.postgresql import new_ledger

_JSON = {"Content-Type": "application/json"}
NO_TEXT = "which cannot stand there"
"""Of a character that YAML itself does not take: the line is named, not the field."""
DEPLOYMENT = "00000000-0000-4000-8000-00000000000d"
_OF_ONE_TOKEN = 150
"""Requests with one token: fewer than the gateway lets through at once."""


@dataclass(frozen=True)
class Spec:
    """A text that may be a job, and the field that a refusal of it has to name."""

    text: str | bytes
    field: str


@dataclass(frozen=True)
class Verdict:
    """What became of a text."""

    client: str
    """The line by which the client refuses it; empty where it goes on to the gateway."""
    gateway: str
    """The line by which the gateway refuses it, whatever the client said; empty: it is in."""
    client_cpu_s: float
    gateway_cpu_s: float
    gateway_s: float

    def names(self, field: str) -> bool:
        """Whether whoever refuses it says in one line that *field* is wrong."""
        if self.client and not (is_about(self.client, field) or NO_TEXT in self.client):
            return False
        # What is no JSON has no fields yet.
        return is_about(self.gateway, field) or (
            self.client != "" and is_about(self.gateway, "body")
        )


def is_about(line: str, field: str) -> bool:
    """Whether *line* says of *field* what was got, and what is allowed."""
    said = re.fullmatch(r"(?:job\.yaml\S* |body\.)?(\S+): got .+; .+", line)
    return said is not None and said[1] == field and line.isprintable()


def listed() -> list[Spec]:
    """Every bad job that is written down: values, whole texts, and what no node could run."""
    return [*_of_values(), *_of_words(), *_of_texts(), *of_this_site()]


def _of_values() -> Iterator[Spec]:
    for group, key, written, *_ in tables.NUMBERS:
        lines = [f"{group}:", f"  {key}: {written}"] if group else [f"{key}: {written}"]
        yield Spec(text(*lines), f"{group}.{key}" if group else key)
    for key, (written, _) in itertools.product(("name", "team"), tables.NAMES):
        yield Spec(text(f"{key}: {written}", without=key), key)
    for written, shown in tables.NAMES:
        if shown != '""':
            yield Spec(text(f"owner: {written}"), "owner")


def _of_words() -> Iterator[Spec]:
    """Images, commands, addresses, patterns: what is text and has a grammar."""
    for written, *_ in tables.IMAGES:
        yield Spec(text(f"image: {written}", without="image"), "image")
    for name in tables.NO_IMAGES:
        yield Spec(text(f"image: {json.dumps(name)}", without="image"), "image")
    for progress in tables.PATTERNS:
        yield Spec(text(f"progress: {json.dumps(progress)}"), "progress")
    for line, field in tables.OTHERS:
        yield Spec(text(line), field)
    for written, field, *_ in tables.COMMANDS:
        yield Spec(text(f"command: {written}", without="command"), field)
    for group, rows in (("env", tables.ENVIRONMENT), ("secrets", tables.SECRETS)):
        yield from (Spec(text(f"{group}:", f"  {row[0]}"), row[1]) for row in rows)
    for written, field, *_ in tables.PORTS:
        yield Spec(text(f"ports: {written}"), field)
    for written, *_ in tables.PATHS:
        yield Spec(text("dataset:", f"  uri: {written}"), "dataset.uri")
    for pattern in tables.OUTPUTS:
        yield Spec(text(f'outputs: ["{pattern}"]'), "outputs[0]")
    for field, written in itertools.product(tables.LABELLED, tables.LABELS):
        group, key = field.split(".")
        yield Spec(text(f"{group}:", f"  {key}: {written}"), field)


def _of_texts() -> Iterator[Spec]:
    for lines, _, field, *_ in tables.UNKNOWN:
        yield Spec(text(*lines), field)
    yield from (Spec(text(without=key), key) for key in ("name", "image", "command"))
    yield Spec(text("training:", "  samples: 10", "  batch_size: 11"), "training.batch_size")
    yield Spec(text("resources:", "  gpu_memory: 2GiB", "  gpus: 0"), "resources.gpus")
    yield Spec(text("env: {A: x}", "secrets: {A: block}"), "secrets.A")
    yield Spec(text("name: u"), "name")
    for broken in tables.BROKEN:
        yield Spec(broken, "job")


def of_this_site() -> Iterator[Spec]:
    """What is a job, and no node of the site below could ever run it."""
    gpu = ("resources:", "  gpus: 1")
    for lines, field in (
        (("resources:", "  host_memory: 96GiB"), "resources.host_memory"),
        (("resources:", "  cpus: 64"), "resources.cpus"),
        (("resources:", "  gpus: 5"), "resources.gpus"),
        (("resources:", "  nodes: 3"), "resources.nodes"),
        ((*gpu, "  gpu_memory: 81GiB"), "resources.gpu_memory"),
        ((*gpu, "  gpu_type: A1000"), "resources.gpu_type"),
        (("secrets: {A: job-nowhere}",), "secrets.A"),
        (("secrets: {A: the-operators}",), "secrets.A"),
        (("team: broke",), "team"),
        (("owner: root",), "owner"),
    ):
        yield Spec(text(*lines), field)


class EmptyPrefect:
    """A Prefect that takes every run, and has none and no Secret block."""

    def __init__(self) -> None:
        self._ids = itertools.count()

    def destination(self, *_: object) -> dict[str, str]:
        return {"id": DEPLOYMENT, "work_pool_name": "gpu", "work_queue_name": "default"}

    def has_secret(self, _: str) -> bool:
        return False

    def submit(self, _: object, *, name: str, **_more: object) -> Any:
        return SimpleNamespace(run_id=f"run-{next(self._ids)}", name=name)

    def run(self, run_id: str) -> NoReturn:
        raise RunUnknown(run_id)

    def runs(self, *_: object, **_more: object) -> list[object]:
        return []

    def these(self, _: object) -> dict[str, object]:
        return {}


@contextmanager
def small_site(folder: Path) -> Iterator[Site]:
    """A site in *folder* with one node of four GPUs, and a ledger of its own."""
    url = SecretStr(new_ledger())
    made = Site(
        Settings(home=folder, ledger_url=url, runtime="process"), SystemClock(), Ledger.open
    )
    gpus = tuple(Gpu(f"GPU-{at}", at, "NVIDIA A100", 80 * GIB) for at in range(4))
    node = Node("h2", "gpu", Capacity(8, 44 * GIB, gpus), Reserve(1.0, 4 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    made.ledger.settings.put(LINE, {"teams": {"broke": {"max_running": 0}}})
    yield made
    made.ledger.close()


def judged(site: Site, specs: Iterable[Spec]) -> list[Verdict]:
    """What the client and the gateway of *site* say of each, in this process."""
    return asyncio.run(_judged(site, specs))


async def _judged(site: Site, specs: Iterable[Spec]) -> list[Verdict]:
    app = create_app(site, EmptyPrefect())  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app)
    found = []
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        for number, spec in enumerate(specs):
            if number % _OF_ONE_TOKEN == 0:
                headers = bearer(site, "ada", "vision", MEMBER) | _JSON
            found.append(await _verdict(client, headers, spec))
    return found


def at_the_form(site: Site, specs: Iterable[Spec]) -> list[str]:
    """What is said of each where it is submitted as Prefect's form does; empty: it is in."""
    return asyncio.run(_at_the_form(site, specs))


async def _at_the_form(site: Site, specs: Iterable[Spec]) -> list[str]:
    transport = httpx.ASGITransport(create_app(site, EmptyPrefect()))  # type: ignore[arg-type]
    found = []
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        for number, spec in enumerate(specs):
            if number % _OF_ONE_TOKEN == 0:
                headers = bearer(site, "ada", "vision", MEMBER) | _JSON
            body = b'{"parameters": ' + _body(spec.text) + b"}"
            path = f"/api/deployments/{DEPLOYMENT}/create_flow_run"
            answer = await client.post(path, content=body, headers=headers)
            assert answer.status_code in {200, 403, 422}, answer.text
            found.append("" if answer.is_success else answer.json()["detail"])
    return found


def values_of(spec: Spec) -> Any:
    """The values of *spec*, as Prefect's own API takes them; None where it has none."""
    try:
        return read_document(spec.text, "").values
    except InvalidInput:
        return None


async def _verdict(client: httpx.AsyncClient, headers: Mapping[str, str], spec: Spec) -> Verdict:
    body = _body(spec.text)
    begun = time.process_time()
    refusal = ""
    try:
        read_job(spec.text)
    except InvalidInput as error:
        refusal = str(error)
    read, asked_at = time.process_time(), time.perf_counter()
    answer = await client.post("/v1/runs", content=body, headers=headers)
    answered, answered_at = time.process_time(), time.perf_counter()
    if answer.status_code not in {200, 422}:
        raise AssertionError(f"{answer.status_code} {answer.text} for {spec.text[:500]!r}")
    said = "" if answer.is_success else answer.json()["detail"]
    return Verdict(refusal, said, read - begun, answered - read, answered_at - asked_at)


def _body(written: str | bytes) -> bytes:
    """The request that submits *written*: its values, or, where it has none, itself."""
    try:
        values = read_document(written, "").values
    except InvalidInput:
        raw = written if isinstance(written, bytes) else written.encode(errors="surrogatepass")
        return b'{"job": ' + raw + b"}"
    return json.dumps({"job": values}).encode()
