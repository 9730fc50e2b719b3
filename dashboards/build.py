"""`python -m dashboards.build`: write every dashboard as the file that Grafana loads."""

import json
from collections.abc import Iterator
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import estimates, node, run, site

FOLDER = Path(__file__).parents[1] / "deployments/grafana/dashboards"


def files() -> Iterator[tuple[str, str]]:
    """Name and text of each dashboard's file."""
    for built in (site, node, run, estimates):
        made = built.build().build()
        for number, panel in enumerate(made.panels or (), start=1):
            panel.id_val = number  # what links to a single panel, and to its picture, rest on
        name = f"{built.__name__.rpartition('.')[2]}.json"
        yield name, json.dumps(made, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name, text in files():
        (FOLDER / name).write_text(text)
