"""Where this installation's flows lie. Imported by every flow run: keep it light."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

PROJECT = Path(__file__).resolve().parent.parent
"""The directory that holds flows/, blocks/ and deployments/."""

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
