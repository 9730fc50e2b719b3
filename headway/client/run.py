"""A run as people's programs hold it: what the gateway said of it, and what can be done with it."""

import asyncio
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.client.download import Download, chosen, take_folder
from headway.clock import Clock
from headway.errors import (
    GatewayRefused,
    RunFailed,
    SiteUnreachable,
    WaitTimedOut,
    may_come_back,
)

if TYPE_CHECKING:
    from headway.client import Client

LOOK_EVERY_S = 1.0


class Run(dict[str, Any]):
    """One run: the document of docs/reference/json.md as it was last asked for, with methods.

    Several threads may wait at once: ``executor.submit(run.wait)`` is a future of it, and
    ``await run`` waits in a coroutine.
    """

    def __init__(self, document: dict[str, Any], client: "Client", clock: Clock) -> None:
        """The run of *document*, at the gateway of *client*."""
        super().__init__(document)
        self._client = client
        self._clock = clock

    @property
    def run_id(self) -> str:
        """Its id."""
        return str(self["run_id"])

    @property
    def state(self) -> str:
        """The state it is in now, as Prefect calls it, such as ``Running``."""
        return str(self._client.standing(self.run_id)["state"])

    def wait(self, timeout_s: float | None = None) -> "Run":
        """Wait until it has ended well; gives the run with all that is known of it then.

        Args:
            timeout_s: So long at most; for as long as it takes if None.

        Raises:
            RunFailed: It has ended otherwise.
            WaitTimedOut: It goes on.
        """
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while not self.over():
            if until_s is not None and self._clock.monotonic_s() >= until_s:
                raise WaitTimedOut(self.run_id, timeout_s or 0.0)
            self._clock.sleep(LOOK_EVERY_S)
        if self["state"] != "Completed":
            raise RunFailed(self.run_id, self["name"], self["state"], self.message)
        return self

    def over(self) -> bool:
        """Whether it has ended; once it has, the run has all that is known of it.

        While the gateway is away nobody knows, and the run goes on: then it has not ended.
        """
        try:
            if not self._client.standing(self.run_id)["over"]:
                return False
            self.update(self._client.run(self.run_id))
        except (SiteUnreachable, GatewayRefused) as error:
            if may_come_back(error):
                return False
            raise
        return True

    @property
    def message(self) -> str:
        """How it ended, in one sentence, or what it waits for; as of the last question."""
        return str((self.get("exit") or {}).get("message") or self.get("reason") or "")

    def __await__(self) -> Generator[Any, None, "Run"]:
        """As `wait`, in a thread of its own."""
        return asyncio.to_thread(self.wait).__await__()

    def log(self) -> str:
        """What its program has written so far."""
        return b"".join(self._client.log(self.run_id)).decode(errors="replace")

    def outputs(self, folder: str | Path, only: Sequence[str] = ()) -> list[Path]:
        """Fetch what it wrote below its outputs into *folder*, as `headway outputs` does.

        Args:
            folder: New, empty, or with what was fetched of this run before.
            only: Patterns such as ``*.pt``; all files if empty.

        Returns:
            The files.

        Raises:
            DownloadFailed: One of them could not be fetched as it is.
            InvalidInput: Something else is in *folder*.
        """
        into = Path(folder)
        take_folder(into, self.run_id)
        files = chosen(self._client.outputs(self.run_id)["files"], only)
        download = Download(self._client, self._clock, self.run_id, None, into, lambda _: None)
        download.check_room(files)
        for each in files:
            download.fetch(each)
        return [into / each["path"] for each in files]

    def cancel(self) -> None:
        """End it; its container gets its grace time."""
        self._client.cancel(self.run_id)

    def retry(self) -> None:
        """Try it once more, from its checkpoint, after it has ended."""
        self._client.retry(self.run_id)
