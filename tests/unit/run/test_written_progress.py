"""Progress that programs write into files: as real writers do, and as hostile ones would."""

import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headway.estimate.remaining.remaining_time import RemainingTime
from headway.model.progress import ProgressPoint
from headway.progress.event_files import EventReader, WandbReader
from headway.progress.parser import LogParser
from headway.run.log_progress import LogProgress
from headway.run.written_progress import WrittenProgress
from headway.runtime.logfile import LogChunk
from headway.runtime.redact import Redactor
from tests.ports.clock import FakeClock

DATA = Path(__file__).parents[2] / "data" / "written"
"""Written by tensorboardX 2.6 (five scalars of two tags, a histogram, a text) and by W&B 0.31
without a connection (five steps of a number, a nested one, a text and a NaN)."""
BEGAN = datetime(2020, 1, 1, tzinfo=UTC)


class Files:
    """The outputs of a run that began long ago, and who reads them."""

    def __init__(
        self, folder: Path, epochs: int | None = None, iterations: int | None = None
    ) -> None:
        self.top = folder / "outputs"
        self.top.mkdir()
        self.elapsed_s = 0.0
        places = [(folder, "outputs"), (folder, "no such folder")]
        self.progress = WrittenProgress(places, FakeClock(), BEGAN, epochs, iterations)

    def write(self, name: str, data: str | bytes, mode: str = "ab") -> None:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as opened:
            opened.write(data.encode() if isinstance(data, str) else data)

    def read(self) -> list[ProgressPoint]:
        self.elapsed_s += 10.0
        return self.progress.read(self.elapsed_s)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def said(points: list[ProgressPoint]) -> list[tuple[object, object, object, dict[str, float]]]:
    return [(each.iteration, each.epoch, each.total, dict(each.metrics)) for each in points]


def event(step: int, wall_s: float, value: bytes) -> bytes:
    """A record of an event file, by its format; *value* is of a ``Summary.Value``."""
    summary = b"\x0a" + bytes([len(value)]) + value
    body = b"\x09" + struct.pack("<d", wall_s) + b"\x10" + bytes([step])
    body += b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<QI", len(body), 0) + body + bytes(4)


def scalar(tag: str, number: float) -> bytes:
    return b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", number)


def test_events_of_a_real_writer_in_pieces_as_they_are_flushed(files: Files) -> None:
    data = (DATA / "events.out.tfevents.1.node").read_bytes()
    found = []
    for start in range(0, len(data), 97):
        files.write("runs/now/events.out.tfevents.1.node", data[start : start + 97])
        found += files.read()
    losses = {p.iteration: p.metrics["train/loss"] for p in found if "train/loss" in p.metrics}
    assert losses == {10 * i: pytest.approx(1 / i) for i in range(1, 6)}
    assert any("train/lr" in each.metrics for each in found)
    assert files.progress.point is not None
    assert (files.progress.point.iteration, files.progress.point.total) == (50, None)


def test_a_run_of_wandb_without_a_connection(files: Files) -> None:
    files.write("wandb/offline-run-1/run-1.wandb", (DATA / "run-1.wandb").read_bytes())
    (point,) = files.read()  # all within one second
    assert point.iteration == 50
    assert dict(point.metrics) == {"nan.nan": 1.0, "loss": 0.2, "val.acc": 0.5}


def test_scalars_as_tensors_and_of_what_is_held_out(files: Files) -> None:
    tensor = b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", 0.5)  # dtype, shape, content
    value = b"\x0a\x04loss\x42" + bytes([len(tensor)]) + tensor
    wall_s = BEGAN.timestamp()
    for folder in ("train", "validation"):
        files.write(f"logs/{folder}/events.out.tfevents.1.a.v2", event(3, wall_s + 5.0, value))
    files.write("logs/train/events.out.tfevents.1.a.v2", event(4, wall_s - 60.0, value))
    points = files.read()
    assert [(p.iteration, p.t_s) for p in points] == [(3, 5.0), (3, 5.0)]
    assert points[0].metrics | points[1].metrics == {"loss": 0.5, "validation/loss": 0.5}


def test_the_state_of_a_trainer_says_the_total_and_each_entry_once(files: Files) -> None:
    history = [
        {"loss": 2.0 / i, "learning_rate": 1e-4, "epoch": i / 4, "step": 10 * i} for i in (1, 2)
    ]
    state = {"global_step": 20, "max_steps": 160, "epoch": 0.5, "log_history": history}
    files.write("out/checkpoint-20/trainer_state.json", json.dumps(state)[:50])
    assert files.read() == []  # half written
    files.write("out/checkpoint-20/trainer_state.json", json.dumps(state)[50:])
    assert [(p.iteration, p.total, p.metrics.get("loss")) for p in files.read()] == [
        (10, 160, 2.0), (20, 160, 1.0),
    ]  # fmt: skip
    history.append({"eval_loss": 0.7, "epoch": 0.75, "step": 30})
    state |= {"global_step": 30, "epoch": 0.75}
    files.write("out/checkpoint-30/trainer_state.json", json.dumps(state))
    assert said(files.read()) == [(30, 0.75, 160, {"eval_loss": 0.7})]


