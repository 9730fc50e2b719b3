"""What the ledger and this node's disk know of one run, read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.ledger.records import RunRecord
from headway.model.attempt_record import AttemptRecord
from headway.model.kept_code import KeptCode
from headway.model.lease import Lease
from headway.model.node import Gpu
from headway.model.notice import Notice
from headway.model.profile import Profile
from headway.model.progress import MetricSpan, ProgressPoint
from headway.model.run import Step
from headway.model.run_file import StoredPart
from headway.model.run_warning import RunWarning
from headway.model.staged import Staging
from headway.run.outputs import list_outputs
from headway.run.profiling import kept
from headway.site import Site


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What the ledger and the disk have of one run."""

    record: RunRecord
    attempts: Sequence[AttemptRecord]
    leases: Sequence[Lease]
    """Of all attempts, released ones too."""
    warnings: Sequence[RunWarning]
    steps: Sequence[Step]
    ranks: Sequence[RunRecord]
    """Runs of a gang's other ranks, of its newest attempt."""
    here: str
    """This node."""
    folder: Path
    """Where log and outputs of the run are, or would be, on this node."""
    outputs: Sequence[str] | None
    """Files on this node; None when they are on another one, and so not known here."""
    lease: Lease | None = None
    """The one that it holds now."""
    newest: ProgressPoint | None = None
    """The newest progress point of its newest attempt, with the last of each metric."""
    metrics: Mapping[str, MetricSpan] = field(default_factory=dict)
    """Of its newest attempt."""
    stored: Sequence[StoredPart] = ()
    """What of it was brought to the site's store."""
    profile: Profile | None = None
    """Where its job asked for one, or somebody made one."""
    stagings: Sequence[Staging] = ()
    """How its data sets came to the nodes of its attempts."""
    code: KeptCode | None = None
    """The folder that it brought along."""
    gpus: Sequence[Gpu] = ()
    """Those of the node of its newest attempt."""
    notices: Sequence[Notice] = ()
    """What was, or is to be, told of it."""


def history_of(site: Site, record: RunRecord) -> RunHistory:
    """What the ledger and this node's disk have of one run."""
    ledger, run_id = site.ledger, record.run_id
    folder = site.settings.runs_dir / run_id
    points = ledger.progress.thinned(run_id, record.attempt, 1)
    code_id = record.job.get("code")
    ranks = ledger.runs.ranks(run_id, record.attempt)
    node = ledger.nodes.get(record.node) if record.node is not None else None
    return RunHistory(
        record,
        attempts=ledger.attempts.of_run(run_id),
        leases=ledger.leases.every_of_run(run_id),
        warnings=ledger.warnings.of_run(run_id),
        steps=ledger.steps.of_run(run_id),
        ranks=ranks,
        here=site.settings.node,
        folder=folder,
        outputs=_outputs(folder) if record.node in (None, site.settings.node) else None,
        lease=ledger.leases.of_run(run_id),
        newest=ledger.progress.latest(run_id) if points else None,
        metrics=ledger.progress.metrics(run_id, record.attempt),
        stored=ledger.stored.of_run(run_id),
        profile=kept(site, run_id),
        stagings=ledger.staged.of_run(run_id),
        code=ledger.code.get(record.team, str(code_id)) if code_id else None,
        gpus=node.node.capacity.gpus if node is not None else (),
        notices=ledger.notices.of_run(run_id),
    )


def _outputs(folder: Path) -> list[str]:
    found = list_outputs(folder)
    return [] if found is None else [str(folder / "outputs" / each.path) for each in found.files]
