"""Which GPUs are sick, and whose fault an Xid is."""

import pytest

from headway.model.gpu_health import GpuHealth, Sickness
from headway.policy.gpu_health import XIDS, Fault, ends_runs, fault_of, sicknesses

WELL = {
    "ecc_uncorrectable": 0,
    "remap_failed": False,
    "busy": True,
    "lanes": 16,
    "lanes_at_most": 16,
    "temperature_c": 86,
    "slowdown_c": 87,
}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 47, 65, 73, 142])
def test_what_a_program_did_makes_no_gpu_sick(xid: int) -> None:
    assert fault_of(xid) is Fault.PROGRAM
    assert sicknesses(GpuHealth("a", xids=(xid,), **WELL)) == {}


@pytest.mark.parametrize("xid", [48, 64, 79, 95, 119])
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


@pytest.mark.parametrize("busy", [False, None])
def test_an_idle_gpu_may_lower_the_width_of_its_link(busy: bool | None) -> None:
    assert sicknesses(GpuHealth("a", **{**WELL, "lanes": 8, "busy": busy})) == {}


@pytest.mark.parametrize("xid", [74, 94])
def test_an_xid_that_others_survive_ends_no_runs(xid: int) -> None:
    found = sicknesses(GpuHealth("a", xids=(xid,)))
    assert found == {Sickness.XID_CONTAINED: f"Xid {xid} ({XIDS[xid][1]})"}
    assert not ends_runs(found)
    assert ends_runs(sicknesses(GpuHealth("a", xids=(xid, 95))))


def test_only_what_no_run_gets_over_ends_runs() -> None:
    assert {kind for kind in Sickness if ends_runs([kind])} == {
        Sickness.LOST, Sickness.XID, Sickness.ROW_REMAP,
    }  # fmt: skip
