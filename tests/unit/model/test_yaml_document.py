"""What of YAML a job may use, and what each value becomes."""

import time

import pytest

from headway.errors import InvalidInput
from headway.model.yaml_document import WrittenFloat, read_document

BOMB = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n"

REFUSED = [
    ("name: t\nname: u", "f:2", "name", "give it once; the first is in line 1"),
    ('name: t\n"na\\x6de": u', "f:2", "name", "give it once; the first is in line 1"),
    ('{"a": {"b": 1,\n"b": 2}}', "f:2", "a.b", "give it once; the first is in line 1"),
    (BOMB, "f:1", "job", "write values out, without & and *"),
    ("a: 1\nb: *a", "f:2", "job", "write values out, without & and *"),
    ("x: !!python/object:os.system {}", "f:1", "job", "write values without ! tags"),
    ("a: 1\n? [b]\n: c", "f:2", "job", "give keys that are plain words"),
    ("a: b: c", "f:1", "job", "mapping values are not allowed here"),
    ("a: 1\nb: [", "f:2", "job", "give valid YAML or JSON"),
    ("---\na: 1\n---\nb: 2", "f:3", "job", "another document"),
    ("a: 1\nb: \x00", "f:2", "job", "U+0000"),
    ("a: \ud800", "f:1", "job", "U+D800"),
    (b"a: 1\nb: \xff", "f:2", "job", "save the file as UTF-8"),
    (b"\xff\xfea\x00", "f:1", "job", "save the file as UTF-8"),
    ("%YAML 9.9\n---\na: b", "f:1", "job", "incompatible"),
    ("x: " + "[" * 50 + "]" * 50, "f:1", "job", "nest at most 20 levels deep"),
    ("- " * 50, "f:1", "job", "nest at most 20 levels deep"),
    ("\n".join(" " * level + "a:" for level in range(50)), "f:", "job", "nest at most 20 levels"),
    ("x: [" + "1," * 10_000 + "]", "f:1", "job", "give at most 6,000 values"),
]


@pytest.mark.parametrize(("text", "where", "field", "allowed"), REFUSED)
def test_what_is_refused(text: str | bytes, where: str, field: str, allowed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_document(text, "f")
    assert (caught.value.where[: len(where)], caught.value.field) == (where, field)
    assert allowed in caught.value.allowed
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["x" * 10_000_000, b"a: [" + b"1," * 5_000_000])
def test_ten_megabytes_are_refused_unread(text: str | bytes) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidInput, match="more than 256 KiB of text; give at most 256 KiB"):
        read_document(text, "f")
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("brackets", ["[", "{", "- ", "? "])
def test_depth_costs_no_time(brackets: str) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidInput):
        read_document(brackets * 100_000, "f")
    assert time.process_time() - begun < 5.0


def test_a_broken_line_with_a_secret_is_not_shown() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_document('env:\n  DB_PASSWORD: "hunter2" x', "f")
    assert caught.value.where == "f:2"
    assert "hunter2" not in str(caught.value)


VALUES = [
    ("yes", "yes"), ("no", "no"), ("on", "on"), ("true", True), ("False", False),
    ("~", None), ("", None), ("null", None), ("12", 12), ("-1", -1), ("1.5", 1.5),
    ("1e3", 1000.0), ("1e400", "1e400"), ("012", "012"), ("0x1F", "0x1F"), ("0o7", "0o7"),
    ("1_000", "1_000"), (".inf", ".inf"), (".nan", ".nan"), ("12:30", "12:30"),
    ("2024-01-01", "2024-01-01"), ('"12"', "12"), ("'no'", "no"), ("|\n  a\n  b", "a\nb"),
    ('"\\ud83d\\ude00"', "\U0001f600"), ("9" * 50, "9" * 50),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), VALUES)
def test_a_scalar_is_what_yaml_12_and_json_say(written: str, value: object) -> None:
    read = read_document(f"a: {written}", "f").values["a"]
    plain = float if isinstance(read, WrittenFloat) else type(read)
    assert (plain, read) == (type(value), value)


def test_json_and_a_byte_order_mark_are_read() -> None:
    assert read_document(b'\xef\xbb\xbf{"a": [1, {"b": null}]}', "f").values == {
        "a": [1, {"b": None}]
    }


def test_every_value_knows_its_line() -> None:
    document = read_document("a: 1\nb:\n  c:\n    - x\n    - y\n", "f")
    assert document.place(("b", "c", 1)) == "f:5"
    assert document.place(("b", "c")) == "f:3"
    assert document.place(("b", "gone", "deeper")) == "f:2"
    assert document.place(("gone",)) == "f:1"
