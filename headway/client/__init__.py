"""The one client of the gateway: what the command line and people's programs speak.

    from headway import Client, Job

    with Client() as client:
        run = client.submit(Job(name="digits", image="…", command=["…"]))
        print(run.wait()["measured"]["runtime_s"])

What a call returns is described in docs/reference/json.md; docs/python.md has more of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx

from headway.client.connection import Connection, Json, path_part
from headway.client.run import LOOK_EVERY_S, Run
from headway.client.run_files import Output, OutputPlace, RunLog, opened_output, output_digest
from headway.client.uploads import Told, as_if_sent, put_data, send_code, with_code
from headway.clock import Clock, SystemClock
from headway.code.folder import Sent
from headway.credentials import Address, find_address
from headway.errors import InvalidInput, WaitTimedOut
from headway.model.address import UPLOAD
from headway.model.job import TrainingJob
from headway.settings import read_settings

_RETRIED = ("retried", "follow", "not_yet")
"""Numbers of members, of which each answer about an array that is tried again has a part."""


class Client:
    """One gateway, asked by one user. Several threads may ask at once.

    Every method raises `GatewayUnreachable` where it does not answer, `InvalidInput` and
    `RunUnknown` where what was asked for is wrong, and `GatewayRefused` for every other refusal.
    """

    def __init__(
        self,
        address: Address | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """The gateway at *address*; *transport* takes the place of the network.

        Without an address it is the one that commands come in at: HEADWAY_URL and HEADWAY_TOKEN,
        else that of `headway login`, else this machine's own.
        """
        self.address = address or find_address(read_settings())
        self.url = self.address.url
        self._clock = clock or SystemClock()
        self._gateway = Connection(self.address, self._clock, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def me(self) -> Json:
        """Whose the token is: `user`, `team` and `scopes`."""
        return self._gateway.document("GET", "/me")

    def close(self) -> None:
        """Close its connections."""
        self._gateway.close()

    def outputs(self, run: str, attempt: int | None = None) -> Json:
        """The files that a run wrote below its outputs, and whether that is all of them.

        Of the last attempt that began, and those before it on the same node; or of *attempt*.
        """
        asked = {} if attempt is None else {"attempt": attempt}
        path = f"/runs/{path_part(run)}/outputs"
        return self._gateway.document("GET", path, parameters=asked)

    def output(
        self, place: OutputPlace, *, start: int = 0, version: str = ""
    ) -> AbstractContextManager[Output]:
        """One of them, to be read within the block.

        Args:
            place: Where it is.
            start: Its first byte that is wanted, if it still has this *version*; another one
                comes from its beginning.
            version: As an earlier answer said; empty for whatever it is now.
        """
        return opened_output(self._gateway, place, start=start, version=version)

    def output_digest(self, place: OutputPlace) -> tuple[str, str | None]:
        """Version and SHA-256 of an output, which is read as a whole for that.

        There is no digest of one that is written to at this moment.
        """
        return output_digest(self._gateway, place)

    def submit(
        self,
        job: Mapping[str, Any] | TrainingJob,
        *,
        key: str | None = None,
        pool: str | None = None,
        queue: str | None = None,
    ) -> Run:
        """Submit *job*, which has the fields of a job file.

        Args:
            job: Its owner and team are those of the token. The folder of its `workdir` is sent.
            key: Submitting twice with one key gives one run.
            pool: Work pool, where the site has several.
            queue: Work queue, or a node to run on.
        """
        given = job.document() if isinstance(job, TrainingJob) else job
        body = {"job": self.with_code(given), "key": key, "pool": pool, "queue": queue}
        made = self._placed(self._gateway.document("POST", "/runs", body))
        return Run(made, self, self._clock)

    def send_code(self, folder: Path, *, team: str = "", sent: Sent | None = None) -> str:
        """Send what of *folder* travels and is not at the gateway yet; its id, for `code` of a job.

        Args:
            folder: With the files that git tracks or its ignore files let through.
            team: Whose it is to be; the token's own if empty.
            sent: Is told how many bytes have been sent, and of how many.
        """
        return send_code(self._gateway, folder, team=team, sent=sent)

    def with_code(self, job: Mapping[str, Any], *, sent: Sent | None = None) -> Json:
        """*job* with the folder of its `workdir` sent, where it names one; as for `send_code`."""
        return with_code(self._gateway, job, sent=sent)

    def put_data(self, path: Path, name: str | None = None, *, told: Told | None = None) -> Json:
        """Send a file or a directory for jobs of the team; what is at the gateway is not sent.

        Args:
            path: What; there are no links in it.
            name: By which jobs name it, as ``headway://NAME``; that of *path* when left out.
            told: Is told how far that is.
        """
        called = name or path.resolve().name
        if UPLOAD.fullmatch(called) is None:
            allowed = "give 1 to 63 letters, digits, dots, dashes or underscores as its name"
            raise InvalidInput("name", called, allowed)
        nobody: Told = lambda *_: None  # noqa: E731
        return put_data(self._gateway, path, called, told=told or nobody, clock=self._clock)

    def data(self) -> list[Json]:
        """The data sets that members of the team have put."""
        return self._gateway.documents("/data")

    def remove_data(self, name: str) -> Json:
        """Remove one of one's own that no run needs."""
        return self._gateway.document("DELETE", f"/data/{path_part(name)}")

    def submit_array(
        self,
        job: Mapping[str, Any],
        *,
        key: str | None = None,
        pool: str | None = None,
        queue: str | None = None,
    ) -> Json:
        """Submit *job* as an array; its field ``array`` has the members' parameters.

        The arguments are those of `submit`.
        """
        body = {"job": self.with_code(job), "key": key, "pool": pool, "queue": queue}
        return self._gateway.document("POST", "/arrays", body)

    def rehearse(
        self, job: Mapping[str, Any], *, pool: str | None = None, queue: str | None = None
    ) -> Json:
        """What would become of *job* if it were submitted now; nothing is."""
        body = {"job": as_if_sent(job), "pool": pool, "queue": queue}
        return self._gateway.document("POST", "/rehearsals", body)

    def estimate(
        self,
        job: Mapping[str, Any],
        *,
        budget: float | None = None,
        deadline_s: float | None = None,
        prefer: str = "fastest",
    ) -> list[Json]:
        """Every way to run *job*: what it would take, cost and need, the choice marked.

        Args:
            job: As for `submit`.
            budget: Most that it may cost.
            deadline_s: Seconds from now within which it must end.
            prefer: What the choice is best in: ``fastest`` or ``cheapest``.
        """
        wishes = {"budget": budget, "deadline_s": deadline_s, "prefer": prefer}
        asked = {"job": as_if_sent(job), **wishes}
        options: list[Json] = self._gateway.document("POST", "/estimates", asked)["options"]
        return options

    def runs(
        self,
        limit: int = 100,
        *,
        name: str = "",
        states: Sequence[str] = (),
        since: datetime | None = None,
        mine: bool = False,
        members: bool = False,
    ) -> list[Json]:
        """The newest runs that the token sees, newest first; as `headway runs` filters them.

        Without *members* of arrays none of these: `arrays` has them as one.
        """
        asked = {"limit": limit, "name": name, "state": list(states), "mine": mine}
        asked["members"] = members
        if since is not None:
            asked["since"] = since.isoformat()
        return [self._placed(each) for each in self._gateway.documents("/runs", asked)]

    def arrays(
        self, limit: int = 100, *, name: str = "", since: datetime | None = None, mine: bool = False
    ) -> list[Json]:
        """The newest arrays that the token sees, newest first, with how their members stand."""
        asked: Json = {"limit": limit, "name": name, "mine": mine}
        if since is not None:
            asked["since"] = since.isoformat()
        return self._gateway.documents("/arrays", asked)

    def array(self, array: str, *, members: bool = True) -> Json:
        """One array, by id, beginning of id, or name.

        With *members*, each of those that have become runs is in it, too.
        """
        path = f"/arrays/{path_part(array)}"
        return self._gateway.document("GET", path, parameters={"members": members})

    def cancel_array(self, array: str) -> Json:
        """End all members of an array; those that have not become runs never do."""
        return self._gateway.document("POST", f"/arrays/{path_part(array)}/cancel", {})

    def retry_array(self, array: str) -> Json:
        """Try again all members that did not end well; and let the rest of a cancelled one come."""
        path, told = f"/arrays/{path_part(array)}/retry", dict.fromkeys(_RETRIED, 0)
        after: int | None = 0
        while after is not None:
            done = self._gateway.document("POST", path, {"after": after})
            told = {name: told[name] + done[name] for name in told}
            after = done["next"]
        return done | told

    def run(self, run: str) -> Run:
        """All that is known of a run: by its id, the beginning of it, or its name."""
        found = self._placed(self._gateway.document("GET", f"/runs/{path_part(run)}"))
        return Run(found, self, self._clock)

    def as_completed(self, runs: Iterable[Run], timeout_s: float | None = None) -> Iterator[Run]:
        """Each of *runs* as it ends, however it does: its ``state`` says how, and `wait` raises.

        Args:
            runs: Any number of them.
            timeout_s: So long at most for all of them; for as long as it takes if None.

        Raises:
            WaitTimedOut: One goes on.
        """
        left, begun_s = list(runs), self._clock.monotonic_s()
        while left:
            for run in [each for each in left if each.over()]:
                left.remove(run)
                yield run
            waited_s = self._clock.monotonic_s() - begun_s
            if left and timeout_s is not None and waited_s >= timeout_s:
                raise WaitTimedOut(left[0].run_id, timeout_s)
            if left:
                self._clock.sleep(LOOK_EVERY_S)

    def standing(self, run: str) -> Json:
        """How a run stands, for who follows it: less than `run`, and cheaper."""
        return self._placed(self._gateway.document("GET", f"/runs/{path_part(run)}/standing"))

    def report(self, run: str) -> list[Json]:
        """Tables for people about a run: title, columns and rows of each."""
        return self._gateway.documents(f"/runs/{path_part(run)}/report")

    def progress(self, run: str) -> Json:
        """Every point of progress of a run's newest attempt, and how far it is."""
        return self._gateway.document("GET", f"/runs/{path_part(run)}/progress")

    def log(self, run_id: str, *, follow: bool = False) -> Iterator[bytes]:
        """What the run's program wrote, all attempts in order; with *follow* until it has ended.

        An answer that broke off is asked for again from the byte where it did.

        Raises:
            GatewayUnreachable: With *follow*, for a whole minute.
        """
        log = self.log_of(run_id)
        return log.follow(self._clock) if follow else log.new()

    def log_of(self, run_id: str) -> RunLog:
        """The run's log from its beginning, to be read bit by bit."""
        return RunLog(self._gateway, run_id)

    def why(self, run: str) -> Json:
        """Why a run waits: what is scarce, who has it, who is ahead, and what would help."""
        return self._gateway.document("GET", f"/runs/{path_part(run)}/why")

    def cancel(self, run: str) -> Json:
        """End a run; its container gets its grace time."""
        return self._gateway.document("POST", f"/runs/{path_part(run)}/cancel", {})

    def retry(self, run: str) -> Json:
        """Try a run that has ended once more, from its checkpoint."""
        return self._gateway.document("POST", f"/runs/{path_part(run)}/retry", {})

    def nodes(self) -> list[Json]:
        """What each node has, what is promised of it, and what is in use."""
        return self._gateway.documents("/nodes")

    def queue(self, pool: str = "") -> list[Json]:
        """Who waits for a work pool, for what, in which order; for the gateway's own if empty."""
        return self._gateway.documents("/queue", {"pool": pool})

    def traces(self) -> list[Json]:
        """What runs of the token's team have measured, and what was imported for all."""
        return self._gateway.documents("/traces")

    def top(self) -> Json:
        """Nodes, running runs, and those that wait."""
        return self._gateway.document("GET", "/top")

    def limit(self, field: str) -> str:
        """What the nodes of the site allow for a field of a job, as the end of a sentence."""
        return str(self._gateway.document("GET", f"/limits/{path_part(field)}")["allowed"])

    def _placed(self, view: Json) -> Json:
        """*view* of a run, with the address of its page by the name that was asked."""
        placed = view | {"url": f"{self.url}{view['url']}"}
        if view.get("session"):
            placed["session"] = f"{self.url}{view['session']}"
        return placed

    def usage(
        self, *, team: str | None = None, user: str | None = None, month: str | None = None
    ) -> Json:
        """What teams and users held in a month, such as 2026-11; in the present one for None."""
        asked = {"team": team, "user": user, "month": month}
        given = {name: value for name, value in asked.items() if value is not None}
        return self._gateway.document("GET", "/usage", parameters=given)
