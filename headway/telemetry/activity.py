"""What the parts of a GPU do between two samples of its performance counters (GPM).

By nvmlGpmMetricId_t of NVML's reference: Hopper and newer, in percent. The counters are the whole
GPU's, whoever uses it.
"""

import math
from typing import Any, NamedTuple

import pynvml

_LEAST_S = 0.1
"""Between two samples, as DCGM takes them: in less there is too little to count."""
_METRICS = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)


class Activity(NamedTuple):
    """See `GpuReading`; None where it is not told."""

    sm_frac: float | None = None
    tensor_frac: float | None = None
    bandwidth_frac: float | None = None


class Gpm:
    """The counters of one GPU. Its methods raise NVML's own errors."""

    def __init__(self, handle: Any) -> None:
        """Of the GPU that NVML knows by *handle*."""
        self._handle = handle
        self._is_offered: bool | None = None
        self._sample: Any = None
        self._at_s = -math.inf

    def read(self, now_s: float) -> Activity:
        """Since the reading before; nothing is told by the first, nor where there is no GPM."""
        if self._is_offered is None:
            self._is_offered = False  # also where the driver does not know the question
            support = pynvml.nvmlGpmQueryDeviceSupport(self._handle)
            self._is_offered = bool(support.isSupportedDevice)
        if not self._is_offered or now_s - self._at_s < _LEAST_S:
            return Activity()
        before, self._sample = self._sample, pynvml.nvmlGpmSampleAlloc()
        self._at_s = now_s
        try:
            pynvml.nvmlGpmSampleGet(self._handle, self._sample)
            return Activity() if before is None else _between(before, self._sample)
        except pynvml.NVMLError:
            self.close()
            raise
        finally:
            if before is not None:
                pynvml.nvmlGpmSampleFree(before)

    def close(self) -> None:
        """Give back what NVML keeps for it."""
        sample, self._sample = self._sample, None
        if sample is not None:
            pynvml.nvmlGpmSampleFree(sample)


def _between(before: Any, now: Any) -> Activity:
    asked = pynvml.c_nvmlGpmMetricsGet_t(
        version=pynvml.NVML_GPM_METRICS_GET_VERSION,
        numMetrics=len(_METRICS),
        sample1=before,
        sample2=now,
    )
    for at, metric in enumerate(_METRICS):
        asked.metrics[at].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    return Activity(*(_share(asked.metrics[at]) for at in range(len(_METRICS))))


def _share(metric: Any) -> float | None:
    """0 to 1; None where it is not told: NVML puts no number there that is none."""
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or not math.isfinite(metric.value):
        return None
    return float(min(max(metric.value / 100, 0.0), 1.0))


_POWER = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
_HEAT = (
    pynvml.nvmlClocksEventReasonSwThermalSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown
)


def limits_of(reasons: int) -> tuple[float, float]:
    """Whether power, and whether heat, holds the clocks down now: 1.0 or 0.0, to be averaged.

    "HW slowdown" without heat is the power brake, or too high a draw (nvmlClocksEventReasons).
    """
    hardware = bool(reasons & pynvml.nvmlClocksEventReasonHwSlowdown)
    hot = bool(reasons & _HEAT)
    return float(bool(reasons & _POWER) or (hardware and not hot)), float(hot)
