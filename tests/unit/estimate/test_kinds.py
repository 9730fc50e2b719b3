from dataclasses import replace

import pytest

from headway.estimate.features import Configuration
from headway.estimate.kinds import Kind, kind_of, new_in, seen_of

RUN = Configuration("lm", "v100", 2, batch_size=32, recipe="lm", epochs=3.0, settings={"--lr": 0.1})
SEEN = seen_of([RUN, replace(RUN, recipe="other", network="other", gpu_type="a100")])


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Kind.KNOWN),
        ({"team": "t"}, Kind.KNOWN),
        ({"epochs": 3, "settings": {"--lr": 0.1}}, Kind.KNOWN),
        ({"settings": {"--lr": 0.2}}, Kind.OPTION),
        ({"epochs": 4.0}, Kind.OPTION),
        ({"batch_size": 64}, Kind.BATCH),
        ({"gpus": 4, "epochs": 9.0}, Kind.BATCH),
        ({"gpu_type": "a100"}, Kind.GPU_TYPE),
        ({"recipe": "new", "gpu_type": "h100"}, Kind.RECIPE),
    ],
)
def test_the_kind_is_the_largest_thing_that_is_new(changes, kind):
    assert kind_of(replace(RUN, **changes), SEEN) is kind


def test_what_is_new_in_the_same_way_is_one():
    small, large = replace(RUN, batch_size=64), replace(RUN, batch_size=64, epochs=9.0)
    assert new_in(small, Kind.BATCH) == new_in(large, Kind.BATCH)
    assert new_in(small, Kind.OPTION) != new_in(large, Kind.OPTION)
