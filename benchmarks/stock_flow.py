"""What a team without headway writes: a flow that starts the container and waits for it."""

import subprocess

from prefect import flow


@flow
def stock(command: list[str], report: str) -> None:
    """Run *command*; what it prints goes to the file *report*."""
    with open(report, "w") as file:  # noqa: PTH123
        subprocess.run(command, stdout=file, check=True)
