import math

import pytest

from headway.views.tables import readable, told


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (0.065, "6.5%"),
        (1.5, "150.0%"),
        (4.0, "× 5.0"),
        (367105.297, "× 367,106"),
        (math.inf, "× inf"),
    ],
)
def test_an_error_is_a_number_that_a_person_can_read(error, said):
    assert readable(error) == said


def test_a_columns_name_says_what_its_values_are():
    row = {"kind": "new recipe", "mean_error_frac": 0.065, "p_value": None, "took_s": 90.0,
           "is_champion": True, "was_champion": False, "runs": 12, "off": 0.12345}  # fmt: skip
    assert told([row]) == [
        {
            "kind": "new recipe", "mean error": "6.5%", "p value": "–", "took": "1 min 30 s",
            "is champion": "yes", "was champion": "", "runs": "12", "off": "0.123",
        }
    ]  # fmt: skip
