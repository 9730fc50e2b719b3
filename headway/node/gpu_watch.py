"""Watches the health of this node's GPUs: drains a sick one, and takes back one that is well."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from headway.model.gpu_health import GpuHealth, Sickness
from headway.policy.gpu_health import LASTS, Fault, fault_of, sicknesses, xid_told
from headway.site import Site
from headway.telemetry.errors import TelemetryError

log = logging.getLogger(__name__)


class GpuWatch:
    """The watch of one worker; one thread looks, another one settles."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lasted: dict[tuple[str, Sickness], int] = {}
        self._xids: dict[str, set[int]] = {}
        self._seen: Mapping[str, GpuHealth] = {}
        """By the newest look, with every Xid since the GPU was last taken for well."""
        self._looks = 0
        self._asked: dict[str, int] = {}
        """Drained GPUs that are to be judged anew, each with the looks that there had been."""
        self._is_new = True
        """Whatever was drained before this worker is to be judged anew."""

    def look(self) -> bool:
        """Read how the GPUs are; whether one is sick of something that is new."""
        gpus = self._site.gpus
        try:
            read = gpus.health()
        except TelemetryError:
            return False  # the node's reading says so
        before = self.sick
        for each in read:
            self._note_xids(each)
        seen = [replace(each, xids=tuple(self._xids.get(each.uuid, ()))) for each in read]
        self._looks += 1
        self._seen = {each.uuid: each for each in seen}
        self._lasted = {
            (each.uuid, kind): self._lasted.get((each.uuid, kind), 0) + 1
            for each in seen
            for kind in sicknesses(each)
        }
        return any(not why.keys() <= before.get(uuid, {}).keys() for uuid, why in self.sick.items())

    def _note_xids(self, seen: GpuHealth) -> None:
        for xid in seen.xids:
            fault = fault_of(xid)
            log.warning("GPU %s: %s, %s fault", seen.uuid, xid_told(xid), fault.value)
            if fault is Fault.GPU:
                self._xids.setdefault(seen.uuid, set()).add(xid)

    @property
    def sick(self) -> dict[str, dict[Sickness, str]]:
        """What each sick GPU has, by uuid."""
        found = {
            uuid: {Sickness.LOST: f"lost: {why}"} for uuid, why in self._site.gpus.lost().items()
        }
        for uuid, seen in self._seen.items():
            has = sicknesses(seen)
            lasts = {kind: why for kind, why in has.items() if self._lasts(uuid, kind)}
            if lasts:
                found.setdefault(uuid, {}).update(lasts)
        return found

    def _lasts(self, uuid: str, kind: Sickness) -> bool:
        return self._lasted.get((uuid, kind), 0) >= LASTS.get(kind, 1)

    def settle(self) -> None:
        """Put into the ledger what has changed.

        One that was reset, as an operator says, or was drained before this worker started, is
        judged by a later look than those of now, and taken back if that finds nothing.
        """
        site = self._site
        record = site.ledger.nodes.get(site.settings.node)
        drains = record.node.gpu_drains if record is not None else {}
        judged = {
            uuid for uuid, look in self._asked.items() if uuid in drains and look < self._looks
        }
        well = {uuid for uuid in judged if uuid in self._seen and not self._has(uuid)}
        news = {
            uuid: why
            for uuid, why in self.sick.items()
            if uuid not in drains or not why.keys() <= drains[uuid].why.keys()
        }
        # Said anew of one that is not well, which answers whoever had said that it was reset.
        news |= {uuid: self._has(uuid) for uuid in judged - well}
        if news or well:
            name, token = site.settings.node, site.worker_token
            site.ledger.nodes.judge_gpus(name, token, sick=news, well=well)
        asked = {uuid for uuid, each in drains.items() if each.reset_at or self._is_new}
        self._is_new = False
        for uuid in judged:
            del self._asked[uuid]
        for uuid in asked - self._asked.keys() - judged:
            self._asked[uuid] = self._looks
            self._xids.pop(uuid, None)
            site.gpus.retry_lost()

    def _has(self, uuid: str) -> dict[Sickness, str]:
        """All that it has now, however long."""
        lost = self._site.gpus.lost()
        if uuid in lost:
            return {Sickness.LOST: f"lost: {lost[uuid]}"}
        return sicknesses(self._seen[uuid]) if uuid in self._seen else {}
