"""What the container runtime raises."""

from headway.errors import HeadwayError


class RuntimeFailure(HeadwayError):
    """Something about the container runtime."""

    def __init__(self, said: str) -> None:
        super().__init__(said)


class EngineUnreachable(RuntimeFailure):
    """The container engine does not answer in time."""

    action: str
    cause: str
    line = (
        "the container engine did not answer while headway tried to {action} ({cause}); it is "
        "tried again, running containers are not touched"
    )


class EngineSilent(EngineUnreachable):
    """An engine is or was here and does not answer: programs are not started without it."""

    address: str
    line = (
        "the container engine at {address:quoted} did not answer while headway tried to {action} "
        "({cause}), and this node has or had one; no program is started outside a container "
        "instead. Start the engine and try again, or set HEADWAY_RUNTIME=process to do without one"
    )


class ImageMissing(RuntimeFailure):
    """The image is not on the node and cannot be pulled."""

    image: str
    cause: str
    line = (
        "image {image:quoted} is not on this node and could not be pulled ({cause}); build or pull "
        "it there, or correct the name"
    )


class ContainerExists(RuntimeFailure):
    """The name is taken: another process created this attempt first."""

    name: str
    line = "container {name} exists already; it is followed, not started again"


class ContainerMissing(RuntimeFailure):
    """No container has this name."""

    name: str
    line = "container {name} does not exist on this node (any more)"


class PolicyViolation(RuntimeFailure):
    """The site's container policy forbids what the job asks for."""

    what: str
    value: object
    allowed: str
    line = "{what}: {value:quoted} is not allowed on this site; {allowed}"


class CeilingUnsafe(HeadwayError):
    """The file with the bounds of this node cannot be trusted: the node starts nothing."""

    path: str
    cause: str
    line = (
        "{path}, which bounds the blocks on this node, cannot be trusted ({cause}); this node "
        "starts nothing until it is a readable file that belongs to root and that only root may "
        "change"
    )
