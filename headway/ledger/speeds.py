"""What the nodes and the GPUs of the site reached when they were measured."""

from sqlmodel import col, select

from headway.ledger.codec import from_json, to_json
from headway.ledger.nodes import SiteSettings
from headway.ledger.tables import SettingRow
from headway.model.speeds import MeasuredGpu, MeasuredNode

_GPU, _NODE = "speeds/gpu/", "speeds/node/"


class Speeds(SiteSettings):
    """Documents of the table of settings: one for each product, one for each node."""

    def keep_gpu(self, product: str, measured: MeasuredGpu) -> None:
        """Keep what a GPU called *product* reached, in the place of what was measured before."""
        self.keep(_GPU + product, to_json(measured))

    def keep_node(self, node: str, measured: MeasuredNode) -> None:
        """The same of a node."""
        self.keep(_NODE + node, to_json(measured))

    def gpus(self) -> dict[str, MeasuredGpu]:
        """Every product that was measured, by the name that its driver gives it."""
        query = select(SettingRow).where(col(SettingRow.name).startswith(_GPU, autoescape=True))
        with self._database.reading() as session:
            rows = session.exec(query.order_by("name")).all()
        return {row.name.removeprefix(_GPU): from_json(MeasuredGpu, row.document) for row in rows}

    def node(self, node: str) -> MeasuredNode | None:
        """What *node* reached; None where it was not measured."""
        document = self.get(_NODE + node)
        return None if document is None else from_json(MeasuredNode, document)
