"""Types of values that several fields of a job or of a node's settings have, with their bounds."""

from typing import Annotated

from headway.model.job_fields import pattern, size, whole
from headway.units import DAY_S, MIB, TIB

MIN_MEMORY_BYTES = 6 * MIB
"""Below this the engine refuses to start a container."""
MAX_MEMORY_BYTES = 64 * TIB
MAX_RUNTIME_S = 365 * DAY_S

Name = Annotated[
    str,
    pattern(
        r"[A-Za-z0-9][A-Za-z0-9._-]*",
        "give 1 to 63 letters, digits, dots, dashes or underscores; the first a letter or digit",
        limit=63,
    ),
]
OWNER = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}"
"""Who a job is from: an account's name."""
Owner = Annotated[
    str,
    pattern(
        rf"(?:{OWNER})?",
        "give 1 to 63 letters, digits, dots, dashes or underscores, or leave it out",
        limit=63,
    ),
]
Label = Annotated[
    str,
    pattern(
        r"(?:[A-Za-z0-9][A-Za-z0-9 ._/()+-]*)?",
        "give at most 64 letters, digits, spaces and . _ - / + ( )",
        limit=64,
    ),
]
"""A name from outside, such as ``resnet-50`` or ``Tesla V100-SXM2-16GB``; may be empty."""
Checksum = Annotated[
    str,
    pattern(
        r"[0-9a-f]{64}",
        "give the 64 lower-case hexadecimal digits that sha256sum prints",
        limit=64,
    ),
]
MemorySize = Annotated[int, size(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES)]
AnySize = Annotated[int, size(0, MAX_MEMORY_BYTES)]
Count = Annotated[int, whole(1, 10**12)]
