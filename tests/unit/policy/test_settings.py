"""What an operator writes about the line and its teams."""

import pytest
from pydantic import TypeAdapter, ValidationError

from headway.policy.settings import PolicySettings
from headway.units import GIB

READ = TypeAdapter(PolicySettings).validate_python


@pytest.mark.parametrize(
    "quota", [{"max_host_memory": "200GiB"}, {"max_host_memory_bytes": 200.0 * GIB}]
)
def test_a_quota_of_memory_is_written_as_all_sizes_are(quota: dict[str, object]) -> None:
    """Version 0.1 took a number of bytes alone, such as 2e11; sites have it in their block."""
    assert READ({"teams": {"vision": quota}}).team("vision").max_host_memory_bytes == 200 * GIB


@pytest.mark.parametrize("quota", [{"max_gpu": 1}, {"max_host_memory": "many"}])
def test_a_quota_that_cannot_be_understood_is_not_dropped(quota: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        READ({"teams": {"vision": quota}})
