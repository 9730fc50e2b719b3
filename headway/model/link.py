"""The links of a GPU, and what they can carry in one direction. The one place for these rates."""

from dataclasses import dataclass

_PCIE_LANE_BYTES_PER_S = {
    # Transfers a second times the encoding: 8b/10b for 1 and 2, 128b/130b for 3 to
    # 5 (PCI Express Base Specification 5.0, 4.2.1 and 4.2.2), and for 6 the 242 of
    # 256 bytes that its flits leave after error correction.
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}
_NVLINK_BYTES_PER_S = {
    # One link, one direction, from NVIDIA's architecture papers: P100 4 links and
    # 80 GB/s, V100 6 and 150, A100 12 and 300, H100 18 and 450, B200 18 and 900.
    "1.0": 20e9,
    "2.0": 25e9,
    "2.2": 25e9,
    "3.0": 25e9,
    "3.1": 25e9,
    "4.0": 25e9,
    "5.0": 50e9,
}


@dataclass(frozen=True, slots=True)
class Pcie:
    """A PCIe link."""

    generation: int
    lanes: int

    @property
    def bytes_per_s(self) -> float | None:
        """What it carries in one direction after the line's encoding; None if not known.

        Packet headers are not taken off: a copy reaches some 80 to 90 % of it.
        """
        lane = _PCIE_LANE_BYTES_PER_S.get(self.generation)
        return None if lane is None else lane * self.lanes

    def __str__(self) -> str:
        """Such as ``PCIe 3 x16``."""
        return f"PCIe {self.generation} x{self.lanes}"


@dataclass(frozen=True, slots=True)
class NvLink:
    """The NVLinks of one GPU that are up."""

    version: str
    links: int

    @property
    def bytes_per_s(self) -> float | None:
        """What all of them carry in one direction; None if not known."""
        link = _NVLINK_BYTES_PER_S.get(self.version)
        return None if link is None else link * self.links

    def __str__(self) -> str:
        """Such as ``NVLink 4.0 x18``."""
        return f"NVLink {self.version} x{self.links}"


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """How one GPU is connected. None: not offered, or not there."""

    uuid: str
    pcie: Pcie | None = None
    """Now; an idle GPU lowers its generation."""
    pcie_at_most: Pcie | None = None
    """What GPU and slot are able to do together."""
    nvlink: NvLink | None = None
    cpus: frozenset[int] | None = None
    """Logical CPUs of the machine that are nearest to it: those of its NUMA node."""
