"""Arrays as people write them, and what each member finds."""

import json
from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.model.array import (
    Array,
    Membership,
    array_words,
    member_job,
    member_key,
    member_name,
    member_of,
    take_array,
)
from headway.model.document import Document
from headway.model.job_text import read_job

JOB = """
name: sweep
image: trainer:1
command: [python, train.py, --lr, "{lr}"]
array:
  parameters:
    lr: [0.1, 0.01]
    seed: 1..3
  at_most: 2
"""


def read(given: Any) -> Array:
    array = take_array(Document({"array": given}))
    assert array is not None
    return array


def test_a_grid_has_every_combination_once() -> None:
    text = read_job(JOB)
    assert text.array is not None
    assert (text.array.size, text.array.at_most) == (6, 2)
    found = [text.array.parameters(index) for index in range(1, 7)]
    assert found[0] == {"lr": 0.1, "seed": 1}
    assert found[1] == {"lr": 0.1, "seed": 2}
    assert found[5] == {"lr": 0.01, "seed": 3}
    assert len({tuple(each.items()) for each in found}) == 6
    assert "array" not in text.job.document()


def test_members_one_by_one() -> None:
    array = read({"members": [{"lr": 0.1, "net": "a"}, {"lr": 0.5, "net": "b"}]})
    assert array.size == 2
    assert array.parameters(2) == {"lr": 0.5, "net": "b"}


@pytest.mark.parametrize(
    "given", [{"parameters": {"b": "1..2", "a": ["x"]}, "at_most": 3}, {"members": [{"a": 1}]}]
)
def test_what_is_kept_reads_the_same(given: dict[str, Any]) -> None:
    array = read(given)
    assert read(json.loads(json.dumps(array.document()))) == array


def test_the_command_line_says_the_same() -> None:
    array = read(array_words(("lr=0.1,1e-3", "seed=1..2", "net=resnet")))
    assert array.grid == {"lr": (0.1, 0.001), "seed": (1, 2), "net": ("resnet",)}
    for words in (("lr",), ("lr=",), ("lr=1", "lr=2")):
        with pytest.raises(InvalidInput, match="--array"):
            array_words(words)
    for text in ("1..1000000000", "0.1..0.5", "1..3,7", "3..", "1..10001", "5..1"):
        with pytest.raises(InvalidInput, match=r"array.parameters.a.* range.*10,000 numbers"):
            read(array_words((f"a={text}",)))
    with pytest.raises(InvalidInput, match=r"array.parameters.a\[1\]: got .*10,000 numbers"):
        read({"parameters": {"a": [7, "1..3"]}})


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        (7, "array", "give parameters"),
        ({}, "array", "either parameters"),
        ({"parameters": {"a": 1}, "members": [{"a": 1}]}, "array", "either parameters"),
        ({"parameters": {"a": 1}, "most": 2}, "array.most", "parameters or members"),
        ({"parameters": {"a": 1}, "at_most": 0}, "array.at_most", "between 1 and"),
        ({"parameters": {}}, "array.parameters", "1 to 20 parameters"),
        ({"parameters": {"a": []}}, "array.parameters.a", "give values"),
        ({"parameters": {"a": "5..1"}}, "array.parameters.a", "smaller number"),
        ({"parameters": {"a": [True]}}, "array.parameters.a[0]", "in quotes"),
        ({"parameters": {"a": [float("nan")]}}, "array.parameters.a[0]", "below 2"),
        ({"parameters": {"a": ["x\x1b"]}}, "array.parameters.a[0]", "U+001B"),
        ({"parameters": {"a-b": 1}}, "array.parameters.a-b", "letters, digits"),
        ({"parameters": {"index": 1}}, "array.parameters.index", "headway's own"),
        ({"parameters": {"LR": 1, "lr": 2}}, "array.parameters.LR", "once"),
        ({"parameters": {"a": "1..200", "b": "1..200"}}, "array", "at most 10,000"),
        ({"members": []}, "array.members", "1 to 10,000 members"),
        ({"members": [{}]}, "array.members[0]", "1 to 20 parameters"),
        ({"members": [{"a": [1]}]}, "array.members[0].a", "a number, or text"),
    ],
)
def test_what_is_refused(given: Any, field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(given)
    assert caught.value.field == field
    assert said in str(caught.value)


def test_a_secret_is_refused_and_not_shown() -> None:
    secret = "ghp_" + "a" * 20
    with pytest.raises(InvalidInput, match="secret") as caught:
        read({"parameters": {"token": secret}})
    assert secret not in str(caught.value)


def test_only_parameters_are_filled_in() -> None:
    job = {"command": ["{lr}", "{other}", '{"lr": 1}', "{{lr}}"], "env": {"LR": "x{lr}"}}
    made = member_job(job, {"lr": 0.1})
    assert made["command"] == ["0.1", "{other}", '{"lr": 1}', "{0.1}"]
    assert made["env"] == {"LR": "x0.1"}
    assert job["command"][0] == "{lr}"


def test_what_a_member_finds() -> None:
    member = Membership("id", 2, 6, {"lr": 0.1, "net": "a"})
    assert member.environment() == {
        "HEADWAY_ARRAY_ID": "id", "HEADWAY_ARRAY_INDEX": "2", "HEADWAY_ARRAY_SIZE": "6",
        "HEADWAY_ARRAY_LR": "0.1", "HEADWAY_ARRAY_NET": "a",
    }  # fmt: skip
    assert json.loads(member.file()) == {
        "array": "id", "index": 2, "size": 6, "parameters": {"lr": 0.1, "net": "a"},
    }  # fmt: skip


def test_keys_and_names_of_members() -> None:
    array_id = "0d4c1a2e-1111-2222-3333-444455556666"
    assert member_of(member_key(array_id, 17)) == (array_id, 17)
    for other in (None, "", "vision/me/headway-array:x:1", "headway-array:x:1"):
        assert member_of(other) is None
    assert len(member_name("n" * 63, 10_000)) == 63
