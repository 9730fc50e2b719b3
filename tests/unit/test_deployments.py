"""What lies in deployments/ is well-formed and calls what exists."""

import re
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from headway.cli import headway
from headway.settings import Settings

FOLDER = Path(__file__).resolve().parents[2] / "deployments"
UNITS = sorted((FOLDER / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_exists(unit):
    text = unit.read_text()
    assert {"[Unit]", "[Service]", "[Install]"} <= set(re.findall(r"^\[\w+\]$", text, re.MULTILINE))
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, *arguments = shlex.split(line)
    assert program.startswith("/opt/headway/.venv/bin/")
    if program.endswith("/headway"):
        context = headway
        for word in arguments:
            context = context.commands[word]


def test_compose_sets_what_headway_reads():
    services = YAML(typ="safe").load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(services) == {"ledger", "server", "node"}
    given = {key for key in services["node"]["environment"] if key.startswith("HEADWAY_")}
    assert given <= {f"HEADWAY_{name.upper()}" for name in Settings.model_fields}
    # What its worker needs for the packet rules that keep jobs from its machine.
    assert services["node"]["network_mode"] == "host"
    assert services["node"]["cap_add"] == ["NET_ADMIN"]
    command = services["node"]["command"]
    assert command[1] in headway.commands
    assert command[2] in headway.commands[command[1]].commands
