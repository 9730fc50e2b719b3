"""Where this installation's flows lie. Imported by every flow run: keep it light."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

PACKAGE = Path(__file__).resolve().parent
"""The directory of the package headway."""


def project_of(package: Path) -> Path:
    """The directory that holds flows/, blocks/, deployments/ and samples/.

    A wheel carries them below the package (`tool.hatch` in pyproject.toml); in a clone they
    lie beside it.
    """
    carried = package / "_project"
    return carried if carried.is_dir() else package.parent


PROJECT = project_of(PACKAGE)
"""That of this installation. What runs a flow has it on its path."""

FLOWS: Mapping[str, str] = MappingProxyType(
    {
        "train": "flows.train:train",
        "rank": "flows.rank:rank",
        "estimate": "flows.estimate:estimate",
        "retrain-estimators": "flows.retrain:retrain_estimators",
    }
)
"""What a worker runs for a flow's name. Nothing else is ever started, whatever a run's
deployment names: whoever writes to Prefect's API must not choose what runs here."""

VERSION_CHECK = "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED"
"""Whether a process asks if its Prefect fits the server's: the worker of a node that has joined
a site does, once for all."""
