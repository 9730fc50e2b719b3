"""The list of what a run left, as the store has it."""

import json
import sys
import threading
import time

import pytest

from headway.gateway.file_sources import read_manifest

FILE = {"path": 'a, "b"]', "href": "a%2C", "bytes": 3, "sha256": "0" * 64, "version": "1"}
REST = {"complete": True, "left_out": 0, "not_stored": [], "logs": {"1": {"start": 0, "end": 9}}}


@pytest.mark.parametrize("files", [[], [FILE], [FILE, FILE | {"path": "\udcff"}]])
def test_a_manifest_is_read_as_it_was_written(files: list[object]) -> None:
    text = json.dumps({"files": files, **REST})
    assert read_manifest(text) == (files, {"files": files, **REST} if not files else REST)


def test_while_a_long_one_is_read_others_go_on() -> None:
    """What reads JSON in one go would keep the event loop for all of that time."""
    text = json.dumps({"files": [FILE] * 100_000, **REST})
    reading = threading.Thread(target=read_manifest, args=(text,))
    before, times = sys.getswitchinterval(), 0
    sys.setswitchinterval(0.0005)
    try:
        reading.start()
        while reading.is_alive():
            time.sleep(0)
            times += 1
    finally:
        sys.setswitchinterval(before)
    assert times > 20
