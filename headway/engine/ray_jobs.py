"""A cluster that Ray schedules, by the REST API of its jobs: no Ray is needed here.

A job's name at Ray (its submission id) is made of the site and the key, so Ray itself takes no key
twice. All jobs are asked for by one question. Ray ends no job gently (three seconds after it asks,
it kills), so the wrapper sees to that and to time limits; a job that has waited for a quarter of an
hour it lets go of, which is told as lost, and submitted anew. Its memory is a number for the
scheduler, not a limit. https://docs.ray.io/en/latest/cluster/running-applications/job-submission/
"""

import os
import shlex
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from headway.clock import Clock
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.folder_engine import FolderEngine
from headway.engine.judge import Seen
from headway.engine.login import Login
from headway.engine.place import KEY, Place
from headway.engine.port import Cluster, GpuAsk, Part, Phase, Reason, Request
from headway.errors import InvalidInput
from headway.model.engine import EngineNode, EnginePool, GpuKind
from headway.model.run import ExitKind
from headway.units import DAY_S

POOL = "ray"
"""Ray has one queue."""
PARTS = 100
"""Of a GPU, for jobs that share one: Ray takes any fraction."""
_ANSWERS_WITHIN_S = 30.0
_REMEMBERS_S = 365 * DAY_S
"""Until its head is started anew."""
_NODES = 10_000
"""The most that Ray tells of at once."""
_TYPE = "accelerator_type:"
"""How the resource begins that names the type of a node's GPUs."""
_LOST = frozenset({"JOB_SUPERVISOR_ACTOR_START_TIMEOUT"})
"""Errors of jobs that never began: nothing of them is told, as of one that was lost."""
_WAITS = "PENDING"
_STATES: Mapping[str, tuple[Phase, ExitKind | None, str]] = {
    _WAITS: (Phase.WAITING, None, "it waits until what it asks for is free"),
    "RUNNING": (Phase.RUNNING, None, "it runs"),
    "STOPPED": (Phase.ENDED, ExitKind.CANCELLED, "somebody stopped it with Ray's own commands"),
    "SUCCEEDED": (Phase.ENDED, ExitKind.OK, "it ended well"),
    "FAILED": (Phase.ENDED, ExitKind.FAILED, "its program failed"),
}
"""Those of `JobStatus`; any other is told as it is, and its job taken to go on."""
_LETS_GO = (
    "it lets go of a job that has waited for 15 min (RAY_JOB_START_TIMEOUT_SECONDS of its head): "
    "headway submits it anew, behind what others have submitted meanwhile"
)
_LACKS = (
    _LETS_GO,
    "it limits no memory: a job that takes more than it asked for takes it from others",
    "a head that is started anew has forgotten its jobs, and ended them",
)


