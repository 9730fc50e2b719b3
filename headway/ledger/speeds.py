"""What the nodes and the GPUs of the site reached when they were measured."""

from sqlmodel import col, select

from headway.ledger.codec import from_json, to_json
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.tables import SettingRow
from headway.model.speeds import MeasuredGpu, MeasuredNode

_GPU, _NODE = "speeds/gpu/", "speeds/node/"


class Speeds(Repository):
    """Documents of the table of settings: one for each product, one for each node."""

    def keep_gpu(self, product: str, measured: MeasuredGpu) -> None:
        """Keep what a GPU called *product* reached, in the place of what was measured before."""
        self._keep(_GPU + product, measured)

    def keep_node(self, node: str, measured: MeasuredNode) -> None:
        """The same of a node."""
        self._keep(_NODE + node, measured)

    def gpus(self) -> dict[str, MeasuredGpu]:
        """Every product that was measured, by the name that its driver gives it."""
        with self._database.reading() as session:
            query = select(SettingRow).where(col(SettingRow.name).startswith(_GPU, autoescape=True))
            rows = session.exec(query.order_by("name")).all()
            return {
                row.name.removeprefix(_GPU): from_json(MeasuredGpu, row.document) for row in rows
            }

    def node(self, node: str) -> MeasuredNode | None:
        """What *node* reached; None where it was not measured."""
        with self._database.reading() as session:
            row = session.get(SettingRow, _NODE + node)
            return None if row is None else from_json(MeasuredNode, row.document)

    def _keep(self, name: str, measured: object) -> None:
        with self._database.transaction() as session:
            document = to_json(measured)
            session.merge(SettingRow(name=name, document=document, updated_at=now(session)))
