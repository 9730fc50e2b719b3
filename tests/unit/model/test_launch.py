"""What the parts of a gang are told of each other."""

import json
from ipaddress import IPv4Address, IPv4Network

import pytest

from headway.model.launch import Launch, filled, joined, open_mpi_network, tf_config
from headway.run.rendezvous import Meeting, own_links
from headway.settings import Settings

MEETING = Meeting("g", 1, "10.0.0.5", 29500, 1, 4)


def test_tensorflow_finds_all_workers_and_its_own_place_among_them() -> None:
    config = json.loads(tf_config(["10.0.0.5:29500", "10.0.0.6:29501"], 1))
    assert config["cluster"] == {"worker": ["10.0.0.5:29500", "10.0.0.6:29501"]}
    assert config["task"] == {"type": "worker", "index": 1}


def test_rank_and_place_are_filled_in_and_other_braces_stay() -> None:
    command = ["python", "t.py", "--id={rank}", "{world_size}", "{local_rank}", '{"a": {}}', "{lr}"]
    assert MEETING.command(Launch.NONE, [*command, "tcp://{master}"]) == [
        *("python", "t.py", "--id=1", "4", "0", '{"a": {}}', "{lr}", "tcp://10.0.0.5:29500")
    ]
    assert MEETING.command(Launch.TORCH, command) == command
    assert filled(["{a}{a}"], {"a": "{b}", "b": 1}) == ["{b}{b}"]
    assert joined("fd00::2", 80) == "[fd00::2]:80"


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_torch_is_told_its_rank_where_a_node_has_one_process_and_torchrun_does_it_else(
    gpus: int,
) -> None:
    found = MEETING.environment(Launch.TORCH, gpus)
    assert found["PET_NODE_RANK"] == found["HEADWAY_NODE_RANK"] == "1"
    alone = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    assert {name: found[name] for name in alone if name in found} == (alone if gpus < 2 else {})


@pytest.mark.parametrize("launch", [Launch.TENSORFLOW, Launch.NONE])
def test_others_get_nothing_of_torchs(launch: Launch) -> None:
    assert MEETING.environment(launch, 2).keys() == {
        *("HEADWAY_NODES", "HEADWAY_NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    }


def test_gpus_have_a_process_each_where_that_is_how_programs_are_launched() -> None:
    assert {launch: launch.processes(4) for launch in Launch} == {
        Launch.TORCH: 4,
        Launch.TENSORFLOW: 1,
        Launch.HOROVOD: 4,
        Launch.MPI: 4,
        Launch.NONE: 1,
    }
    assert Launch.TORCH.processes(0) == 1


def test_programs_that_see_all_networks_are_told_which_one_leads_to_the_others() -> None:
    here = Settings(address="127.0.0.1")
    assert own_links(here) == {"NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo"}
    assert own_links(Settings(address="192.0.2.1")) == {}


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["10.8.0.1", "10.8.0.2"], "10.8.0.0/30"),
        (["10.8.0.1", "10.8.0.2", "10.8.3.7"], "10.8.0.0/22"),
        (["192.168.7.9"], "192.168.7.9/32"),
        (["10.8.0.1", "192.168.7.9"], None),
        (["fd00::1", "fd00::2"], None),
        (["node-a", "node-b"], None),
    ],
)
def test_open_mpi_keeps_to_the_smallest_network_with_all_parts(
    addresses: list[str], network: str | None
) -> None:
    found = open_mpi_network(addresses)
    assert set(found.values()) == ({network} if network else set())
    if network:
        assert all(IPv4Address(each) in IPv4Network(network) for each in addresses)
        assert found.keys() == {
            *("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"),
            "PRTE_MCA_prte_if_include",
        }
