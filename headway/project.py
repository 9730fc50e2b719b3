"""Where this installation's flows lie. Imported by every flow run: keep it light."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""The directory that holds flows/, blocks/ and deployments/."""


def enter_project() -> dict[str, str]:
    """A Prefect pull step: go to the project's directory *on this node*.

    Prefect's own `set_working_directory` is resolved when deploying, which
    would ask every node to keep the project at one path.
    """
    os.chdir(PROJECT)
    return {"directory": str(PROJECT)}
