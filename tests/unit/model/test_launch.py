"""What the parts of a gang are told of each other."""

import json

import pytest

from headway.model.launch import Launch, filled, joined, tf_config
from headway.run.rendezvous import Meeting

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
    assert found.get("PET_NPROC_PER_NODE") == (str(gpus) if gpus else None)


@pytest.mark.parametrize("launch", [Launch.TENSORFLOW, Launch.NONE])
def test_others_get_nothing_of_torchs(launch: Launch) -> None:
    assert MEETING.environment(launch, 2).keys() == {
        *("HEADWAY_NODES", "HEADWAY_NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    }
