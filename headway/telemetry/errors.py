"""What readings raise."""

from headway.errors import HeadwayError


class TelemetryError(HeadwayError):
    """A reading could not be had. Never to be read as "nothing is used"."""


class NvmlUnavailable(TelemetryError):
    """NVML cannot be used: no library, or it does not match the driver."""

    cause: str
    line = "NVML cannot be used ({cause}); no GPU job starts on this node until it can"


class GpuLost(TelemetryError):
    """A GPU fell off the bus."""

    gpu: str
    cause: str
    line = "GPU {gpu} is lost ({cause}); nothing more is started on it"


class LimitUntaken(TelemetryError):
    """A GPU's driver does not keep a control group to its memory."""

    gpu: str
    limit: str
    cause: str
    line = "GPU {gpu} takes no limit of {limit} ({cause})"


class TelemetryTimeout(TelemetryError):
    """A reading did not come in time."""

    what: str
    waited_s: float
    line = (
        "{what} gave no reading within {waited_s:duration}; no GPU job starts on this node until "
        "it does"
    )
