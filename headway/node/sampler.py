"""Samples this node once a second into the ledger's telemetry."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from headway.errors import HeadwayError
from headway.model.node import NodeReading
from headway.model.telemetry import TelemetryPoint
from headway.run.here import checkpoint_age_s
from headway.site import Site
from headway.telemetry.host import NodeHost
from headway.telemetry.port import HostSensors
from headway.telemetry.reading import node_reading, with_owners, without_processes
from headway.telemetry.thinning import points_of, thinned
from headway.this_node import owners, pythons

log = logging.getLogger(__name__)

SAMPLE_EVERY_S = 1.0
_WRITE_EVERY = 10
_THIN_EVERY = 60
_OWNERS_EVERY = 5
_PYTHONS_EVERY = 5
_UNWRITTEN_AT_MOST = 600


class Sampler:
    """Reads the node at each `tick`, and writes what it read in batches."""

    def __init__(self, site: Site, host: HostSensors | None = None) -> None:
        """Sample *site*'s node.

        Args:
            site: Whose GPUs are read and whose ledger is written.
            host: Read for the host; one of its own when None, since processor use
                is a difference to the reading before and others read too.
        """
        self._site = site
        self._host = host or NodeHost(site.settings.home)
        self._ticks = 0
        self._minute: list[TelemetryPoint] = []
        self._unwritten: list[TelemetryPoint] = []
        self._owners: tuple[dict[int, str], dict[str, int]] | None = None
        """None until the engine has told it for the first time."""
        self._closed = ""
        self._pythons: Mapping[str, str] | None = None
        self._checkpoint_age_s: Mapping[str, float] = {}
        self._gpu_pids: set[int] = set()

    def tick(self) -> NodeReading:
        """Read the node once; every tenth time write, every sixtieth thin to a minute.

        A database that is away costs no tick: points wait for it, ten minutes
        of one series at most.
        """
        reading = node_reading(self._site.gpus, self._host, self._site.clock)
        pids = {each.pid for gpu in reading.gpus or () for each in gpu.processes}
        # A process that has just begun on a GPU would count as foreign without its owner.
        if self._ticks % _OWNERS_EVERY == 0 or not pids <= self._gpu_pids:
            self._owners = owners(self._site) or self._owners
            self._closed = self._site.why_closed()
        run_of_pid, host_bytes = self._owners or ({}, {})
        if self._owners is None:  # runs of its own, which go on, would be taken for strangers
            reading = replace(reading, gpus=reading.gpus and without_processes(reading.gpus))
        if self._ticks % _WRITE_EVERY == 0:
            ages = {run: checkpoint_age_s(self._site, run) for run in host_bytes}
            self._checkpoint_age_s = {run: age for run, age in ages.items() if age is not None}
        if self._ticks % _PYTHONS_EVERY == 0:
            self._pythons = pythons(self._site)
        self._gpu_pids = pids
        self._ticks += 1
        points = points_of(reading, run_of_pid)
        self._minute += points
        self._unwritten += points
        if self._ticks % _THIN_EVERY == 0:
            self._unwritten += thinned(self._minute, _THIN_EVERY)
            self._minute = []
        if self._ticks % _WRITE_EVERY == 0:
            self._write(len(points))
        seen = with_owners(reading, run_of_pid, host_bytes, closed=self._closed)
        return replace(
            seen,
            pythons=self._pythons,
            checkpoint_age_s=self._checkpoint_age_s,
        )

    def _write(self, series: int) -> None:
        try:
            self._site.ledger.telemetry.append(self._site.settings.node, self._unwritten)
            self._unwritten = []
        except HeadwayError as error:
            log.warning("telemetry waits: %s", error)
            self._unwritten = self._unwritten[-_UNWRITTEN_AT_MOST * series :]
