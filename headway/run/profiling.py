"""Profiling on this node: around a program, of its report afterwards, and while it runs."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from headway.durable import replace_file
from headway.errors import HeadwayError, InvalidInput, ProfileUnreadable
from headway.ledger.codec import from_json, to_json
from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.link import GpuLinks
from headway.model.profile import Profile
from headway.model.run import RunState
from headway.model.telemetry import TelemetryPoint
from headway.profile.activity import with_activity
from headway.profile.report import from_counters, read_report
from headway.profile.wrap import wrapper
from headway.runtime.port import BindMount
from headway.site import Site
from headway.telemetry.errors import TelemetryError

log = logging.getLogger(__name__)

OFFERED = "/opt/headway/nsight-systems"
"""Where a profiled container finds the node's own nsys."""
_SECONDS_KEPT_S = 3600.0
"""Telemetry has a point a second for so long, and one a minute before."""
_TOO_LATE = (
    "Nsight Systems cannot be attached to a program that runs already: `profile: true` in the "
    "job wraps it from its start"
)


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What a container's spec gets for a profile; nothing where none is asked for."""

    words: tuple[str, ...] = ()
    mounts: tuple[BindMount, ...] = ()


def wrapping(site: Site, job: TrainingJob, attempt: int, outputs: BindMount) -> Wrapping:
    """How to start the program of *job*, whose *outputs* get the report."""
    if not job.profile:
        return Wrapping()
    folder = f"{site.runtime.path_in_container(outputs)}/{_name(attempt)}"
    nsys = site.settings.nsys
    if nsys is None or not nsys.is_dir():
        return Wrapping(wrapper(folder, job.stop_grace))
    mount = BindMount(nsys, OFFERED)
    offered = site.runtime.path_in_container(mount)
    return Wrapping(wrapper(folder, job.stop_grace, offered), (mount,))


def summarise(site: Site, run_id: str, attempt: int, runtime_s: float) -> Profile | None:
    """Summarise an attempt whose program has ended, and keep it with the run.

    From nsys's report where there is one, else from NVML's counters. None
    only when the ledger or the disk refuses: a profile never ends a run.
    """
    try:
        gpus = _gpus(site, run_id)
        links = _links(site, gpus)
        series = _series(site, site.settings.node, gpus, runtime_s)
        profile = _of_report(site, run_id, attempt, links)
        if isinstance(profile, str):
            profile = from_counters(series, links, profile)
        profile = with_activity(profile, series)
        replace_file(_kept_at(site, run_id), json.dumps(to_json(profile)))
    except (HeadwayError, OSError) as error:
        log.warning("run %s has no profile: %s", run_id, error)
        return None
    return profile


def kept(site: Site, run_id: str) -> Profile | None:
    """The profile that `summarise` kept on this node; None where there is none."""
    try:
        return from_json(Profile, json.loads(_kept_at(site, run_id).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError) as error:
        log.warning("the profile of run %s cannot be read: %s", run_id, error)
        return None


def profile_of(site: Site, record: RunRecord, window_s: float) -> Profile:
    """The profile of a run: of the last *window_s* while it runs, afterwards the one kept.

    Raises:
        InvalidInput: It neither runs nor was profiled on this node.
    """
    if record.state is not RunState.RUNNING or record.node is None:
        profile = kept(site, record.run_id)
        if profile is None:
            allowed = "give a run that is running, or that ran on this node with `profile: true`"
            raise InvalidInput("run", record.name, allowed)
        return profile
    gpus = _gpus(site, record.run_id)
    why, links = _TOO_LATE, _links(site, gpus) if record.node == site.settings.node else ()
    if record.job.get("profile"):
        why = "nsys writes its report when the program has ended"
    if not links and gpus:
        why += f". What its links carry is known only on node {record.node}"
    series = _series(site, record.node, gpus, window_s)
    return with_activity(from_counters(series, links, why), series)


def _name(attempt: int) -> str:
    return f"profile-{attempt}"


def _kept_at(site: Site, run_id: str) -> Path:
    return site.settings.runs_dir / run_id / "profile.json"


def _of_report(site: Site, run_id: str, attempt: int, links: Sequence[GpuLinks]) -> Profile | str:
    """The profile from nsys's report, or a sentence that says why there is none."""
    outputs = site.settings.runs_dir / run_id / "outputs"
    folder = outputs / _name(attempt)
    if folder.is_symlink() or not folder.is_dir():
        return "there is no nsys in the image or on the node"
    report, export = folder / "report.nsys-rep", folder / "report.sqlite"
    if not export.exists():
        left = sorted(path.name for path in folder.glob("report.*"))
        made = f"only {', '.join(left)}" if left else "no report"
        return f"nsys made {made}; its own words are in {folder / 'nsys.log'}"
    try:
        profile = read_report(export, links, site.clock)
    except ProfileUnreadable as error:
        return str(error)
    return replace(profile, report=str(report if report.exists() else export))


def _gpus(site: Site, run_id: str) -> list[str]:
    """Uuids of the GPUs that the run holds."""
    lease = site.ledger.leases.of_run(run_id)
    return [grant.uuid for grant in lease.gpus] if lease is not None else []


def _links(site: Site, gpus: Sequence[str]) -> tuple[GpuLinks, ...]:
    if not gpus:
        return ()
    try:
        return tuple(each for each in site.gpus.links() if each.uuid in gpus)
    except TelemetryError as error:
        log.warning("the links of the GPUs cannot be read: %s", error)
        return ()


def _series(
    site: Site, node: str, gpus: Sequence[str], window_s: float
) -> dict[str, list[TelemetryPoint]]:
    period_s = 1 if window_s <= _SECONDS_KEPT_S else 60
    return {
        gpu: site.ledger.telemetry.series(node, gpu=gpu, period_s=period_s, last_s=window_s)
        for gpu in gpus
    }
