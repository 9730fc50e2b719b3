"""The Prefect server over HTTP: what the command line asks of it.

`import prefect` takes 1.7 s; a person who types `headway runs` should not
wait for it. So the command line speaks the few REST calls it needs itself.
Flows and the worker use Prefect's own client.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

from headway.clock import Clock, SystemClock
from headway.errors import InvalidInput, RunUnknown, SiteBroken, SiteRefused, SiteUnreachable
from headway.model.strict_json import write_strict
from headway.prefect.listed_run import ListedRun, listed_run, unreadable
from headway.prefect.transport import ONCE, REFUSED, RetryTransport, SiteAuth
from headway.prefect.unreadable import HISTORY, read_apart

FLOW = "train"
RANK = "rank"
"""One node's part of a gang."""
DEPLOYMENT = "train/default"
DEPLOYMENTS = {FLOW: DEPLOYMENT, RANK: "rank/gang"}
REGISTERED = (*DEPLOYMENTS.values(), "estimate/estimate", "retrain-estimators/nightly")
"""All deployments that `headway up` registers."""
QUEUE_OF_NODE = "Runs on node %s only"
"""What Prefect says of a node's work queue."""

_COPIED = (
    *("flow_id", "entrypoint", "path", "pull_steps", "description", "tags"),
    *("parameters", "parameter_openapi_schema", "enforce_parameter_schema"),
)
_PAGE = 200  # the server's own limit
_JSON = {"Content-Type": "application/json"}
_SUSPENDED_AT_MOST = timedelta(days=30)


