import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import InvalidInput
from headway.estimate.trace_files import parse, write
from headway.model.trace import Trace

HEAD = "network,gpu_type,gpus,batch_size,iteration_s"


def read(text, encoding="utf-8", name="t.csv"):
    return parse(text.encode(encoding), name, "here")


def test_good_rows_become_traces_and_unknown_columns_metrics():
    got = read(f"{HEAD},loss,note,nodes\nresnet,V100,4,16,0.5,0.25,hi,2\na3c,k80,1,,1.5,,,\n")
    first, second = got.traces
    assert (first.network, first.gpu_type, first.gpus, first.nodes) == ("resnet", "V100", 4, 2)
    assert (first.iteration_s, first.metrics, first.source) == (0.5, {"loss": 0.25}, "here")
    assert (second.batch_size, second.nodes) == (None, 1)
    assert (got.metrics, got.dropped, got.problems) == (("loss",), ("note",), ())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp949", "utf-8"])
def test_a_byte_order_mark_and_cp949_are_read(encoding):
    assert read(f"{HEAD}\n그물,v100,1,8,0.5\n", encoding).traces[0].network == "그물"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("r,v100,1,8,-1", "iteration_s"),
        ("r,v100,1,8,nan", "iteration_s"),
        ("r,v100,1,8,1e308", "iteration_s"),
        ("r,v100,1,8,1e999", "iteration_s"),
        ("r,v100,1,8,0", "iteration_s"),
        ("r,v100,1,8,12ms", "iteration_s"),
        ("r,v100,1,8,٣", "iteration_s"),
        ("r,v100,1.5,8,1", "gpus"),
        ("r,v100,-1,8,1", "gpus"),
        ("r,v100,1,0,1", "batch_size"),
        ("=cmd|' /C calc'!A0,v100,1,8,1", "network"),
        (",v100,1,8,1", "network"),
        ("r,v100,1,8,", "iteration_s"),
        ("r\u202e,v100,1,8,1", "network"),
        ("a,net,v100,1,8,1", "cells"),
        ("r,v100,1,8,1,", "cells"),
    ],
)
def test_a_bad_row_is_reported_by_line_and_left_out(row, field):
    got = read(f"{HEAD}\nok,v100,1,8,1\n{row}\n")
    assert [t.network for t in got.traces] == ["ok"]
    (problem,) = got.problems
    assert problem.where == "t.csv:3"
    assert field in problem.field


def test_missing_columns_are_all_named():
    with pytest.raises(InvalidInput, match="add gpus, batch_size"):
        read("network,gpu_type,iteration_s\nr,v100,1\n")
    with pytest.raises(InvalidInput, match="iteration_s, batch_s, epoch_s, runtime_s"):
        read("network,gpu_type,gpus,batch_size\nr,v100,1,8\n")


@pytest.mark.parametrize("text", ["", HEAD + "\n", HEAD + ",gpus\nr,v100,1,8,1,1\n"])
def test_a_file_that_cannot_be_used_is_refused_as_a_whole(text):
    with pytest.raises(InvalidInput):
        read(text)


def test_bytes_that_are_no_text_and_no_parquet_are_refused():
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(InvalidInput):
            parse(b"PAR1\xff\x00\x81\xff", name, "here")


def test_a_run_killed_for_memory_needs_no_time_but_a_peak():
    head = "network,gpu_type,gpus,batch_size,iteration_s,host_peak_bytes,exit"
    got = read(f"{head}\nr,v100,1,8,,8589934592,oom\nr,v100,1,8,,,oom\n")
    assert (got.traces[0].host_peak_bytes, got.traces[0].exit) == (8 << 30, "oom")
    assert len(got.problems) == 1


