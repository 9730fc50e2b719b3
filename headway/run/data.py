"""The data sets of an attempt, brought to the cache of its node."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headway.errors import InvalidInput
from headway.model.address import upload_name
from headway.model.container_policy import ContainerPolicy
from headway.model.job_parts import Dataset, data_field
from headway.model.staged import Staging
from headway.run.here import NodeAttempt
from headway.run.uploads import UploadReader
from headway.staging.cache import DataCache, StagedDataset


def stage_data(
    attempt: NodeAttempt,
    policy: ContainerPolicy,
    progress: Callable[[int, int | None], None],
    secret: Callable[[str], object],
) -> Mapping[str, StagedDataset]:
    """Bring the data sets of *attempt* here, one after the other; they, by name.

    Args:
        attempt: Whose job names them.
        policy: What data may be read, and with which credentials.
        progress: Is told what is there, and of how much, in bytes.
        secret: Gives the value of a Secret block that the operator names for a storage.
    """
    site, clock, spent_s = attempt.site, attempt.site.clock, 0.0
    for name, dataset in attempt.job.data.items():
        cache, from_s = _cache_of(attempt, policy, dataset, secret), clock.monotonic_s()
        limit_s = attempt.job.max_runtime
        if limit_s is not None:
            limit_s = max(0.0, limit_s - spent_s)
        with _of_data(name):
            staged = cache.stage(dataset, attempt.run_id, progress=progress, limit_s=limit_s)
        attempt.datasets[name] = staged
        took_s = clock.monotonic_s() - from_s
        spent_s += took_s
        size, there = staged.size_bytes, staged.from_cache
        here = site.settings.node
        note = Staging(attempt.number, name, here, dataset.uri, size, took_s, there)
        site.ledger.staged.note(attempt.fence, note)
    return attempt.datasets


def _cache_of(
    attempt: NodeAttempt,
    policy: ContainerPolicy,
    dataset: Dataset,
    secret: Callable[[str], object],
) -> DataCache:
    """The node's cache, fed by what the address of *dataset* names."""
    site = attempt.site
    if upload_name(dataset.uri) is not None:
        return site.cache_reading(UploadReader(site, attempt.job.team, attempt.user))
    return site.cache_for(attempt.user, policy, secret)


@contextmanager
def _of_data(name: str) -> Iterator[None]:
    """Say of which data set a field is that the cache found wrong."""
    try:
        yield
    except InvalidInput as error:
        field = error.field.replace("dataset", data_field(name), 1)
        raise InvalidInput(field, error.value, error.allowed) from error
