"""headway: a team's GPU servers, shared without getting in each other's way.

from headway import Client, Job
"""

from importlib import import_module
from typing import Any

_PLACES = {
    "After": ("headway.model.job_parts", "After"),
    "Client": ("headway.client", "Client"),
    "Executor": ("headway.bridges.futures", "Executor"),
    "Run": ("headway.client.run", "Run"),
    "Job": ("headway.model.job", "TrainingJob"),
    "Dataset": ("headway.model.job_parts", "Dataset"),
    "Resources": ("headway.model.job_parts", "Resources"),
    "Training": ("headway.model.job_parts", "Training"),
    **{
        name: ("headway.client.frames", name)
        for name in ("traces", "runs", "curve", "usage", "queue", "nodes")
    },
}
"""What people's programs import from here; `__init__.pyi` has the same for type checkers."""


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: every part of headway imports this package first."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
