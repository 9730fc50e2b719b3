"""What is raised about the scheduler of a cluster."""

from headway.errors import HeadwayError


class EngineError(HeadwayError):
    """Something about the scheduler that decides who runs on a cluster."""


class EngineAway(EngineError):
    """The scheduler does not answer a command."""

    engine: str
    command: str
    cause: str
    line = (
        "{engine} did not answer `{command}` ({cause}), so nothing new is known of its jobs; those "
        "that run go on. It is asked again; no job is submitted twice"
    )


class EngineRefused(EngineError):
    """The scheduler does not take the job of this key, for the reason that it *said*."""

    engine: str
    key: str
    said: str
    line = (
        "{engine} does not take job {key:plain}: {said:plain400}. It was not submitted; change "
        "what it asks for, or its pool"
    )
