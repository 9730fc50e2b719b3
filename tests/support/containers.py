"""Containers of attempts, as a flow process that has died left them."""

from headway.run.here import container_name
from headway.runtime.port import ContainerSpec
from headway.site import Site
from headway.units import MIB


def create_container(
    site: Site, run_id: str, attempt: int = 1, command: tuple[str, ...] = ("sleep", "60")
) -> str:
    """Create the container of an attempt, which would run *command*; its name."""
    name = container_name(run_id, attempt)
    log = site.settings.runs_dir / run_id / "log"
    log.mkdir(parents=True)
    site.runtime.create(
        ContainerSpec(
            name=name,
            run_id=run_id,
            attempt=attempt,
            image="image:1",
            command=command,
            env={},
            mounts=(),
            log_path=log / f"attempt-{attempt}.log",
            host_memory_bytes=64 * MIB,
            cpus=0.1,
            shm_bytes=MIB,
            user=site.user_of("default"),
        )
    )
    return name