class PrefectServer:
    """One Prefect server. Every method raises `SiteUnreachable` when it does not answer."""

    def __init__(
        self,
        api_url: str,
        *,
        auth: str | None,
        timeout_s: float = 15.0,
        clock: Clock | None = None,
    ) -> None:
        """The server at *api_url*, told *auth*; *clock* waits while it is busy."""
        self.api_url = api_url.rstrip("/")
        self._clock = clock or SystemClock()
        self._client = httpx.Client(
            base_url=self.api_url,
            auth=SiteAuth(auth, self.api_url),
            timeout=timeout_s,
            transport=RetryTransport(self._clock),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else write_strict(body)
        try:
            response = self._client.request(method, path, content=content, headers=_JSON)
        except httpx.TransportError as error:
            raise SiteUnreachable(self.api_url, type(error).__name__) from error
        if response.status_code == httpx.codes.NOT_FOUND:
            raise LookupError(path)
        if response.status_code in REFUSED:
            raise SiteRefused(self.api_url, f"HTTP {response.status_code}")
        if response.is_error:
            broken = response.status_code == httpx.codes.INTERNAL_SERVER_ERROR
            kind = SiteBroken if broken else SiteUnreachable
            detail = response.text[:300].replace("\n", " ")
            raise kind(self.api_url, f"HTTP {response.status_code}: {detail}")
        return response.json() if response.content else None

    def _has(self, path: str) -> bool:
        try:
            return self._call("GET", path) is not None
        except LookupError:
            return False

    def accepts(self) -> bool:
        """Whether the server answers to our auth string, and to nobody without one."""
        path = "/admin/version"
        try:
            ours, without = self._client.get(path), self._client.get(path, auth=None)
        except httpx.TransportError as error:
            raise SiteUnreachable(self.api_url, type(error).__name__) from error
        return without.status_code in REFUSED and ours.status_code not in REFUSED

    def is_healthy(self) -> bool:
        """Whether a Prefect server answers here at all."""
        try:
            return self._call("GET", "/health") is True
        except (SiteUnreachable, LookupError):
            return False

    def submit(
        self,
        parameters: Mapping[str, Any],
        *,
        name: str,
        tags: Sequence[str],
        key: str | None,
        pool: str | None = None,
        queue: str | None = None,
    ) -> ListedRun:
        """Create a run of the `train` flow.

        Args:
            parameters: The flow's parameters.
            name: Name of the run in the UI.
            tags: Tags in the UI.
            key: Idempotency key: the same key gives the same run.
            pool: Work pool it goes to; that of `train/default` when None.
            queue: Work queue; a node's name binds the run to that node.

        Raises:
            SiteUnreachable: No server, or the deployment is not registered.
            InvalidInput: There is no such pool or queue.
        """
        deployment = self.destination(pool, queue)
        body = {
            "name": name,
            "parameters": dict(parameters),
            "tags": list(tags),
            "state": {"type": "SCHEDULED", "message": "Handed to headway"},
            "enforce_parameter_schema": False,
            "idempotency_key": key or uuid4().hex,
            **({} if queue is None else {"work_queue_name": queue}),
        }
        return listed_run(
            self._call("POST", f"/deployments/{deployment['id']}/create_flow_run", body)
        )

    def destination(self, pool: str | None, queue: str | None) -> dict[str, Any]:
        """The deployment that takes runs of *pool*, whose *queue* is looked up too.

        Raises:
            SiteUnreachable: No server, or the deployment is not registered.
            InvalidInput: There is no such pool or queue.
        """
        deployment = self._deployment(pool)
        if not deployment["work_pool_name"]:  # Prefect would take a run that no worker ever sees
            cause = f"the work pool of deployment {DEPLOYMENT} was deleted there"
            raise SiteUnreachable(self.api_url, cause)
        if queue is not None:
            self._check_queue(deployment["work_pool_name"], queue)
        return deployment

    def has_secret(self, name: str) -> bool:
        """Whether there is a Secret block called *name*; its value is not asked for."""
        return self._has(_block("secret", name))

    def has_deployment(self) -> bool:
        """Whether `train/default` is registered there."""
        return self._has(f"/deployments/name/{DEPLOYMENT}")

    def has_all(self, node: str) -> bool:
        """Whether what `headway up` registers for *node* is there: somebody may have deleted it."""
        try:
            deployments = [self._call("GET", f"/deployments/name/{name}") for name in REGISTERED]
        except LookupError:
            return False
        documents = (("node", node), ("line", "site"), ("container-policy", "site"))
        return all(each["work_pool_name"] for each in deployments) and all(
            self._has(_block(f"headway-{kind}", name)) for kind, name in documents
        )

    def block(self, kind: str, name: str) -> dict[str, Any] | None:
        """The document of the block *kind*/*name*; None where there is none."""
        try:
            return dict(self._call("GET", _block(kind, name)))
        except LookupError:
            return None

    def set_block(self, kind: str, name: str, data: Mapping[str, Any]) -> None:
        """Have the block *kind*/*name*, which is made if there is none, say *data*, too."""
        if (known := self.block(kind, name)) is not None:
            body = {"data": data, "merge_existing_data": True}
            self._call("PATCH", f"/block_documents/{known['id']}", body)
            return
        like = self._call("GET", f"/block_types/slug/{kind}/block_documents?limit=1")[0]
        ids = {key: like[key] for key in ("block_type_id", "block_schema_id")}
        self._call("POST", "/block_documents/", {**ids, "name": name, "data": data})

    def has_pool(self, name: str) -> bool:
        """Whether work pool *name* is there, for nodes."""
        try:
            pool: dict[str, Any] = self._call("GET", f"/work_pools/{_part(name)}")
        except LookupError:
            return False
        return bool(pool["type"] == "gpu-node")

    def have_pool(self, name: str, *, like: str, about: str) -> None:
        """Make work pool *name* with the template of the pool *like*, unless it is there."""
        if self.has_pool(name):
            return
        template = self._call("GET", f"/work_pools/{_part(like)}")["base_job_template"]
        body = {"name": name, "type": "gpu-node", "description": about}
        self._call("POST", "/work_pools/", {**body, "base_job_template": template})

    def have_queue(self, pool: str, node: str) -> None:
        """Make the work queue of *node* in work pool *pool*, unless it is there."""
        queues = f"/work_pools/{_part(pool)}/queues"
        if self._has(f"{queues}/{_part(node)}"):
            return
        # Either the scheduler was faster, or who asks for the queue next is told the trouble.
        with suppress(SiteUnreachable, LookupError):
            self._call("POST", f"{queues}/", {"name": node, "description": QUEUE_OF_NODE % node})

    def _deployment(self, pool: str | None) -> dict[str, Any]:
        try:
            default: dict[str, Any] = self._call("GET", f"/deployments/name/{DEPLOYMENT}")
        except LookupError:
            raise SiteUnreachable(
                self.api_url, f"deployment {DEPLOYMENT} is not registered there"
            ) from None
        if pool is None or default["work_pool_name"] == pool:
            return default
        try:
            own: dict[str, Any] = self._call("GET", f"/deployments/name/{FLOW}/{_part(pool)}")
        except LookupError:
            raise InvalidInput("pool", pool, "give a work pool that a node has joined") from None
        return own

    def _check_queue(self, pool: str, queue: str) -> None:
        if not self._has(f"/work_pools/{_part(pool)}/queues/{_part(queue)}"):
            raise InvalidInput(
                "node or queue",
                queue,
                f"give a node or a queue of work pool {pool}; see `headway nodes`",
            )

    def offer_in(self, pool: str, sample: Mapping[str, Any] | None = None) -> None:
        """Make the deployments of `train` and `rank` for *pool*, unless it has them.

        *sample* is the job of a run there that is given none; None for that of `train/default`.
        """
        if self._deployment(None)["work_pool_name"] == pool:
            return
        for deployment in DEPLOYMENTS.values():
            default = self._call("GET", f"/deployments/name/{deployment}")
            body = {key: default[key] for key in _COPIED}
            if sample is not None and deployment == DEPLOYMENT:
                body["parameters"] = {"job": sample}
            self._call("POST", "/deployments/", {**body, "name": pool, "work_pool_name": pool})

    def lead_to(self, pool: str, sample: Mapping[str, Any]) -> None:
        """Let runs that name no pool go to *pool*, and those that name no job be the *sample*."""
        default = self._deployment(None)
        body = {"work_pool_name": pool, "parameters": {"job": sample}}
        self._call("PATCH", f"/deployments/{default['id']}", body)

    def runs(self, limit: int) -> list[ListedRun]:
        """The newest runs of the `train` flow, at most *limit* of them, newest first."""
        wanted = {"flows": {"name": {"any_": [FLOW]}}, "sort": "START_TIME_DESC", "limit": limit}
        return [listed_run(run) for run in self._page(wanted)]

    def _page(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A page of runs; of one that the server cannot send, what it says of it elsewhere."""
        rows = self._sent(asked)
        if rows is None:
            known = {each["id"]: each for each in self._call("POST", HISTORY, asked)}
            found = read_apart(
                list(known), lambda ids: self._sent({"flow_runs": {"id": {"any_": ids}}})
            )
            sent = {row["id"]: row for row in found[0]}
            rows = [sent.get(run_id) or unreadable(each) for run_id, each in known.items()]
        return rows

    def _sent(self, asked: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """The runs that are *asked* for; None where the server fails while it sends them."""
        try:
            rows: list[dict[str, Any]] = self._call("POST", "/flow_runs/filter", asked)
        except SiteBroken:
            return None
        return rows

    def run(self, run_id: str) -> ListedRun:
        """One run. Raises `RunUnknown`."""
        try:
            return listed_run(self._call("GET", f"/flow_runs/{_part(run_id)}"))
        except LookupError:
            raise RunUnknown(run_id) from None

    def these(self, run_ids: Sequence[str]) -> dict[str, ListedRun]:
        """Runs by their ids; nothing of those that were deleted."""
        found: dict[str, ListedRun] = {}
        for start in range(0, len(run_ids), _PAGE):
            ids = list(run_ids[start : start + _PAGE])
            page = self._page({"flow_runs": {"id": {"any_": ids}}, "limit": _PAGE})
            found |= {row["id"]: listed_run(row) for row in page}
        return found

    def cancel(self, run_id: str, message: str) -> str:
        """Ask for the run's end; the state's name afterwards. Raises `RunUnknown`.

        A run that never started is Cancelled at once; one that runs becomes
        Cancelling and ends within its grace time. *message* says who asked.
        """
        try:
            answer = self._set_state(run_id, "CANCELLING", message, force=False)
        except LookupError:
            raise RunUnknown(run_id) from None
        state = answer.get("state") or {}
        if answer.get("status") == "REJECT" and state.get("type") == "CANCELLED":
            self.end(run_id, "CANCELLED", message)  # Prefect's own state says nothing
        return str(state.get("name") or self.run(run_id).state_name)

    def retry(self, run_id: str, message: str) -> str:
        """Ask for another attempt of a run that has ended; the state's name afterwards.

        Raises:
            RunUnknown: There is no such run.
        """
        try:
            self._set_state(run_id, "SCHEDULED", message, force=True, name="AwaitingRetry")
        except LookupError:
            raise RunUnknown(run_id) from None
        return self.run(run_id).state_name

    def suspend(self, run_id: str, message: str) -> None:
        """Ask for the run's suspension, for as long as Prefect allows. Raises `RunUnknown`."""
        until = (self._clock.now() + _SUSPENDED_AT_MOST).isoformat()
        details = {"pause_timeout": until, "pause_reschedule": True}
        state = {"type": "PAUSED", "name": "Suspended", "message": message}
        body = {"state": {**state, "state_details": details}, "force": True}
        try:
            self._call("POST", f"/flow_runs/{_part(run_id)}/set_state", body)
        except LookupError:
            raise RunUnknown(run_id) from None

    def ask(
        self, method: str, path: str, body: object = None, *, once: bool = False
    ) -> tuple[int, Any]:
        """What the server answers, whatever that is: status and document.

        Args:
            method: Such as ``POST``.
            path: Below the API's address.
            body: What is sent with a POST.
            once: Not again where the server is busy, or says so because the question is bad.

        Raises:
            SiteUnreachable: It does not answer, or fails at the question.
        """
        content = write_strict(body) if method == "POST" else None
        more = {ONCE: True} if once else {}
        try:
            response = self._client.request(
                method, path, content=content, headers=_JSON, extensions=more
            )
        except httpx.TransportError as error:
            raise SiteUnreachable(self.api_url, type(error).__name__) from error
        if response.status_code in REFUSED:
            raise SiteRefused(self.api_url, f"HTTP {response.status_code}")
        if response.is_server_error:
            raise SiteBroken(self.api_url, f"HTTP {response.status_code}")
        return response.status_code, response.json() if response.content else None

    def end(self, run_id: str, state_type: str, message: str, *, name: str = "") -> None:
        """Set the run's last state, such as FAILED, whatever it was before. Nothing if deleted."""
        with suppress(LookupError):
            self._set_state(run_id, state_type, message, force=True, name=name)

    def _set_state(
        self, run_id: str, state_type: str, message: str, *, force: bool, name: str = ""
    ) -> Any:
        state = {"type": state_type, "name": name or state_type.title(), "message": message}
        return self._call(
            "POST", f"/flow_runs/{run_id}/set_state", {"state": state, "force": force}
        )


def _block(kind: str, name: str) -> str:
    return f"/block_types/slug/{kind}/block_documents/name/{_part(name)}"


def _part(name: str) -> str:
    """*name* as one part of a path, whatever characters it has."""
    return quote(name, safe="", errors="surrogateescape")
