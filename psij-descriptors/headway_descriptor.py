"""By this file, in a folder of this name on the path of modules, PSI/J finds the executor."""  # noqa: INP001

from packaging.version import Version
from psij.descriptor import Descriptor

__PSI_J_EXECUTORS__ = [
    Descriptor(
        name="headway",
        nice_name="headway",
        version=Version("0.2.0"),
        cls="headway.bridges.psij_executor.HeadwayJobExecutor",
    )
]