def test_parquet_is_read_like_csv():
    table = pa.table(
        {
            "network": ["r", "r"],
            "gpu_type": ["v100", "v100"],
            "gpus": [1, 1],
            "batch_size": [8, None],
            "iteration_s": [0.5, -1.0],
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    got = parse(buffer.getvalue(), "t.parquet", "here")
    (one,) = got.traces
    assert replace(one, run_id=None) == Trace("r", "v100", 1, 8, iteration_s=0.5, source="here")
    assert got.problems[0].where == "t.parquet:3"


def test_what_is_exported_is_imported_again():
    trace = Trace(
        "r", "v100", 4, None, runtime_s=1 / 3, nodes=2, precision="amp", exit="failed",
        host_peak_bytes=2**40 + 1, started_at=datetime(2026, 1, 2, 3, tzinfo=UTC),
        source="here", run_id="0e9c32b4-1f4f-4a3c-9f0e-3f1d6a2b7c55-2", metrics={"loss": 0.1},
    )  # fmt: skip
    assert parse(write([trace]).encode(), "t.csv", "here").traces == (trace,)


def test_the_same_rows_get_the_same_ids_and_equal_rows_different_ones():
    row = "r,v100,1,8,0.5,7\n"
    text = f"{HEAD},run_id\n{row}{row}r,v100,1,8,0.25,7\n"
    ids = [trace.run_id for trace in read(text).traces]
    assert len(set(ids)) == 3
    assert [trace.run_id for trace in read(text + row).traces][:3] == ids
    assert not {trace.run_id for trace in parse(text.encode(), "t.csv", "there").traces} & set(ids)
    exported = write(read(text).traces)
    assert [trace.run_id for trace in parse(exported.encode(), "t.csv", "back").traces] == ids


@pytest.mark.parametrize("source", ["", " ", "a\nb", "=a", "x" * 201])
def test_a_source_is_a_name(source):
    with pytest.raises(InvalidInput, match="source"):
        parse(f"{HEAD}\nr,v100,1,8,1\n".encode(), "t.csv", source)


def test_no_cell_of_an_export_is_run_by_a_spreadsheet():
    hostile = Trace("=1+1", "@v", 1, 1, iteration_s=1.0, metrics={"=m": 1.0})
    assert not any(
        cell.startswith(("=", "@"))
        for line in write([hostile]).splitlines()
        for cell in line.split(",")
    )


def test_settings_survive_an_export():
    """Their names begin like a formula."""
    trace = Trace("net", "v100", 1, 1, iteration_s=1.0, metrics={"--depth": 8.0})
    (back,) = parse(write([trace]).encode(), "t.csv", "site").traces
    assert back.metrics == {"--depth": 8.0}


def test_a_time_of_one_batch_over_all_gpus_is_known_by_its_speed_ups_and_read_as_such():
    rows = "\n".join(f"n,v100,{n},{b},{b / 100 / n**0.9}" for n in (1, 2, 4) for b in (8, 16))
    got = read(f"{HEAD}\n{rows}\n")
    assert not got.problems
    assert "one batch over all GPUs" in got.notices[0]
    steps = {t.gpus: t.iteration_s for t in got.traces if t.batch_size == 8}
    assert steps == pytest.approx({n: 0.08 * n**0.1 for n in (1, 2, 4)})
    said = read(f"{HEAD.replace('iteration_s', 'batch_s')}\n{rows}\n")
    assert not said.notices
    assert [t.iteration_s for t in said.traces] == [t.iteration_s for t in got.traces]


def test_a_row_outside_physics_is_named_and_left_out():
    times = {1: 0.08, 2: 0.09, 4: 0.09, 8: 0.01}
    rows = "\n".join(f"n,v100,{n},8,{time}" for n, time in times.items())
    got = read(f"{HEAD}\n{rows}\n")
    assert [t.gpus for t in got.traces] == [1, 2, 4]
    assert str(got.problems[0]).startswith("t.csv:5 iteration_s | ")
    assert "64.0 times the speed on 8 times the GPUs" in str(got.problems[0])


def test_the_table_of_gavel_has_speed_ups_that_gpus_can_have():
    gavel = Path(__file__).parents[2] / "data/runtime-gavel.csv"
    got = parse(gavel.read_bytes(), gavel.name, "gavel")
    assert len(got.notices) == 1
    assert len(got.traces) == 405
    assert len(got.problems) == 6
