"""What one attempt asks its runtime for."""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from headway.errors import InvalidInput
from headway.model.container_policy import GangNetwork, NetworkMode
from headway.model.launch import Launch
from headway.model.lease import Lease
from headway.model.notice import RUN_TAG
from headway.model.session import open_ports, session_path, session_port, session_secret
from headway.model.size import Size
from headway.pinning import EVERYWHERE, LOOPBACK
from headway.policy.near_cpus import ANY, near_cpus
from headway.run.code import working_copy
from headway.run.environment import environment_of
from headway.run.gang_folder import command_of, entry_of
from headway.run.given import given_to
from headway.run.here import NodeAttempt
from headway.run.outside import way_outside
from headway.run.profiling import wrapping
from headway.run.rendezvous import own_links
from headway.runtime import secretfiles
from headway.runtime.port import BindMount, ContainerSpec, RuntimeKind
from headway.runtime.redact import LEAST_CHARACTERS, MOST_CHARACTERS
from headway.site import Site, as_ids
from headway.telemetry.errors import TelemetryError

log = logging.getLogger(__name__)

WORK = "/work"
_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg")


def container_spec(attempt: NodeAttempt, lease: Lease) -> ContainerSpec:
    """The container of an attempt that may use *lease*; its directories are made."""
    site, job = attempt.site, attempt.job
    policy, path_in = site.policy_for(job.team), site.runtime.path_in_container
    attempt.made("log")
    member = attempt.membership()
    given = list(given_to(attempt, member))
    copy = working_copy(attempt)
    work = [] if copy is None else [BindMount(copy, WORK, read_only=False)]
    environment = environment_of(attempt)
    words, *packages = environment.taken() if environment is not None else ((),)
    entry, entry_mounts = entry_of(attempt)
    outside, certificates = way_outside(attempt, policy.outside)
    serves = session_port(job.document(), lease.ports)
    profiling = wrapping(site, job, attempt.number, given[0].mount)
    network = attempt.network()
    by_links = attempt.meeting is not None and not isinstance(network, GangNetwork)
    mounts = *(each.mount for each in given), *profiling.mounts, *certificates, *packages
    return ContainerSpec(
        name=attempt.container,
        run_id=attempt.run_id,
        attempt=attempt.number,
        image=job.image,
        command=(*words, *entry, *command_of(attempt)),
        env={
            **outside,
            **policy.environment,
            **({} if copy is None else own_packages(copy, path_in(work[0]))),
            **({} if attempt.size is None else size_variables(attempt.size)),
            **_processes(attempt, lease),
            **_meeting(attempt, lease),
            **(own_links(site.settings) if by_links else {}),
            **{name: path_in(each.mount) for each in given for name in each.usual},
            **mlflow_tags(attempt.run_id),
            **job.env,
            **(member.environment() if member is not None else {}),
            **{name: at for each in given for name, at in each.variables(path_in).items()},
            **({} if serves is None else _session(attempt, lease, serves)),
            "HEADWAY_RUN_ID": attempt.run_id,
            "HEADWAY_ATTEMPT": str(attempt.number),
        },
        mounts=tuple(dict.fromkeys((*mounts, *entry_mounts, *work))),
        working_dir=path_in(work[0]) if work else "",
        wrapper=profiling.words,
        log_path=attempt.log,
        host_memory_bytes=lease.host_memory_bytes,
        cpus=lease.cpus,
        shm_bytes=job.resources.shm,
        gpu_uuids=tuple(grant.uuid for grant in lease.gpus),
        near_cpus=_near_cpus(site, lease),
        # The port where ranks meet is theirs: nobody else on the node may speak to it.
        ports={port: lease.ports[port] for port in sorted(open_ports(job.document(), lease.ports))},
        network=network,
        user=attempt.user,
        log_limit_bytes=site.settings.log_limit_bytes,
        disk_bytes=job.resources.disk or None,
    )


def mlflow_tags(run_id: str) -> dict[str, str]:
    """By what MLflow tags each run that the program begins, wherever it writes it."""
    return {"MLFLOW_RUN_CONTEXT": json.dumps({RUN_TAG: run_id})}


def own_packages(copy: Path, place: str) -> dict[str, str]:
    """Where Python finds what a project that is sent along would install as `pip install -e .`."""
    if not any((copy / file).is_file() for file in _PROJECT):
        return {}
    below = [f"{place}/src"] if (copy / "src").is_dir() else []
    return {"PYTHONPATH": os.pathsep.join([*below, place])}


