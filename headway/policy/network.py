"""Which network the containers of a run join: a pure function of the site's policy."""

from headway.model.container_policy import ApiAccess, ContainerPolicy, GangNetwork, NetworkMode
from headway.model.lease import Refuse

_SETTING = "gang_network of the block headway-container-policy/site"
_NO_AUTH = (
    "the node's own network is given only while the site's API has an auth string: set "
    "PREFECT_SERVER_API_AUTH_STRING and start the site anew, or change {setting}"
)


def network_of(
    policy: ContainerPolicy, nodes: int, access: ApiAccess
) -> NetworkMode | GangNetwork | Refuse:
    """The network of a job over *nodes* nodes.

    A program on the node's own network reaches the API on its loopback: without
    an auth string it could give the site orders.

    Returns:
        The network; `Refuse` with the setting to change where the policy has none for it.
    """
    if nodes == 1:
        if policy.network is NetworkMode.HOST and access is ApiAccess.OPEN:
            setting = "network of the block headway-container-policy/site"
            return Refuse("resources.nodes", nodes, _NO_AUTH.format(setting=setting))
        return policy.network
    name = policy.gang_network
    if name == NetworkMode.HOST or (not name and policy.network is NetworkMode.HOST):
        if access is ApiAccess.OPEN:
            return Refuse("resources.nodes", nodes, _NO_AUTH.format(setting=_SETTING))
        return NetworkMode.HOST
    if not name:
        return Refuse(
            "resources.nodes",
            nodes,
            "this site has no network on which containers of several nodes meet: name one that "
            f"every node's engine knows in {_SETTING}, or ask for 1",
        )
    return GangNetwork(name)
