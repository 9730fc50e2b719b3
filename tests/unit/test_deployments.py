"""What lies in deployments/ is well-formed and calls what exists."""

import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest
from ruamel.yaml import YAML

from headway.cli.main import headway
from headway.prefect.auth import CLIENT, SERVER
from headway.prefect.client import REGISTERED
from headway.project import FLOWS
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
    assert_exists(Path(program).name, *arguments)


def assert_exists(program, *arguments):
    if program == "headway":
        context = headway
        while arguments and not arguments[0].startswith("--"):
            known = click.Context(context)
            _, context, arguments = context.resolve_command(known, list(arguments))
        context.make_context(program, list(arguments))  # refuses an option that it does not have
    else:
        assert (program, arguments[0]) == ("python", "-m")
        assert importlib.util.find_spec(arguments[1]) is not None


def test_what_up_looks_for_is_what_it_registers():
    deployments = YAML(typ="safe").load((FOLDER / "prefect.yaml").read_text())["deployments"]
    flows = {
        entrypoint.replace(".", "/").replace(":", ".py:"): flow
        for flow, entrypoint in FLOWS.items()
    }
    assert set(REGISTERED) == {
        f"{flows[each['entrypoint']]}/{each['name']}" for each in deployments
    }


def test_compose_sets_what_headway_reads():
    services = YAML(typ="safe").load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(services) == {"ledger", "server", "guard", "node", "scheduler", "gateway"}
    known = {f"HEADWAY_{name.upper()}" for name in Settings.model_fields} | {CLIENT, SERVER}
    for service in ("server", "guard", "node", "scheduler", "gateway"):
        assert set(services[service]["environment"]) <= known
        assert_exists(*services[service]["command"])


@pytest.mark.parametrize("name", ["guard", "scheduler", "gateway"])
def test_guard_scheduler_and_gateway_of_compose_see_what_the_node_sees_and_need_no_server(name):
    services = YAML(typ="safe").load((FOLDER / "compose.yaml").read_text())["services"]
    service, node = services[name], services["node"]
    for what in ("environment", "volumes", "pid", "network_mode", "restart"):
        assert service[what] == node[what], what
    assert set(service["depends_on"]) == {"ledger"}


def test_compose_gives_both_one_auth_string_and_the_server_a_postgresql_of_its_own():
    compose = YAML(typ="safe").load((FOLDER / "compose.yaml").read_text())
    server, node = (compose["services"][name]["environment"] for name in ("server", "node"))
    assert server[SERVER].startswith("${SECRET:?")
    assert node[CLIENT] == "${SECRET}"
    database = server["HEADWAY_SERVER_DATABASE_URL"]
    assert database.startswith("postgresql://")
    assert database != node["HEADWAY_LEDGER_URL"]
    assert (FOLDER / "databases.sql").read_text().startswith("CREATE DATABASE prefect;")
    given = "./databases.sql:/docker-entrypoint-initdb.d/databases.sql:ro"
    assert given in compose["services"]["ledger"]["volumes"]
    assert database.endswith("/prefect")
    # What its worker needs for the packet rules that keep jobs from its machine.
    assert compose["services"]["node"]["network_mode"] == "host"
    assert compose["services"]["node"]["cap_add"] == ["NET_ADMIN"]


def test_user_data_of_a_node_calls_what_exists_and_hides_what_it_writes():
    document = YAML(typ="safe").load((FOLDER / "cloud-init.yaml").read_text())
    assert (FOLDER / "cloud-init.yaml").read_text().startswith("#cloud-config\n")
    assert set(document) == {"packages", "write_files", "runcmd"}
    assert [each["permissions"] for each in document["write_files"]] == ["0600"]
    (script,) = document["runcmd"]
    (call,) = re.findall(r"/opt/headway/bin/(headway .*)", script)
    assert_exists(*shlex.split(call))