class RayEngine(FolderEngine):
    """Port `Engine` on Ray's Job API: single jobs, each on one node; GPUs and fractions of one."""

    name = "Ray"
    takes: frozenset[type[Part]] = frozenset()
    _names = ":"  # the command that Ray is given says it
    _spread = ()
    _rank_variable = ""

    def __init__(self, place: Place, site: str, clock: Clock, *, address: str) -> None:
        """An adapter for one site.

        Args:
            place: The folder that this host and all nodes of the cluster share.
            site: Name of the installation.
            clock: For how long something has been so.
            address: Of Ray's dashboard, such as http://head:8265; where it asks for a token, that
                is in RAY_AUTH_TOKEN, as for Ray's own commands.

        Raises:
            InvalidInput: The address is none, or has parts that it may not have.
        """
        super().__init__(place, site, clock)
        url = httpx.URL(address)
        if not url.host or url.userinfo or url.query or url.fragment:
            allowed = "give one such as http://head:8265: no user, password, query or fragment"
            raise InvalidInput("address", url.host, allowed)  # a password is not shown
        self._address = address.rstrip("/")
        token = os.environ.get("RAY_AUTH_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._trusts = ssl.create_default_context()

    def inspect(self) -> Cluster:
        """Its nodes that are alive, as one pool."""
        with self._read("/api/version") as said:
            version = said["ray_version"]
        with self._read(f"/api/v0/nodes?limit={_NODES}") as said:
            found = [_node(each) for each in said["data"]["result"]["result"]]
        nodes = tuple(sorted((node for node in found if node), key=lambda node: node.name))
        pool = EnginePool(POOL, nodes, is_default=True, max_nodes=1, address=self._address)
        return Cluster(version, (pool,), max_array=1, remembers_s=_REMEMBERS_S, lacks=_LACKS)

    def forget(self, key: str) -> None:
        """See `Engine.forget`; Ray, too, which else keeps it for ever.

        Raises:
            EngineAway: Ray keeps it, as it does until one has ended: it may start it yet.
        """
        self._delete(key)
        super().forget(key)

    def _submit(self, request: Request, script: Path, _ids: Mapping[str, str]) -> str:
        if request.account or request.qos:
            raise EngineRefused(self.name, request.key, "Ray has no accounts and no QOS")
        name = self._name(request.key)
        body = {
            "submission_id": name,
            "entrypoint": f"HEADWAY_JOB={name} HEADWAY_ALONE=1 exec sh {shlex.quote(str(script))}",
            "metadata": {"headway": self._site, "key": request.key},
            "entrypoint_num_cpus": request.cpus,
            "entrypoint_memory": request.host_memory_bytes,
            **_gpus(request.gpus),
        }
        answer = self._ask("POST", "/api/jobs/", body, fails=True)
        if answer.status_code == httpx.codes.OK:
            return name
        if "already exists" in answer.text:
            with self._read(self._path(request.key)) as job:
                has_ended = _STATES.get(job["status"], ("",))[0] is Phase.ENDED
            if not has_ended:
                return name
            self._delete(request.key)
            raise EngineAway(self.name, "submit", "it had one of that name, which had ended")
        said = " ".join(answer.text.split()[-60:])
        if answer.is_client_error:
            raise EngineRefused(self.name, request.key, said)
        raise EngineAway(self.name, "submit", said)

    def _queue(self) -> dict[str, dict[tuple[str, int], Seen]]:
        found: dict[str, dict[tuple[str, int], Seen]] = {}
        with self._read("/api/jobs/") as jobs:
            for job in jobs:
                said = job.get("metadata") or {}
                key = said.get("key")
                if said.get("headway") != self._site or job.get("error_type") in _LOST:
                    continue
                # Who submits a job there writes what he wants about it, but a name is taken once.
                if not isinstance(key, str) or not KEY.fullmatch(key):
                    continue
                if job["submission_id"] != self._name(key):
                    continue
                # Ray stops none that waits before its turn comes; its program will not begin then.
                if job["status"] != _WAITS or not self._place.is_cancelled(key):
                    found[key] = {(job["submission_id"], 0): _seen(job)}
        return found

    def _ask_to_stop(self, which: Sequence[tuple[str, int]], _login: Login | None) -> None:
        """Nothing: wrappers look for the mark, also of those whose turn comes yet."""

    def _kill(self, which: Sequence[tuple[str, int]], _login: Login | None) -> None:
        for engine_id, _ in which:  # it may have ended, or be forgotten
            self._ask("POST", f"/api/jobs/{quote(engine_id)}/stop", fails=True)

    def _name(self, key: str) -> str:
        return f"headway-{self._site}-{key}"

    def _path(self, key: str) -> str:
        return f"/api/jobs/{quote(self._name(key))}"

    def _delete(self, key: str) -> None:
        answer = self._ask("DELETE", self._path(key), fails=True)
        if not answer.is_success and answer.status_code != httpx.codes.NOT_FOUND:
            raise EngineAway(self.name, "delete", f"{answer.status_code} {answer.text[-200:]}")

    @contextmanager
    def _read(self, path: str) -> Iterator[Any]:
        """What Ray answers there; what reads it may find that it is not as expected.

        Raises:
            EngineAway: It is not, or there is no answer.
        """
        answer = self._ask("GET", path)
        try:
            yield answer.json()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            said = f"an answer that is not understood: {error!r}"
            raise EngineAway(self.name, f"GET {path}", said) from error

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, fails: bool = False
    ) -> httpx.Response:
        """What Ray answers; an error, too, where *fails*.

        Raises:
            EngineAway: Nothing, or an error.
        """
        try:
            answer = httpx.request(
                method, self._address + path, json=body, headers=self._headers,
                verify=self._trusts, timeout=_ANSWERS_WITHIN_S, trust_env=False,
            )  # fmt: skip
        except httpx.HTTPError as error:
            raise EngineAway(self.name, f"{method} {path}", str(error)) from error
        if answer.is_success or fails:
            return answer
        said = f"{answer.status_code} {answer.text[-200:]}"
        raise EngineAway(self.name, f"{method} {path}", said)


def _gpus(asked: GpuAsk | None) -> dict[str, Any]:
    """GPUs as Ray is asked for them; a type is a resource of which each node has one."""
    if asked is None or not asked.count:
        return {}
    share = asked.shards / PARTS if asked.shards else asked.count
    kind = {"entrypoint_resources": {_TYPE + asked.type: 0.001}} if asked.type else {}
    return {"entrypoint_num_gpus": share, **kind}


def _node(said: Mapping[str, Any]) -> EngineNode | None:
    """A node; None for one that runs no jobs."""
    has = said.get("resources_total") or {}
    if said.get("state") != "ALIVE" or not has.get("CPU"):
        return None
    count = int(has.get("GPU", 0))
    kind = next((each.removeprefix(_TYPE) for each in has if each.startswith(_TYPE)), "")
    gpus = (GpuKind(kind, count, shards=PARTS * count),) if count else ()
    return EngineNode(said["node_name"], int(has["CPU"]), int(has.get("memory", 0)), gpus, "ALIVE")


def _seen(job: Mapping[str, Any]) -> Seen:
    word, error = job["status"], job.get("error_type") or ""
    phase, kind, sentence = _STATES.get(word, (Phase.UNKNOWN, None, ""))
    if kind is ExitKind.FAILED and not error.startswith("JOB_ENTRYPOINT"):
        kind, sentence = ExitKind.INFRASTRUCTURE, f"Ray could not run it ({error})"
    waits = Reason(word, sentence) if phase is Phase.WAITING else None
    node = urlsplit(job.get("driver_agent_http_address") or "").hostname or ""
    return Seen(job["submission_id"], word, phase, kind, sentence, waits, nodes=node)