def test_epochs_of_keras_are_done_when_they_are_told(tmp_path: Path) -> None:
    files = Files(tmp_path, epochs=8)
    files.write("training.log", "epoch,accuracy,loss\n0,0.5,1.0\n1,0.6,")
    assert said(files.read()) == [(None, 1.0, 8, {"accuracy": 0.5, "loss": 1.0})]
    files.write("training.log", "0.8\n")
    assert said(files.read()) == [(None, 2.0, 8, {"accuracy": 0.6, "loss": 0.8})]


def test_a_file_that_tells_steps_alone_has_the_total_of_the_commands_options(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path, iterations=1200)
    files.write("metrics.csv", "step,loss\n300,0.9\n600,0.8\n")
    assert said(files.read())[-1] == (600, None, 1200, {"loss": 0.8})
    files.write("metrics.csv", "1500,0.7\n")
    assert said(files.read())[-1] == (1500, None, 1500, {"loss": 0.7})


def test_lightning_tells_by_its_epochs_how_many_steps_there_will_be(tmp_path: Path) -> None:
    files = Files(tmp_path, epochs=4)
    name = "lightning_logs/version_0/metrics.csv"
    files.write(name, "epoch,step,train_loss\n0,49,0.9\n0,99,0.8\n")
    assert said(files.read())[-1] == (99, None, None, {"train_loss": 0.8})
    # A new metric: it writes the file anew, with all rows.
    rows = "epoch,step,train_loss,val_loss\n0,49,0.9,\n0,99,0.8,\n0,99,,0.7\n1,149,0.6,\n"
    files.write(name, rows, "wb")
    assert said(files.read()) == [
        (99, None, None, {"val_loss": 0.7}),
        (149, 1.5, 397, {"train_loss": 0.6}),
    ]


def test_stable_baselines_and_mlflow(files: Files) -> None:
    table = "rollout/ep_rew_mean,time/fps,time/total_timesteps\n20.5,900,2048\n,910,4096\n"
    files.write("logs/progress.csv", table)
    assert said(files.read()) == [
        (2048, None, None, {"rollout/ep_rew_mean": 20.5, "time/fps": 900.0}),
        (4096, None, None, {"time/fps": 910.0}),
    ]
    milliseconds = int(BEGAN.timestamp() * 1000) + 3000
    files.write("mlruns/0/abc/metrics/val/loss", f"{milliseconds} 0.25 7\n")
    assert said(files.read()) == [(4096, None, None, {"val/loss": 0.25})]


