"""The one client of the gateway: what the command line and people's programs speak.

    with Client(find_address(read_settings())) as client:
        run = client.submit({"name": "digits", "image": "…", "command": ["…"]})
        print(client.run(run["run_id"])["state"])

What a call returns is described in docs/json.md.
"""

import re
import ssl
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

import httpx

from headway.clock import Clock, SystemClock
from headway.code.folder import Sent, pack
from headway.credentials import Address
from headway.errors import (
    CertificateRefused,
    EndUntold,
    GatewayRefused,
    GatewayUnreachable,
    HeadwayError,
    InvalidInput,
    RunUnknown,
    shown,
)
from headway.model.code import CodeManifest
from headway.model.code_frames import joined
from headway.model.run_file import FROM, MISSING, NEXT_ATTEMPT
from headway.model.strict_json import write_strict
from headway.pinning import refused_certificate
from headway.waits import waiting_for

Json = dict[str, Any]
_TIMEOUT_S = 120.0
"""The gateway itself waits for a busy Prefect server for up to a minute and a half."""
_TRIES = 20
"""Of a request that comes too early after others: it was not let in, and nothing was done."""
_LONGEST_PAUSE_S = 10.0


class Client:
    """One gateway, asked by one user. Several threads may ask at once.

    Every method raises `GatewayUnreachable` where it does not answer, `InvalidInput` and
    `RunUnknown` where what was asked for is wrong, and `GatewayRefused` for every other refusal.
    """

    def __init__(
        self,
        address: Address,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """The gateway at *address*; *transport* takes the place of the network."""
        self.url = address.url
        self._clock = clock or SystemClock()
        self._client = httpx.Client(
            base_url=f"{address.url}/v1",
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=_TIMEOUT_S,
            verify=_trusted(address),
            transport=transport,
            trust_env=False,  # a proxy meant for the internet must not see the token
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_token(self) -> None:
        """Raise `GatewayRefused` unless the token lets its user in, whatever it may be used for."""
        try:
            self.nodes()
        except GatewayRefused as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def outputs(self, run: str) -> Json:
        """The files that a run wrote below its outputs, and whether that is all of them."""
        return self._object("GET", f"/runs/{_part(run)}/outputs")

    @contextmanager
    def output(
        self, run_id: str, href: str, *, start: int = 0, version: str = ""
    ) -> Iterator["Output"]:
        """One of them, to be read within the block.

        Args:
            run_id: The run.
            href: Of the output, as `outputs` says.
            start: Its first byte that is wanted, if it still has this *version*; another one
                comes from its beginning.
            version: As an earlier answer said.
        """
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": f'"{version}"'}
        path = f"/runs/{_part(run_id)}/outputs/{href}"
        request = self._client.build_request("GET", path, headers=headers)
        answer = self._answer(request, stream=True)
        try:
            yield Output(self.url, answer)
        finally:
            answer.close()

    def output_digest(self, run_id: str, href: str) -> tuple[str, str | None]:
        """Version and SHA-256 of an output, which is read as a whole for that.

        There is no digest of one that is written to at this moment.
        """
        path = f"/runs/{_part(run_id)}/outputs/{href}"
        request = self._client.build_request(
            "HEAD", path, headers={"Want-Repr-Digest": "sha-256=10"}, timeout=_DIGEST_S
        )
        found = Output(self.url, self._answer(request))
        return found.version, found.sha256

    def submit(
        self,
        job: Mapping[str, Any],
        *,
        key: str | None = None,
        pool: str | None = None,
        queue: str | None = None,
    ) -> Json:
        """Hand in *job*, which has the fields of a job file.

        Args:
            job: Its owner and team are those of the token. The folder of its `workdir` is sent.
            key: Submitting twice with one key gives one run.
            pool: Work pool, where the site has several.
            queue: Work queue, or a node to run on.
        """
        body = {"job": self.with_code(job), "key": key, "pool": pool, "queue": queue}
        return self._placed(self._object("POST", "/runs", body))

    def send_code(self, folder: Path, *, team: str = "", sent: Sent | None = None) -> str:
        """Send what of *folder* travels and is not at the gateway yet; its id, for `code` of a job.

        Args:
            folder: With the files that git tracks or its ignore files let through.
            team: Whose it is to be; the token's own if empty.
            sent: Is told how many bytes have been sent, and of how many.
        """
        packed = pack(folder)
        missing = self._missing_code(packed.manifest, team)
        total = sum(packed.manifest.chunks.get(each, 0) for each in missing)
        done = 0
        for body in joined(packed.chunks(missing)):
            self._upload("/code/chunks", body, team)
            done += len(body)
            if sent is not None:
                sent(min(done, total), total)
        if missing and (left := self._missing_code(packed.manifest, team)):
            cause = f"{len(left)} parts of {packed.folder} did not arrive"
            raise GatewayUnreachable(self.url, cause)
        return packed.manifest.code_id

    def _missing_code(self, manifest: CodeManifest, team: str) -> set[str]:
        return set(self._upload("/code", manifest.text, team)["missing"])

    def _upload(self, path: str, body: bytes, team: str) -> Json:
        headers = {"Content-Type": "application/octet-stream"}
        request = self._client.build_request(
            "POST", path, content=body, params={"team": team}, headers=headers
        )
        found = _read(self._answer(request), self.url)
        if not isinstance(found, dict):
            raise GatewayUnreachable(self.url, "what answers there is no gateway")
        return found

    def with_code(self, job: Mapping[str, Any], *, sent: Sent | None = None) -> Json:
        """*job* with the folder of its `workdir` sent, where it names one; as for `send_code`."""
        workdir = job.get("workdir")
        if not workdir:
            return dict(job)
        team = str(job.get("team") or "")
        team = "" if team == "default" else team  # what a form fills in names nobody
        code = self.send_code(Path(str(workdir)), team=team, sent=sent)
        return {**job, "workdir": "", "code": code}

    def rehearse(
        self, job: Mapping[str, Any], *, pool: str | None = None, queue: str | None = None
    ) -> Json:
        """What would become of *job* if it were handed in now; nothing is."""
        body = {"job": dict(job), "pool": pool, "queue": queue}
        return self._object("POST", "/rehearsals", body)

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
        asked = {"job": dict(job), "budget": budget, "deadline_s": deadline_s, "prefer": prefer}
        options: list[Json] = self._object("POST", "/estimates", asked)["options"]
        return options

    def runs(
        self,
        limit: int = 100,
        *,
        name: str = "",
        states: Sequence[str] = (),
        since: datetime | None = None,
        mine: bool = False,
    ) -> list[Json]:
        """The newest runs that the token sees, newest first; as `headway runs` filters them."""
        asked = {"limit": limit, "name": name, "state": list(states), "mine": mine}
        if since is not None:
            asked["since"] = since.isoformat()
        return [self._placed(each) for each in self._list("/runs", asked)]

    def run(self, run: str) -> Json:
        """All that is known of a run: by its id, the beginning of it, or its name."""
        return self._placed(self._object("GET", f"/runs/{_part(run)}"))

    def standing(self, run: str) -> Json:
        """How a run stands, for who follows it: less than `run`, and cheaper."""
        return self._placed(self._object("GET", f"/runs/{_part(run)}/standing"))

    def report(self, run: str) -> list[Json]:
        """Tables for people about a run: title, columns and rows of each."""
        return self._list(f"/runs/{_part(run)}/report")

    def log(self, run_id: str, *, follow: bool = False) -> Iterator[bytes]:
        """What the run's program wrote, all attempts in order; with *follow* until it has ended.

        An answer that broke off is asked for again from the byte where it did.

        Raises:
            GatewayUnreachable: With *follow*, for a whole minute.
        """
        log = self.log_of(run_id)
        if not follow:
            yield from log.new()
            return
        answered_s = self._clock.monotonic_s()
        while not log.over:
            try:
                for piece in log.asked(follow=True):
                    answered_s = self._clock.monotonic_s()
                    yield piece
            except (GatewayUnreachable, GatewayRefused) as error:
                if isinstance(error, GatewayRefused) and error.status != _FOR_THE_MOMENT:
                    raise
                if self._clock.monotonic_s() >= answered_s + _GIVEN_UP_S:
                    raise
                self._clock.sleep(_PAUSE_S)

    def log_of(self, run_id: str) -> "RunLog":
        """The run's log from its beginning, to be read bit by bit."""

        def ask(asked: Mapping[str, Any]) -> httpx.Response:
            path = f"/runs/{_part(run_id)}/log"
            return self._answer(self._client.build_request("GET", path, params=asked), stream=True)

        return RunLog(self.url, ask)

    def why(self, run: str) -> Json:
        """Why a run waits: what is scarce, who has it, who is ahead, and what would help."""
        return self._object("GET", f"/runs/{_part(run)}/why")

    def cancel(self, run: str) -> Json:
        """End a run; its container gets its grace time."""
        return self._object("POST", f"/runs/{_part(run)}/cancel", {})

    def retry(self, run: str) -> Json:
        """Try a run that has ended once more, from its checkpoint."""
        return self._object("POST", f"/runs/{_part(run)}/retry", {})

    def nodes(self) -> list[Json]:
        """What each node has, what is promised of it, and what is in use."""
        return self._list("/nodes")

    def queue(self, pool: str = "") -> list[Json]:
        """Who waits for a work pool, for what, in which order; for the gateway's own if empty."""
        return self._list("/queue", {"pool": pool})

    def top(self) -> Json:
        """Nodes, running runs, and those that wait."""
        return self._object("GET", "/top")

    def limit(self, field: str) -> str:
        """What the nodes of the site allow for a field of a job, as the end of a sentence."""
        return str(self._object("GET", f"/limits/{_part(field)}")["allowed"])

    def _placed(self, view: Json) -> Json:
        """*view* of a run, with the address of its page by the name that was asked."""
        return view | {"url": f"{self.url}{view['url']}"}

    def usage(
        self, *, team: str | None = None, user: str | None = None, month: str | None = None
    ) -> Json:
        """What teams and users held in a month, such as 2026-11; in the present one for None."""
        asked = {"team": team, "user": user, "month": month}
        given = {name: value for name, value in asked.items() if value is not None}
        return self._object("GET", "/usage", parameters=given)

    def _object(
        self,
        method: str,
        path: str,
        body: object = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Json:
        found = self._ask(method, path, body, parameters)
        if not isinstance(found, dict):
            raise GatewayUnreachable(self.url, "what answers there is no gateway")
        return found

    def _list(self, path: str, asked: Mapping[str, Any] | None = None) -> list[Json]:
        found = self._ask("GET", path, parameters=asked)
        if not isinstance(found, list):
            raise GatewayUnreachable(self.url, "what answers there is no gateway")
        return found

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the gateway answers, asked again where it was too early."""
        content = None if body is None else write_strict(body)
        request = self._client.build_request(
            method, path, content=content, params=parameters, headers=_JSON
        )
        with waiting_for(f"the gateway at {shown(self.url)[1:-1]}"):
            return _read(self._answer(request), self.url)

    def _answer(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """The answer to *request*, which is no refusal."""
        for _ in range(_TRIES):
            answer = self._sent(request, stream=stream)
            if answer.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                break
            answer.close()
            self._clock.sleep(_pause_s(answer))
        if not answer.is_success:
            answer.read()
            raise refusal(answer, self.url)
        return answer

    def _sent(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            return self._client.send(request, stream=stream)
        except httpx.TransportError as error:
            if why := refused_certificate(error):
                raise CertificateRefused(self.url, why) from error
            cause = str(error) or type(error).__name__
            raise GatewayUnreachable(self.url, shown(cause, 200)[1:-1]) from error


class RunLog:
    """A run's log, read on where it was left off."""

    def __init__(self, url: str, ask: Callable[[Mapping[str, Any]], httpx.Response]) -> None:
        """Of the gateway at *url*; *ask* opens its answer to a question for some of the log."""
        self._url = url
        self._ask = ask
        self._attempt = 1
        self._offset = 0
        self.over = False
        """The last answer said that nothing more is there and, if it followed, will come."""

    def new(self) -> Iterator[bytes]:
        """What has come since, up to the newest attempt."""
        for _ in range(_MOST_ANSWERS):  # a program that writes all the time does not keep us
            yield from self.asked(follow=False)
            if self.over:
                return

    def asked(self, *, follow: bool) -> Iterator[bytes]:
        """One answer's part of it."""
        self.over = False
        answer = self._ask({"attempt": self._attempt, "from": self._offset, "follow": follow})
        try:
            if answer.status_code == HTTPStatus.NO_CONTENT:
                later = answer.headers.get(NEXT_ATTEMPT)
                if why := answer.headers.get(MISSING):
                    yield f"headway: {unquote(why)}\n".encode()
                self.over = later is None
                if later is not None:
                    self._attempt, self._offset = int(later), 0
                return
            self._offset = int(answer.headers[FROM])
            for piece in answer.iter_bytes():
                self._offset += len(piece)
                yield piece
        except (httpx.TransportError, KeyError, ValueError) as error:
            raise GatewayUnreachable(self._url, type(error).__name__) from error
        finally:
            answer.close()


_MOST_ANSWERS = 200
_PAUSE_S = 1.0
_FOR_THE_MOMENT = HTTPStatus.SERVICE_UNAVAILABLE
"""Such as while the worker of the run's node is started anew."""
_GIVEN_UP_S = 60.0
"""So long a gateway may be away while somebody follows a log."""


class Output:
    """One output of a run, as it is being sent."""

    def __init__(self, url: str, answer: httpx.Response) -> None:
        """As the gateway at *url* answers."""
        self._url = url
        self._answer = answer
        self.version = answer.headers.get("ETag", "").strip('"')
        """Differs when the file may differ."""
        partial = _PARTIAL.match(answer.headers.get("Content-Range", ""))
        self.start = int(partial[1]) if partial else 0
        """Offset of the first byte that comes."""
        digest = _DIGEST.fullmatch(answer.headers.get("Repr-Digest", ""))
        self.sha256 = b64decode(digest[1]).hex() if digest else None
        """Of the whole file, where it was sent along."""

    def pieces(self) -> Iterator[bytes]:
        """Its bytes in order.

        Raises:
            GatewayUnreachable: It broke off.
        """
        try:
            yield from self._answer.iter_raw()
        except httpx.TransportError as error:
            cause = str(error) or type(error).__name__
            raise GatewayUnreachable(self._url, shown(cause, 200)[1:-1]) from error


_PARTIAL = re.compile(r"bytes ([0-9]{1,18})-")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_DIGEST_S = 3600.0
_JSON = {"Content-Type": "application/json"}


def refusal(answer: httpx.Response, url: str) -> HeadwayError:
    """The error that *answer*, of the gateway at *url*, stands for."""
    match _read(answer, url):
        case {"field": str(field), "value": value, "allowed": str(allowed)}:
            return InvalidInput(field, value, allowed)
        case {"run": str(run)}:
            return RunUnknown(run)
        case {"untold": str(run)}:
            return EndUntold(run)
        case {"detail": str(detail)}:
            return GatewayRefused(answer.status_code, detail)
        case _:
            return GatewayUnreachable(url, f"HTTP {answer.status_code}")


def _read(answer: httpx.Response, url: str) -> Any:
    """The document in *answer*: a proxy, or another program, may have written no JSON at all."""
    try:
        return answer.json()
    except ValueError:
        cause = f"HTTP {answer.status_code}, and what answers there is no gateway"
        raise GatewayUnreachable(url, cause) from None


def _pause_s(answer: httpx.Response) -> float:
    told = answer.headers.get("Retry-After", "")
    return min(float(told), _LONGEST_PAUSE_S) if told.isdigit() else 1.0


def _trusted(address: Address) -> ssl.SSLContext | bool:
    if not address.url.startswith("https:"):
        return False  # there is nothing to check, and to read all certificates takes a while
    if address.certificate is None:
        return True
    return ssl.create_default_context(cadata=address.certificate)


def _part(name: str) -> str:
    """*name* as one part of a path, whatever characters it has.

    Raises:
        RunUnknown: It is none.
        InvalidInput: A path with it would be another one.
    """
    if "/" in name:
        raise InvalidInput("run", name, "give its id: a name with a slash cannot be asked for")
    if name in {"", ".", ".."}:
        raise RunUnknown(name)  # each id begins with the first: a variable that was not set
    return quote(name, safe="", errors="surrogateescape")
