"""Measures this node in an image that the site names, before it takes its first run.

Its GPUs are measured once for each product and image of the site, its CPUs and disk on each node.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from headway.errors import HeadwayError
from headway.estimate.physics import Tables, shipped
from headway.home import have_passable
from headway.model.container_policy import NetworkMode
from headway.model.node import Gpu
from headway.model.speeds import GpuSpeeds, MeasuredGpu, MeasuredNode, Probed
from headway.node import probe_program
from headway.node.daemon import guard_daemon
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import BindMount, ContainerSpec, ContainerState
from headway.site import Site, as_ids
from headway.this_node import OPERATORS_TEAM
from headway.units import GIB, KIB, MIB

_WITHIN_S = 120.0
"""Half a minute of measuring, and the start of PyTorch from a disk that has not read it yet."""
_MEMORY_BYTES = 6 * GIB
_LOG_BYTES = 64 * KIB
_FOLDER = "/probe"
_IDLE_BYTES = 512 * MIB
"""A GPU that holds more is in use."""
_SOURCE = Path(probe_program.__file__).read_text()
_PROBED = TypeAdapter(Probed)


def probe_node(site: Site, say: Callable[[str], None]) -> None:
    """Measure what of this node was not measured in the site's image, and keep it in the ledger.

    Only before its guard and worker are there: they would end a container that is no run's, and
    a run beside it would slow it down. What cannot be measured is said; nothing is raised for it.
    """
    try:
        if (image := site.container_policy.probe_image) and _may_probe(site):
            _probe(site, image, say)
    except (HeadwayError, OSError) as error:
        say(f"not measured, data sheets are believed: {error}")


def _may_probe(site: Site) -> bool:
    started = guard_daemon(site.settings).process() is not None
    return not started and not site.ledger.leases.live(site.settings.node)


def _probe(site: Site, image: str, say: Callable[[str], None]) -> None:
    speeds, node = site.ledger.speeds, site.settings.node
    before = speeds.node(node)
    tried = before.tried if before is not None and before.image == image else ()
    known = {*tried, *(name for name, each in speeds.gpus().items() if each.image == image)}
    used = {each.uuid: each.program_bytes for each in site.gpus.read()}
    alike: dict[str, list[Gpu]] = {}
    for gpu in site.gpus.gpus():
        if gpu.name not in known and used.get(gpu.uuid, _IDLE_BYTES) < _IDLE_BYTES:
            alike.setdefault(gpu.name, []).append(gpu)
    rounds: list[Sequence[Gpu]] = [gpus[:2] for gpus in alike.values()]
    if not rounds and (before is None or before.image != image):
        rounds = [()]
    for gpus in rounds:
        name = gpus[0].name if gpus else "the CPUs and the disk"
        say(f"measuring {name} in {image}: about half a minute …")
        found = _run(site, image, gpus)
        tried = (*tried, *{gpu.name for gpu in gpus})
        speeds.keep_node(node, MeasuredNode(found.node, image, tried))
        if found.gpu is not None and gpus:
            check_believable(shipped(), gpus[0], found.gpu)
            measured = MeasuredGpu(found.gpu, gpus[0].memory_bytes, node, image)
            speeds.keep_gpu(gpus[0].name, measured)
        elif gpus:
            why = found.no_gpu or "nothing was measured"
            say(f"{name}: {why}; its data sheet, if any, is believed")


def check_believable(tables: Tables, gpu: Gpu, found: GpuSpeeds) -> None:
    """Raise `RuntimeFailure` for speeds of which the data sheet says that they cannot be."""
    _, listed, is_guessed = tables.find_gpu(gpu.name)
    if listed is None or is_guessed:
        return
    best = max(found.fp16_flops_per_s, found.bf16_flops_per_s or 0.0)
    for what, measured, peak in (
        ("operations a second at fp32", found.fp32_flops_per_s, listed.fp32_flops_per_s),
        ("operations a second at 16 bits", best, listed.half_flops_per_s),
        ("bytes a second of memory", found.copy_bytes_per_s, listed.bandwidth_bytes_per_s),
    ):
        if not 0.2 * peak <= measured <= 1.3 * peak:
            raise RuntimeFailure(
                f"{gpu.name}: {measured:.3g} {what}, where the data sheet has {peak:.3g}: "
                "something else used it, or the image does not measure it"
            )


def _run(site: Site, image: str, gpus: Sequence[Gpu]) -> Probed:
    """What one container found. Raises `HeadwayError`."""
    runtime, name = site.runtime, f"headway-probe-{uuid4().hex[:12]}"
    folder, user = site.settings.work_dir / name, site.user_of(OPERATORS_TEAM)
    disk, logs = folder / "disk", folder / "log"
    have_passable(folder)
    try:
        for own in (disk, logs):
            own.mkdir(mode=0o700)
            if (ids := as_ids(user)) is not None:
                os.chown(own, *ids)
        mount = BindMount(disk, _FOLDER, read_only=False)
        place, cpus = runtime.path_in_container(mount), site.host.cpus()
        runtime.ensure_image(image)
        runtime.create(
            ContainerSpec(
                name=name,
                run_id=name,
                attempt=1,
                image=image,
                command=("python3", "-c", _SOURCE, place, str(cpus)),
                env={"USER": "headway", "LOGNAME": "headway", "HOME": place},
                mounts=(mount,),
                log_path=logs / "probe",
                host_memory_bytes=min(_MEMORY_BYTES, site.host.read().memory_bytes // 2),
                cpus=cpus,
                shm_bytes=64 * MIB,
                pids=site.container_policy.max_pids,
                gpu_uuids=tuple(gpu.uuid for gpu in gpus),
                network=NetworkMode.NONE,
                user=user,
                log_limit_bytes=_LOG_BYTES,
            )
        )
        runtime.start(name)
        ended = runtime.wait(name, _WITHIN_S)
        if ended.state is not ContainerState.EXITED:
            raise RuntimeFailure(f"{image} did not end within {_WITHIN_S:.0f} s")
        return read_line(runtime.read_log(name, 0, _LOG_BYTES).data, image)
    finally:
        runtime.remove(name)
        shutil.rmtree(folder, ignore_errors=True)


def read_line(log: bytes, image: str) -> Probed:
    """What the program in *image* found, by its log, of which nothing is trusted.

    Raises:
        RuntimeFailure: Its line is not there, or is not one.
    """
    text = log.decode(errors="replace")
    lines = [each for each in text.splitlines() if each.startswith(probe_program.MARK)]
    if not lines:
        said = text.strip().splitlines()[-1:] or ["nothing"]
        raise RuntimeFailure(f"{image} measured nothing; it said: {said[0][:300]}")
    try:
        return _PROBED.validate_json(lines[-1].removeprefix(probe_program.MARK), strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "its line"
        raise RuntimeFailure(f"{image} told what cannot be: {where}: {first['msg']}") from error
