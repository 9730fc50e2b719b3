"""Volumes: what an operator may offer, and who may have it."""

import pytest
from pydantic import ValidationError

from headway.model.container_policy import ContainerPolicy
from headway.model.volume import Volume, refused_volume

VOLUMES = {
    "models": Volume(path="/srv/models"),
    "vision-sets": Volume(path="/srv/sets", teams=("vision",)),
}


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ({"models": {"path": "srv"}}, "give an absolute path such as /srv/models"),
        ({"models": {"path": "/srv/../etc"}}, "give an absolute path"),
        ({"models": {"path": "/"}}, "give an absolute path"),
        ({"../models": {"path": "/srv"}}, "name a volume in lower case"),
        ({"Models": {"path": "/srv"}}, "name a volume in lower case"),
        ({"models": {"path": "/srv", "variables": ["PATH"]}}, "give a variable such as HF_HOME"),
        ({"models": {"path": "/srv", "variables": ["LD_PRELOAD"]}}, "give a variable"),
        ({"models": {"path": "/srv", "mode": "rw"}}, "mode"),
    ],
)
def test_what_cannot_be_offered(volumes, said):
    with pytest.raises(ValidationError, match=said):
        ContainerPolicy.model_validate({"volumes": volumes})


def test_a_team_has_what_is_for_all_and_its_own():
    assert refused_volume(["models", "vision-sets"], VOLUMES, "vision") is None
    refused = refused_volume(["models", "vision-sets"], VOLUMES, "speech")
    assert refused.field == "volumes.1"
    assert "team speech may have models: operators name them" in str(refused)
    assert "may have none" in str(refused_volume(["a"], {}, "speech"))
