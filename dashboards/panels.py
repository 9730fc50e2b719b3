"""The three kinds of panel, and the frame of a dashboard, set once for all of them."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from grafana_foundation_sdk.builders import dashboard as frame
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)

from dashboards.queries import Prom, Shape, Sql

BYTES = units.BytesIEC
BYTES_PER_S = units.BytesPerSecondIEC
CELSIUS = units.Celsius
COUNT = units.Short
FRACTION = units.PercentUnit
SECONDS = units.Seconds
TIME = units.DatetimeLocal
WATTS = units.Watt

TAG = "headway"
Panel = Builder[model.Panel]
Query = Prom | Sql


def dashboard(
    uid: str, title: str, description: str, panels: Sequence[Panel], *variables: frame.QueryVariable
) -> frame.Dashboard:
    """A dashboard with the panels in rows from left to right; 24 columns make a row."""
    made = (
        frame.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .timezone("browser")
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            frame.DashboardLink("headway")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
        )
    )
    for variable in variables:
        made = made.with_variable(variable)
    for panel in panels:
        made = made.with_panel(panel)
    return made


def lines(
    title: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    least: float | None = 0,
    most: float | None = None,
    limit: float | None = None,
    style: GraphDrawStyle = GraphDrawStyle.LINE,
    stacked: StackingMode = StackingMode.NONE,
    text: str = "",
) -> timeseries.Panel:
    """Values over time.

    Args:
        title: Heading of the panel.
        unit: Grafana's name of the unit.
        queries: What is drawn.
        width: In columns, of 24.
        least: Lower end of the axis; None where values may be negative.
        most: Upper end of the axis, where it is known.
        limit: A value to draw as a dashed line.
        style: Lines, or points for values that stand alone.
        stacked: Whether the values add up.
        text: Shown at the heading.
    """
    made = timeseries.Panel().title(title).unit(unit).span(width).height(8).description(text)
    made = made.datasource(queries[0].source).draw_style(style)
    made = made.fill_opacity(25 if stacked is StackingMode.NORMAL else 5)
    made = made.stacking(StackingConfig().mode(stacked).group("A"))
    made = made.tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    legend = VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM)
    made = made.legend(legend.display_mode(LegendDisplayMode.LIST))
    made = made.show_points(
        VisibilityMode.ALWAYS if style is GraphDrawStyle.POINTS else VisibilityMode.AUTO
    )
    if least is not None:
        made = made.min(least)
    if most is not None:
        made = made.max(most)
    if limit is not None:
        made = made.thresholds(_steps((None, "transparent"), (limit, "red")))
        made = made.thresholds_style(
            GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        )
    for ref_id, query in zip(ascii_uppercase, queries, strict=False):
        made = made.with_target(query.target(ref_id, Shape.LINES))
    return made


def number(
    title: str,
    unit: str,
    query: Query,
    *,
    width: int = 4,
    bad_from: float | None = None,
    bad_below: float | None = None,
    shown: BigValueTextMode = BigValueTextMode.VALUE,
    words: Mapping[str, str] | None = None,
    text: str = "",
) -> stat.Panel:
    """One newest value, red from *bad_from* upwards or below *bad_below*, said in *words*."""
    made = stat.Panel().title(title).unit(unit).span(width).height(4).description(text)
    made = made.datasource(query.source).text_mode(shown).graph_mode(BigValueGraphMode.NONE)
    made = made.color_mode(BigValueColorMode.VALUE).no_value("–")
    made = made.reduce_options(ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    steps: list[tuple[float | None, str]] = [(None, "text")]
    if bad_from is not None:
        steps = [(None, "green"), (bad_from, "red")]
    elif bad_below is not None:
        steps = [(None, "red"), (bad_below, "green")]
    made = made.thresholds(_steps(*steps))
    if words:
        said = {value: model.ValueMappingResult(text=word) for value, word in words.items()}
        made = made.mappings([model.ValueMap(options=said)])
    return made.with_target(query.target("A", Shape.NUMBER))


def columns(
    title: str,
    units: Mapping[str, str],
    *queries: Query,
    names: Mapping[str, str] | None = None,
    width: int = 24,
    height: int = 8,
    links: Mapping[str, str] | None = None,
    text: str = "",
) -> table.Panel:
    """A table of exactly the columns in *units*, in their order.

    Args:
        title: Heading of the panel.
        units: Unit by column as it is asked for; empty for text. Of several
            queries, that of B gives ``Value #B``.
        queries: Their rows are joined by the labels that they share.
        names: Column headings where they should read differently.
        width: In columns of the grid, of 24.
        height: In rows of the grid.
        links: Address by column that its cells lead to.
        text: Shown at the heading.
    """
    names = names or {}
    made = table.Panel().title(title).span(width).height(height).description(text)
    made = made.datasource(queries[0].source)
    for ref_id, query in zip(ascii_uppercase, queries, strict=False):
        made = made.with_target(query.target(ref_id, Shape.TABLE))
    if len(queries) > 1:
        made = made.with_transformation(_transformation("merge", {}))
    made = made.with_transformation(
        _transformation("filterFieldsByName", {"include": {"names": list(units)}})
    )
    order = {column: place for place, column in enumerate(units)}
    made = made.with_transformation(
        _transformation("organize", {"indexByName": order, "renameByName": dict(names)})
    )
    for column, unit in units.items():
        wanted = [model.DynamicConfigValue("unit", unit)] if unit else []
        if links and column in links:
            link = {"title": "open", "url": links[column]}
            wanted.append(model.DynamicConfigValue("links", [link]))
        if wanted:
            made = made.override_by_name(names.get(column, column), wanted)
    return made


def choice(name: str, label: str, query: str, regex: str = "") -> frame.QueryVariable:
    """A variable that lists what Prometheus knew within the time range."""
    made = frame.QueryVariable(name).label(label).datasource(Prom.source).query(query)
    made = made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    made = made.sort(model.VariableSort.ALPHABETICAL_ASC)
    return made.regex(regex) if regex else made


def _steps(*steps: tuple[float | None, str]) -> frame.ThresholdsConfig:
    made = [model.Threshold(value=value, color=color) for value, color in steps]
    return frame.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _transformation(kind: str, options: dict[str, object]) -> model.DataTransformerConfig:
    return model.DataTransformerConfig(id_val=kind, options=options)
