"""Data sets of a job that members have put: looked up and claimed where the job is submitted."""

from headway.errors import InvalidInput
from headway.model.address import upload_name
from headway.model.job import TrainingJob
from headway.model.job_parts import data_field
from headway.model.job_text import JobText
from headway.model.upload import Upload
from headway.site import Site


def with_known_sizes(site: Site, read: JobText) -> TrainingJob:
    """The job of *read*, with the sizes of the data sets that its team has put.

    Raises:
        InvalidInput: It names one that the team has not.
    """
    job = read.job
    found = {
        name: dataset.model_copy(update={"size": _upload(site, read, name, upload).size_bytes})
        for name, dataset in job.data.items()
        if dataset.size is None and (upload := upload_name(dataset.uri)) is not None
    }
    changed = {"dataset": found.pop("", job.dataset), "datasets": {**job.datasets, **found}}
    return job.model_copy(update=changed)


def claim_uploads(site: Site, read: JobText) -> None:
    """Note that a run is about to be submitted with the data sets that its team has put.

    Raises:
        InvalidInput: It names one that the team has not.
    """
    for name, dataset in read.job.data.items():
        upload = upload_name(dataset.uri)
        if upload is not None and not site.ledger.uploads.use(read.job.team, upload):
            raise _unknown(read, name)


def _upload(site: Site, read: JobText, name: str, upload: str) -> Upload:
    found = site.ledger.uploads.get(read.job.team, upload)
    if found is None:
        raise _unknown(read, name)
    return found


def _unknown(read: JobText, name: str) -> InvalidInput:
    field, uri = f"{data_field(name)}.uri", read.job.data[name].uri
    allowed = (
        f"team {read.job.team} has put no data of this name: `headway data ls` lists what it has, "
        "`headway data put` brings more"
    )
    return InvalidInput(field, uri, allowed, where=read.place(field))
