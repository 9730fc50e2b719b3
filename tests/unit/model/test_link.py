"""What links carry."""

import pytest

from headway.model.link import NvLink, Pcie


@pytest.mark.parametrize(
    ("link", "gigabytes_per_s"),
    [
        (Pcie(1, 16), 4.0),
        (Pcie(2, 16), 8.0),
        (Pcie(3, 16), 15.75),
        (Pcie(3, 8), 7.88),
        (Pcie(4, 16), 31.51),
        (Pcie(5, 16), 63.02),
        (Pcie(6, 16), 121.0),
        (NvLink("1.0", 4), 80.0),  # P100
        (NvLink("2.0", 6), 150.0),  # V100
        (NvLink("3.0", 12), 300.0),  # A100
        (NvLink("4.0", 18), 450.0),  # H100
        (NvLink("5.0", 18), 900.0),  # B200
    ],
    ids=str,
)
def test_a_link_carries_what_its_makers_say(link: Pcie | NvLink, gigabytes_per_s: float) -> None:
    assert link.bytes_per_s == pytest.approx(gigabytes_per_s * 1e9, rel=1e-3)


def test_what_is_not_known_is_none_never_a_guess() -> None:
    assert Pcie(9, 16).bytes_per_s is None
    assert NvLink("of an unknown version", 18).bytes_per_s is None
