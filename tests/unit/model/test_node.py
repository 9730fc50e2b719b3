"""Which GPUs a job's wish names."""

import pytest

from headway.model.node import is_of_type


@pytest.mark.parametrize(
    ("wish", "product", "wanted"),
    [
        ("", "NVIDIA L40S", True),
        ("v100", "Tesla V100-SXM2-32GB", True),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100 80GB", "NVIDIA A100-SXM4-40GB", False),
        ("L4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40S", False),
        ("H200", "NVIDIA GH200 480GB", False),
        ("V100", "Tesla V100S-PCIE-32GB", False),
    ],
)
def test_a_wish_names_whole_words(wish: str, product: str, wanted: bool) -> None:
    """As a part of the name, L4 was also an L40S."""
    assert is_of_type(wish, product) is wanted