def test_a_file_that_does_not_change_is_not_read(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("metrics.csv", "step,loss\n1,0.5\n")
    assert len(files.read()) == 1
    monkeypatch.setattr("headway.run.outputs.OpenOutput.piece", lambda *_: pytest.fail("read"))
    assert files.read() == []


def test_what_was_there_before_the_run_is_nothing_of_its_own(files: Files) -> None:
    files.write("metrics.csv", "step,loss\n1,0.5\n")
    old_s = BEGAN.timestamp() - 1.0
    os.utime(files.top / "metrics.csv", (old_s, old_s))
    assert files.read() == []


TABLES = {
    "no progress": "name,step,price\na,1,2\n",
    "columns": ",".join(f"loss{i}" for i in range(1_000_000)) + ",step\n1,1\n",
    "a long line": "step,loss\n" + "1" * 1_000_000,
    "numbers": "step,loss\nnan,nan\ninf,1\n-4,1\n1e300,1\n" + "9" * 5000 + ",1\n",
    "quotes": 'step,loss\n"1\r,2\n\x00,\x00\n"',
    "no end": "x" * 1_000_000,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_a_table_of_anything_else_says_nothing(files: Files, table: str) -> None:
    files.write("metrics.csv", table)
    assert [files.read() for _ in range(3)] == [[], [], []]


STATES = ["[" * 200_000, "9" * 10_000, '{"log_history": [[], 3, {"step": "1"}]}', "{}", "\x00"]


@pytest.mark.parametrize("state", STATES)
def test_a_state_of_anything_else_says_nothing(files: Files, state: str) -> None:
    files.write("trainer_state.json", state)
    assert files.read() == []
    assert files.progress.point is None


def links(top: Path) -> None:
    secret = top.parent / "secret.csv"
    secret.write_text("step,loss\n7,0.5\n")
    (top / "metrics.csv").symlink_to(secret)
    (top / "runs").symlink_to(top.parent)
    os.mkfifo(top / "progress.csv")
    (top / "results.csv").mkdir()


def holes(top: Path) -> None:
    for name in ("events.out.tfevents.1", "metrics.csv", "run-1.wandb", "trainer_state.json"):
        with (top / name).open("wb") as opened:
            opened.truncate(1 << 42)
    with (top / "a.tfevents.2").open("wb") as opened:
        opened.write(struct.pack("<Q", (1 << 64) - 1))
        opened.truncate(1 << 42)


@pytest.mark.parametrize("attack", [links, holes])
def test_what_is_no_file_of_its_own_is_not_read(
    files: Files, attack: Callable[[Path], None]
) -> None:
    attack(files.top)
    assert [files.read() for _ in range(3)] == [[], [], []]


def test_a_file_that_is_replaced_by_a_link_is_not_read(files: Files) -> None:
    files.write("metrics.csv", "step,loss\n1,0.5\n")
    files.read()
    (files.top / "metrics.csv").unlink()
    links(files.top)
    assert files.read() == []


def test_any_bytes_end_in_silence_and_not_in_an_error(files: Files) -> None:
    noise = random.Random(1)
    real = [path.read_bytes() for path in DATA.iterdir()]
    for _ in range(300):
        data = bytearray(noise.choice(real))
        for _ in range(noise.randrange(1, 20)):
            data[noise.randrange(len(data))] = noise.randrange(256)
        del data[noise.randrange(len(data)) :]
        for reader in (EventReader(), WandbReader()):
            try:
                reader.read(bytes(data))
            except ValueError:
                continue
    files.write("a.tfevents.1", bytes(data))
    files.read()


class Both:
    """A log and files, read by one who is told by both."""

    def __init__(
        self, folder: Path, epochs: int | None = None, iterations: int | None = None
    ) -> None:
        self.files = Files(folder, epochs)
        self.remaining = RemainingTime()
        self.log = b""
        self.points: list[ProgressPoint] = []
        self.progress = LogProgress(
            self._chunk,
            FakeClock(),
            LogParser(epochs=epochs),
            self.remaining,
            Redactor([]),
            lambda data, skipped: None,
            self.files.progress,
        )

    def _chunk(self, offset: int, limit: int) -> LogChunk:
        data = self.log[offset : offset + limit]
        return LogChunk(data, offset + len(data), 0)

    def read(self) -> ProgressPoint | None:
        self.files.elapsed_s += 10.0
        self.progress.read(self.files.elapsed_s)
        self.progress.keep(lambda before, points: self.points.extend(points))
        return self.progress.point


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    return Both(tmp_path)


def test_a_file_says_how_far_a_run_is_whose_log_knows_no_total(both: Both) -> None:
    for step in range(1, 6):
        both.log += f"batch {step}: loss {1 / step}\n".encode()
        row = f"{step * 50},{1 / step}\n"
        both.files.write("metrics.csv", row if step > 1 else f"step,train_loss\n{row}")
        point = both.read()
        assert point is not None
        assert (point.iteration, point.total) == (step * 50, None)
    names = {name for point in both.points for name in point.metrics}
    assert {"loss", "train_loss"} <= names  # the log's are kept, in the file's position
    assert {point.iteration for point in both.points} == {50, 100, 150, 200, 250}


def test_a_log_that_knows_the_total_counts_and_files_bring_metrics(both: Both) -> None:
    both.log = b"step 10/100 loss: 0.9\n"
    both.files.write("metrics.csv", "step,val_acc\n3,0.5\n")
    both.read()
    both.log += b"step 20/100 loss: 0.8\n"
    both.files.write("metrics.csv", "4,0.6\n")
    both.read()
    assert {(p.iteration, p.total) for p in both.points} == {(10, 100), (20, 100)} | {
        (p.iteration, p.total) for p in both.points if "val_acc" in p.metrics
    }
    assert both.progress.point is not None
    assert both.progress.point.iteration == 20


def test_a_total_that_a_file_states_beats_another_one_of_the_log(both: Both) -> None:
    both.log = b"step 10/100 loss: 0.9\n"  # of the first of its epochs
    for step in (10, 20, 30):
        state = {"global_step": step, "max_steps": 400, "epoch": 0.1, "log_history": []}
        both.files.write(f"checkpoint-{step}/trainer_state.json", json.dumps(state))
        both.read()
    assert both.progress.point is not None
    assert (both.progress.point.iteration, both.progress.point.total) == (30, 400)
    left = both.remaining.at(both.files.elapsed_s).remaining_s
    assert left == pytest.approx(370.0, rel=0.2)


def test_what_is_printed_for_headway_counts_whatever_the_files_say(both: Both) -> None:
    both.files.write("metrics.csv", "step,loss\n700,0.5\n")
    both.log = b'{"headway": {"iteration": 3, "total": 40}}\n'
    both.read()
    both.read()
    assert both.progress.point is not None
    assert (both.progress.point.iteration, both.progress.point.total) == (3, 40)