def size_variables(size: Size) -> dict[str, str]:
    """What the program of a job that leaves its size open is told of this attempt's.

    Beside what all are told: how many processes to start, and on several nodes where they meet.
    """
    return {"HEADWAY_NODES": str(size.nodes), "HEADWAY_GPUS": str(size.gpus)}


def _meeting(attempt: NodeAttempt, lease: Lease) -> dict[str, str]:
    """How its program finds its peers, or that it has none where it might have some."""
    launch, gpus = attempt.job.launch, len(lease.gpus)
    if attempt.meeting is not None:
        return attempt.meeting.environment(launch, gpus)
    if not attempt.may_spread or launch is not Launch.TORCH or gpus > 1:
        return {}
    # As those of a gang are; without PET_…, since `torchrun` on one node needs none.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return {**alone, "MASTER_ADDR": LOOPBACK[0], "MASTER_PORT": "0"}  # whichever is free


def _processes(attempt: NodeAttempt, lease: Lease) -> dict[str, str]:
    """What makes a program start one process for each of its GPUs, each with its part of the CPUs.

    `torchrun` takes any of its options from ``PET_…``.
    """
    launch, gpus = attempt.job.launch, len(lease.gpus)
    count = launch.processes(gpus)
    threads = max(1, int(lease.cpus / count))
    alone = launch.starts_others and attempt.meeting is None
    return {
        # Open MPI 4 wants a program to reach other nodes by, even where there are none.
        **({"OMPI_MCA_plm_rsh_agent": "/bin/sh"} if alone else {}),
        **({"PET_NPROC_PER_NODE": str(gpus)} if gpus and launch is Launch.TORCH else {}),
        **({"OMP_NUM_THREADS": str(threads)} if count > 1 else {}),
    }


def _near_cpus(site: Site, lease: Lease) -> frozenset[int]:
    """The CPUs that its program keeps to; empty where it may have any."""
    if not lease.gpus or not hasattr(os, "sched_getaffinity"):
        return ANY
    try:
        near = {each.uuid: each.cpus for each in site.gpus.links() if each.cpus}
    except TelemetryError as error:
        log.warning("which CPUs are near the GPUs is not known: %s", error)
        return ANY
    leases = site.ledger.leases.live(site.settings.node)
    return near_cpus(lease, leases, near, frozenset(os.sched_getaffinity(0)))


def _session(attempt: NodeAttempt, lease: Lease, port: int) -> dict[str, str]:
    """What a program has to know that serves *port* to its owner."""
    alone = attempt.site.runtime.kind is RuntimeKind.DOCKER
    alone = alone and attempt.site.container_policy.network is not NetworkMode.HOST
    return {
        # Only in a network of its own may it listen on all addresses: nobody else reaches them.
        "HEADWAY_SESSION_HOST": EVERYWHERE if alone else LOOPBACK[0],
        "HEADWAY_SESSION_PORT": str(port),
        "HEADWAY_SESSION_PATH": session_path(attempt.run_id),
        "HEADWAY_SESSION_SECRET": session_secret(lease.token),
    }


def refuse_shell(attempt: NodeAttempt) -> None:
    """Raise `InvalidInput` for a session that is a shell on a node that can give none."""
    session, node = attempt.job.session, attempt.site.settings.node
    if session and session.shell and attempt.site.runtime.kind is RuntimeKind.PROCESS:
        allowed = (
            f"node {node} runs programs without a container engine, where no shell can be opened "
            "beside them: choose another with --node, or ask an operator to install Docker there"
        )
        raise InvalidInput("session.shell", True, allowed)


def keep_secrets(attempt: NodeAttempt, values: Mapping[str, str]) -> None:
    """Lay *values* down where the program, and nobody else, reads them.

    Raises:
        InvalidInput: One of them cannot be redacted in logs.
    """
    for variable, value in values.items():
        if not LEAST_CHARACTERS <= len(value.strip()) <= MOST_CHARACTERS:
            raise InvalidInput(
                f"secrets.{variable}",
                attempt.job.secrets[variable],
                f"a secret of {LEAST_CHARACTERS} to {MOST_CHARACTERS} characters can be struck "
                "out of logs; give the block such a value",
            )
    secretfiles.write(attempt.secrets, values, as_ids(attempt.user))
