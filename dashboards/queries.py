"""What panels ask, and of which data source."""

import enum
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="headway-prometheus")
LEDGER = DataSourceRef(type_val="grafana-postgresql-datasource", uid="headway-ledger")


class Shape(enum.Enum):
    """What a panel makes of an answer, which decides how it is asked."""

    LINES = "time_series"
    """Values over the dashboard's time range."""
    NUMBER = "number"
    """The newest value."""
    TABLE = "table"
    """The newest value of each series, its labels as columns."""


@dataclass(frozen=True, slots=True)
class Prom:
    """A query to Prometheus."""

    expr: str
    legend: str = ""
    """Name of each series; ``{{label}}`` stands for a label's value."""

    source = PROMETHEUS

    def target(self, ref_id: str, shape: Shape) -> Builder[Dataquery]:
        """The query as Grafana asks it."""
        asked = prometheus.Dataquery().ref_id(ref_id).expr(self.expr).datasource(PROMETHEUS)
        if self.legend:
            asked = asked.legend_format(self.legend)
        if shape is Shape.LINES:
            return asked.range()
        if shape is Shape.TABLE:
            asked = asked.format(PromQueryFormat.TABLE)
        return asked.instant()


@dataclass(frozen=True, slots=True)
class Sql:
    """A query to the ledger, which must be on PostgreSQL.

    For lines it gives a column ``time``, and either numbers named by their
    column or a text column ``metric`` that names the one number.
    """

    text: str

    source = LEDGER

    def target(self, ref_id: str, shape: Shape) -> Builder[Dataquery]:
        """The query as Grafana asks it."""
        form = Shape.LINES if shape is Shape.LINES else Shape.TABLE
        text = " ".join(self.text.split())
        return _SqlTarget({"refId": ref_id, "rawSql": text, "format": form.value})


class _SqlQuery(Dataquery):
    # The SDK has no query type for the SQL data sources.
    def __init__(self, payload: dict[str, Any]) -> None:
        self._payload = payload

    def to_json(self) -> dict[str, Any]:
        return self._payload | {"datasource": LEDGER, "rawQuery": True, "editorMode": "code"}


class _SqlTarget(Builder[Dataquery]):
    def __init__(self, payload: dict[str, Any]) -> None:
        self._query = _SqlQuery(payload)

    def build(self) -> Dataquery:
        return self._query
