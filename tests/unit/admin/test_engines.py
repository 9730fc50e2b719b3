"""What is said to who brings a cluster's scheduler into the site."""

import pytest

from headway.admin.engines import _trust


@pytest.mark.parametrize(("uid", "is_root"), [(0, True), (1000, False)])
def test_as_whom_jobs_run_is_said(uid: int, is_root: bool) -> None:
    said = _trust(uid)
    assert f"uid {uid}" in said
    assert ("root" in said) == is_root
    assert "trust each other" in said
