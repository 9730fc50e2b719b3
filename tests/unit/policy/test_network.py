"""Which network the containers of a job join."""

import pytest

from headway.model.container_policy import ApiAccess, ContainerPolicy, GangNetwork, NetworkMode
from headway.model.lease import Refuse
from headway.policy.network import network_of

OPEN, PASSWORD = ApiAccess.OPEN, ApiAccess.PASSWORD


@pytest.mark.parametrize(
    ("policy", "nodes", "access", "network"),
    [
        ({}, 1, OPEN, NetworkMode.BRIDGE),
        ({"network": "none"}, 1, OPEN, NetworkMode.NONE),
        ({"network": "unguarded"}, 1, OPEN, NetworkMode.UNGUARDED),
        ({"network": "host"}, 1, PASSWORD, NetworkMode.HOST),
        # What gangs get is nothing to a job on one node.
        ({"gang_network": "host"}, 1, OPEN, NetworkMode.BRIDGE),
        ({"gang_network": "gangs"}, 2, OPEN, GangNetwork("gangs")),
        ({"gang_network": "gangs", "network": "host"}, 2, OPEN, GangNetwork("gangs")),
        ({"gang_network": "gangs", "network": "none"}, 2, OPEN, GangNetwork("gangs")),
        ({"gang_network": "host"}, 2, PASSWORD, NetworkMode.HOST),
        ({"network": "host"}, 2, PASSWORD, NetworkMode.HOST),
    ],
)
def test_what_a_job_joins(
    policy: dict[str, str], nodes: int, access: ApiAccess, network: NetworkMode | GangNetwork
) -> None:
    assert network_of(ContainerPolicy.model_validate(policy), nodes, access) == network


@pytest.mark.parametrize(
    ("policy", "nodes", "access", "change"),
    [
        ({}, 2, PASSWORD, "gang_network of the block headway-container-policy/site, or ask for 1"),
        ({"network": "none"}, 2, PASSWORD, "gang_network"),
        ({"network": "unguarded"}, 2, PASSWORD, "gang_network"),
        ({"gang_network": "host"}, 2, OPEN, "PREFECT_SERVER_API_AUTH_STRING"),
        ({"network": "host"}, 2, OPEN, "PREFECT_SERVER_API_AUTH_STRING"),
        ({"network": "host"}, 1, OPEN, "PREFECT_SERVER_API_AUTH_STRING"),
    ],
)
def test_a_refusal_names_the_setting_to_change(
    policy: dict[str, str], nodes: int, access: ApiAccess, change: str
) -> None:
    found = network_of(ContainerPolicy.model_validate(policy), nodes, access)
    assert isinstance(found, Refuse)
    assert change in found.allowed
