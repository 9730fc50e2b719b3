"""Fetches the outputs of runs into a folder while they go on, so that other programs read along.

Such as TensorBoard, which shows the curves of each folder below the one that it is given.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.client.download import Download, DownloadFailed, chosen, take_folder
from headway.clock import Clock
from headway.errors import GatewayRefused, RunUnknown, SiteUnreachable, may_come_back

if TYPE_CHECKING:
    from headway.client import Client

_NOT_THERE = 404
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of a run, as it may be a folder's here."""


class Followed:
    """Runs and arrays whose outputs come into one folder.

    One run has it alone. Of several, and of an array, each has a folder in it, by its name.
    """

    def __init__(
        self,
        client: "Client",
        clock: Clock,
        asked: Sequence[str],
        folder: Path,
        only: Sequence[str],
    ) -> None:
        """Nothing is fetched yet.

        Args:
            client: The gateway.
            clock: Waits between tries.
            asked: Runs, or arrays, by id or name.
            folder: New, empty, or with what was fetched of these runs before.
            only: Patterns of files; all if empty.
        """
        self._client = client
        self._clock = clock
        self._folder = folder
        self._only = only
        self._arrays: list[str] = []
        self.runs: dict[str, FollowedRun] = {}
        """Those that are known by now: an array's become more."""
        self._more_come = False
        self.over = False
        for each in asked:
            self._find(each, alone=len(asked) == 1)

    def _find(self, name: str, *, alone: bool) -> None:
        try:
            self._arrays.append(self._client.array(name, members=False)["array_id"])
        except RunUnknown:
            run = self._client.run(name)
            self._add(run["run_id"], "" if alone else run["name"])

    def _add(self, run_id: str, name: str) -> None:
        taken = {each.folder.name for each in self.runs.values()}
        if name and (name in taken or _NAME.fullmatch(name) is None):
            name = run_id  # two of one name; or a gateway's that no run can have
        into = self._folder / name
        take_folder(into, run_id)
        nobody: Any = lambda _: None  # noqa: E731
        found = Download(self._client, self._clock, run_id, None, into, nobody)
        self.runs[run_id] = FollowedRun(found, self._only)

    def step(self) -> int:
        """Fetch what is new of all that go on; how many bytes that were.

        A gateway that is away for the moment is asked again in the next step.

        Raises:
            GatewayRefused: It does not let this token in any more.
        """
        came = 0
        try:
            for run in self._going():
                came += run.step()
        except (SiteUnreachable, GatewayRefused) as error:
            if not may_come_back(error):
                raise
            return came
        self.over = all(run.over for run in self.runs.values()) and not self._more_come
        return came

    def fetch(self) -> int:
        """Fetch what all of them have written by now, whole and checked; how many bytes."""
        return sum(run.fetch() for run in self._going())

    def _going(self) -> list["FollowedRun"]:
        """The runs whose outputs are not all here, with the members that have begun."""
        self._more_come = False
        for array_id in self._arrays:
            array = self._client.array(array_id)
            self._more_come |= bool(array["waiting"] or array["running"])
            for member in array["members"]:
                if member["run_id"] not in self.runs:
                    self._add(member["run_id"], member["name"])
                self.runs[member["run_id"]].ended = member["exit"] is not None
        return [each for each in self.runs.values() if not each.over]

    @property
    def failed(self) -> Iterator[DownloadFailed]:
        """What could not be fetched of runs that have ended."""
        for run in self.runs.values():
            yield from run.failed


class FollowedRun:
    """One run whose outputs come into a folder of its own, bit by bit."""

    def __init__(self, download: Download, only: Sequence[str]) -> None:
        """Into the folder of *download*."""
        self._download = download
        self._only = only
        self._seen: dict[str, tuple[int, float]] = {}
        """Size and time of each file when it was last fetched."""
        self.ended: bool | None = None
        """Whether it has; None where it has to be asked."""
        self.over = False
        """Whether all that there will be was fetched and checked."""
        self.failed: list[DownloadFailed] = []

    @property
    def folder(self) -> Path:
        """Where its outputs come."""
        return self._download.folder

    def step(self) -> int:
        """Fetch what is new; how many bytes that were. Raises as the client does."""
        client, run_id = self._download.client, self._download.run_id
        ended = client.standing(run_id)["over"] if self.ended is None else self.ended
        if not ended:
            return sum(map(self._grown, self._files()))
        came = self.fetch()
        self.over = True
        return came

    def _files(self) -> list[dict[str, Any]]:
        try:
            files = self._download.client.outputs(self._download.run_id)["files"]
        except GatewayRefused as error:
            if error.status != _NOT_THERE:
                raise
            return []  # it has not started yet, or has never written any
        return chosen(files, self._only)

    def _grown(self, file: dict[str, Any]) -> int:
        now, came = (file["bytes"], file["modified"]), 0
        if self._seen.get(file["href"]) == now:
            return 0
        try:
            came = self._download.grow(file)
        except DownloadFailed:
            pass  # it is told at the end
        except GatewayRefused as error:
            if may_come_back(error):
                raise  # else its program has removed or cut it meanwhile
        self._seen[file["href"]] = now
        return came

    def fetch(self) -> int:
        """Have all files here, whole and checked; how many bytes came for it."""
        files, came, self.failed = self._files(), 0, []
        for each in files:
            try:
                came += each["bytes"] if self._download.settle(each) else 0
            except DownloadFailed as error:
                self.failed.append(error)
        return came
