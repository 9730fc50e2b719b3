"""Which GPUs are sick, and whose fault an Xid is."""

import pytest

from headway.model.gpu_health import GpuHealth, Sickness
from headway.policy.gpu_health import XIDS, Fault, fault_of, sicknesses

WELL = {
    "ecc_uncorrectable": 0,
    "remap_failed": False,
    "lanes": 16,
    "lanes_at_most": 16,
    "temperature_c": 86,
    "slowdown_c": 87,
}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 47, 65, 73, 142])
def test_what_a_program_did_makes_no_gpu_sick(xid: int) -> None:
    assert fault_of(xid) is Fault.PROGRAM
    assert sicknesses(GpuHealth("a", xids=(xid,), **WELL)) == {}


@pytest.mark.parametrize("xid", [48, 64, 74, 79, 95, 119])
def test_what_the_gpu_did_is_named(xid: int) -> None:
    assert sicknesses(GpuHealth("a", xids=(31, xid), **WELL)) == {
        Sickness.XID: f"Xid {xid} ({XIDS[xid][1]})"
    }


def test_an_xid_that_only_tells_is_nobodys_and_an_unknown_one_the_gpus() -> None:
    assert sicknesses(GpuHealth("a", xids=(63, 92, 159, 166, 168, 170))) == {}
    assert "not in the table" in sicknesses(GpuHealth("a", xids=(9999,)))[Sickness.XID]


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ({"ecc_uncorrectable": 1}, Sickness.ECC),
        ({"remap_failed": True}, Sickness.ROW_REMAP),
        ({"lanes": 8}, Sickness.LINK_WIDTH),
        ({"temperature_c": 87}, Sickness.HOT),
    ],
)
def test_each_figure_is_judged(seen: dict[str, int], kind: Sickness) -> None:
    assert list(sicknesses(GpuHealth("a", **{**WELL, **seen}))) == [kind]


def test_two_at_once_are_both_named_and_what_is_not_told_is_none() -> None:
    both = GpuHealth("a", **{**WELL, "lanes": 4, "remap_failed": True})
    assert set(sicknesses(both)) == {Sickness.LINK_WIDTH, Sickness.ROW_REMAP}
    assert sicknesses(GpuHealth("a")) == {}
    assert sicknesses(GpuHealth("a", lanes=8, temperature_c=99)) == {}
