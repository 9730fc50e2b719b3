"""Watches the health of this node's GPUs: drains a sick one, and takes back one that is well."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headway.clock import booted_at
from headway.model.gpu_health import GpuDrain, GpuHealth, Sickness
from headway.model.node import NodeReading
from headway.policy.gpu_health import (
    LASTS_S,
    NOT_READ_AGAIN,
    PASSES_S,
    Fault,
    fault_of,
    is_over,
    sicknesses,
    xid_told,
)
from headway.policy.settings import OnStranger
from headway.policy.strangers import told_strangers
from headway.site import Site
from headway.telemetry.errors import NvmlUnavailable, TelemetryError

log = logging.getLogger(__name__)

_GAP_S = 5.0
"""Between two looks, of which there is one a second, at most for both to be of one row."""


class GpuWatch:
    """The watch of one worker; one thread looks, another one settles."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._looked_s = -math.inf
        """When it looked last, by the monotonic clock, as the times below."""
        self._since_s: dict[tuple[str, Sickness], float] = {}
        """The first of the looks in a row that found it."""
        self._over_since_s: dict[tuple[str, Sickness], float] = {}
        """The first of those that found it over."""
        self._drains_for_strangers = False
        self._xids: dict[str, set[int]] = {}
        """Every Xid of a GPU since it was last taken for well."""
        self._seen: Mapping[str, GpuHealth] = {}
        """By the newest look, without Xids."""
        self._was_sick: Mapping[str, Mapping[Sickness, str]] = {}
        """After the look before."""
        self._failure = ""
        """Why the newest look failed; empty if it did not."""
        self._looks = 0
        self._asked: dict[str, int] = {}
        """Drained GPUs that are to be judged anew, each with the looks that there had been."""
        self._is_new = True
        """What was drained before this worker and can be read again is to be judged anew."""

    def look(self, reading: NodeReading | None = None) -> bool:
        """Read how the GPUs are; whether one is sick of something that is new.

        *reading* says who is on them.
        """
        strangers = told_strangers(reading)
        gpus = self._site.gpus
        try:
            read = gpus.health()
        except TelemetryError as error:
            self._note_failure(error)
        else:
            self._failure = ""
            self._note(replace(each, strangers=strangers.get(each.uuid, "")) for each in read)
        for uuid, xid in gpus.xids():
            self._note_xid(uuid, xid)
        before, self._was_sick = self._was_sick, self.sick
        return any(
            not why.keys() <= before.get(uuid, {}).keys() for uuid, why in self._was_sick.items()
        )

    def _note(self, read: Iterable[GpuHealth]) -> None:
        self._looks += 1
        now_s = self._site.clock.monotonic_s()
        if now_s - self._looked_s > _GAP_S:  # who knows what was in between
            self._since_s, self._over_since_s = {}, {}
        self._looked_s = now_s
        self._seen = {each.uuid: each for each in read}
        self._since_s = {
            (uuid, kind): self._since_s.get((uuid, kind), now_s)
            for uuid, each in self._seen.items()
            for kind in sicknesses(each)
        }
        self._over_since_s = {
            (uuid, kind): self._over_since_s.get((uuid, kind), now_s)
            for uuid, each in self._seen.items()
            for kind in PASSES_S
            if is_over(each, kind)
        }

    def _note_failure(self, error: TelemetryError) -> None:
        """Say it once: the text of some errors is another one each second."""
        why = type(error).__name__ + (error.cause if isinstance(error, NvmlUnavailable) else "")
        if why != self._failure:
            log.warning("the health of the GPUs is not known: %s", error)
        self._failure = why

    def _note_xid(self, uuid: str, xid: int) -> None:
        fault = fault_of(xid)
        log.warning("GPU %s: %s, %s fault", uuid, xid_told(xid), fault.value)
        if fault is Fault.GPU:
            self._xids.setdefault(uuid, set()).add(xid)

    @property
    def sick(self) -> dict[str, dict[Sickness, str]]:
        """What each sick GPU has, by uuid."""
        found = {
            uuid: {Sickness.LOST: f"lost: {why}"} for uuid, why in self._site.gpus.lost().items()
        }
        for uuid in self._seen.keys() | self._xids.keys():
            has = self._seen_of(uuid)
            lasts = {kind: why for kind, why in has.items() if self._lasts(uuid, kind)}
            if lasts:
                found.setdefault(uuid, {}).update(lasts)
        return found

    def _seen_of(self, uuid: str) -> dict[Sickness, str]:
        """What it has by the newest look and its Xids, however long."""
        seen = self._seen.get(uuid, GpuHealth(uuid))
        if not self._drains_for_strangers:
            seen = replace(seen, strangers="")
        return sicknesses(replace(seen, xids=tuple(self._xids.get(uuid, ()))))

    def _lasts(self, uuid: str, kind: Sickness) -> bool:
        since_s = self._since_s.get((uuid, kind), math.inf)
        return kind not in LASTS_S or self._looked_s - since_s >= LASTS_S[kind]

    def settle(self) -> None:
        """Put into the ledger what has changed.

        One that was reset, as an operator says, or was drained before this worker started for what
        can be read again, is judged by a later look than those of now, and taken back if that
        finds nothing. One that was only hot or had strangers is taken back a while after that.
        """
        site = self._site
        drains = site.ledger.nodes.gpu_drains(site.settings.node)
        if self._seen or drains:
            self._drains_for_strangers = site.policy_settings.on_stranger is OnStranger.DRAIN
        judged = {
            uuid for uuid, look in self._asked.items() if uuid in drains and look < self._looks
        }
        over = {uuid for uuid, each in drains.items() if self._is_over(uuid, each)}
        well = {uuid for uuid in judged | over if uuid in self._seen and not self._has(uuid)}
        news = {
            uuid: why
            for uuid, why in self.sick.items()
            if uuid not in drains or _is_news(why, drains[uuid].why)
        }
        # Said anew of one that is not well, which answers whoever had said that it was reset.
        news |= {uuid: self._has(uuid) for uuid in judged - well}
        if news or well:
            name, token = site.settings.node, site.worker_token
            site.ledger.nodes.judge_gpus(name, token, sick=news, well=well)
        asked = {uuid for uuid, each in drains.items() if each.reset_at or self._is_due(each)}
        self._is_new = False
        for uuid in judged:
            del self._asked[uuid]
        for uuid in asked - self._asked.keys() - judged:
            self._asked[uuid] = self._looks
            self._xids.pop(uuid, None)
            site.gpus.retry_lost()

    def _is_due(self, drain: GpuDrain) -> bool:
        """Whether a worker that has just started judges it anew.

        An Xid cannot be read again: only a machine that was started anew has reset its GPUs.
        """
        if not self._is_new:
            return False
        can_be_read = NOT_READ_AGAIN.isdisjoint(drain.why)
        return can_be_read or booted_at(self._site.clock) > drain.since

    def _is_over(self, uuid: str, drain: GpuDrain) -> bool:
        """Whether it had only what passes, and has been without it long enough.

        Strangers count no more as soon as the operator does not drain for them.
        """
        tolerated = set() if self._drains_for_strangers else {Sickness.STRANGERS}
        return drain.why.keys() <= PASSES_S.keys() and all(
            self._looked_s - self._over_since_s.get((uuid, kind), math.inf) >= PASSES_S[kind]
            for kind in drain.why.keys() - tolerated
        )

    def _has(self, uuid: str) -> dict[Sickness, str]:
        """All that it has now, however long."""
        lost = self._site.gpus.lost()
        if uuid in lost:
            return {Sickness.LOST: f"lost: {lost[uuid]}"}
        return self._seen_of(uuid)


def _is_news(why: Mapping[Sickness, str], told: Mapping[Sickness, str]) -> bool:
    """Whether *why* is more than was *told*; of strangers also whether they are others."""
    others = why.get(Sickness.STRANGERS, told.get(Sickness.STRANGERS))
    return not why.keys() <= told.keys() or others != told.get(Sickness.STRANGERS)
