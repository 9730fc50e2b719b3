"""Logs as the frameworks write them: tests/data/progress, one file for each kind."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.progress import ProgressPoint
from headway.progress.formats import known_formats
from headway.progress.parser import LogParser

DATA = Path(__file__).parents[2] / "data" / "progress"
Place = tuple[int | None, float | None, int | None]
"""Iteration, epoch and total."""

# Format, number of points, first and last place, some metrics of the last.
LOGS: dict[str, tuple[str, int, Place, Place, dict[str, float]]] = {
    "dcgan": ("pytorch", 5, (0, 0.0, 9775), (441, 1.1279, 9775), {"Loss_D": 1.25}),
    "bracket": ("bare", 3, (1, None, 100), (3, None, 100), {"loss": 0.6034, "acc": 0.63}),
    "reinforce": ("plain", 3, (10, None, None), (30, None, None), {"reward": 20.77}),
    "optuna": ("plain", 4, (1, None, None), (4, None, None), {}),
    "rich": ("tqdm", 7, (0, None, 100), (20, None, 100), {}),
    "rich-tasks": ("tqdm", 12, (0, None, 5), (28, 1.4, None), {}),
    "vowpal-wabbit": ("plain", 9, (1, None, None), (256, None, None), {"loss": 0.708398}),
    "table-of-two": ("plain", 3, (0, None, None), (200, None, None), {"Loss": 1.6047}),
    "total-steps": ("plain", 3, (10, None, 1000), (30, None, 1000), {"loss": 1.97}),
    "openpcdet": ("pytorch", 3, (0, 0.0, 969), (99, 0.3065, 969), {"Loss": 23.51}),
    "fairseq-valid": (
        "plain",
        2,
        (600, 0.3173, None),
        (650, 0.3437, None),
        {"lr": 0.000129084},
    ),
    "deepspeed-megatron": ("plain", 4, (34, None, None), (35, None, 10000), {"lm_loss": 11.18665}),
    "compose-keras": ("keras", 2, (1, 0.01, 1000), (50, 0.5, 1000), {"loss": 0.4}),
    "compose-catboost": ("catboost", 2, (1, None, None), (2, None, None), {"learn": 0.5}),
    "caffe": ("caffe", 5, (0, None, 10000), (200, None, 10000), {"loss": 0.141, "iter/s": 1.66}),
    "catboost": (
        "catboost",
        3,
        (1, None, None),
        (201, None, None),
        {"learn": 0.1953312, "test": 0.2360123},
    ),
    "dllogger-json": (
        "dllogger",
        2,
        (10, 0.0, 7038),
        (20, 0.0, 7038),
        {"average_loss": 10.9, "step_loss": 10.8},
    ),
    "dllogger-text": ("dllogger", 6, (10, 0.0, None), (10000, 1.998, 450000), {"train.loss": 4.1}),
    "fairseq": (
        "plain",
        2,
        (100, 0.0221, None),
        (200, 0.0442, None),
        {"loss": 10.411, "nll_loss": 9.9},
    ),
    "fastai": (
        "plain",
        2,
        (None, 1.0, None),
        (None, 2.0, None),
        {"train_loss": 0.412311, "valid_loss": 0.352311},
    ),
    "headway": ("headway", 3, (1, None, 3), (3, 1.0, 3), {"loss": 0.5}),
    "hf-trainer-bar": (
        "huggingface",
        7,
        (0, None, 345),
        (150, 1.3, 345),
        {"loss": 0.3504, "grad_norm": 5.01},
    ),
    "hf-trainer-no-bar": (
        "huggingface",
        3,
        (10, 0.3125, 128),
        (32, 1.0, 128),
        {"eval_loss": 1.05, "eval_runtime": 2.1},
    ),
    "hf-trainer-steps": (
        "huggingface",
        3,
        (10, 0.0585, 564),
        (30, 0.1649, 564),
        {"loss": 12.079448, "learning_rate": 4.734042e-05},
    ),
    "keras-verbose2-old": (
        "keras",
        3,
        (None, 1.0, 15),
        (None, 3.0, 15),
        {"loss": 0.2141, "acc": 0.9162},
    ),
    "keras-verbose2": (
        "keras",
        3,
        (782, 1.0, 3128),
        (2346, 3.0, 3128),
        {"loss": 0.1999, "accuracy": 0.9231},
    ),
    "keras2-mnist-old": (
        "keras",
        5,
        (128, 0.0021, 720000),
        (120000, 2.0, 720000),
        {"loss": 0.0893, "acc": 0.9736},
    ),
    "keras2-resnet-callbacks": (
        "keras",
        5,
        (1, 0.0026, 1173),
        (1173, 3.0, 1173),
        {"loss": 1.0303, "accuracy": 0.6922},
    ),
    "keras3": (
        "keras",
        5,
        (1, 0.0011, 1876),
        (1876, 2.0, 1876),
        {"accuracy": 0.9567, "loss": 0.1467},
    ),
    "lightgbm-cli": ("lightgbm", 4, (1, None, None), (2, None, None), {"valid_1 auc": 0.801}),
    "lightgbm": (
        "lightgbm",
        3,
        (1, None, None),
        (10, None, None),
        {"training's binary_logloss": 0.450012, "training's auc": 0.9},
    ),
    "lightning-1": (
        "lightning",
        6,
        (0, 0.0, None),
        (1524, 1.5, None),
        {"loss": 0.131, "val_acc": 0.912},
    ),
    "lightning-2": (
        "lightning",
        5,
        (0, 0.0, None),
        (630, 1.4651, None),
        {"train_loss": 0.322, "val_loss": 0.377},
    ),
    "lightning-mpi-ascii": (
        "lightning",
        4,
        (0, 0.0, None),
        (40, 1.25, None),
        {"loss": 1.95, "val_acc": 0.166},
    ),
    "megatron": (
        "plain",
        2,
        (100, None, 500000),
        (200, None, 500000),
        {"samples": 102400.0, "learning_rate": 3e-06},
    ),
    "mmdetection": (
        "pytorch",
        3,
        (50, 0.02, None),
        (2550, 1.02, None),
        {"lr": 0.02, "time": 1.023},
    ),
    "nanogpt": ("plain", 4, (0, None, None), (20, None, None), {"loss": 8.9412, "time": 135.22}),
    "oneflow-ranks": (
        "plain",
        3,
        (100, 0.03, 166800),
        (3436, 1.03, 166800),
        {"loss": 1.33078, "lr": 0.004604},
    ),
    "plain-epochs": (
        "plain",
        3,
        (None, 1.0, None),
        (None, 3.0, None),
        {"train_loss": 0.6031, "val_loss": 0.6202},
    ),
    "pytorch-imagenet-old": (
        "pytorch",
        3,
        (0, 0.0, None),
        (5015, 1.002, None),
        {"Time": 0.339, "Data": 0.0},
    ),
    "pytorch-imagenet": (
        "pytorch",
        5,
        (1, 0.0002, None),
        (6006, 1.2, None),
        {"Time": 0.34, "Data": 0.0},
    ),
    "pytorch-mnist": ("pytorch", 5, (0, 0.0, None), (90080, 1.5013, None), {"Loss": 0.013218}),
    "pytorch-tutorial": ("pytorch", 3, (100, 0.1667, 3000), (700, 1.1667, 3000), {"Loss": 0.0921}),
    "sklearn-forest": ("sklearn", 3, (1, None, 100), (57, None, 100), {}),
    "sklearn-gbm": (
        "sklearn",
        3,
        (1, None, None),
        (10, None, None),
        {"Train Loss": 0.9101, "OOB Improve": 0.0031},
    ),
    "sklearn-grid": ("sklearn", 2, (24, None, 60), (60, None, 60), {}),
    "sklearn-hist": (
        "sklearn",
        3,
        (1, None, 100),
        (37, None, 100),
        {"depth": 15.0, "train_loss": 0.30213},
    ),
    "sklearn-mlp": ("sklearn", 3, (1, None, None), (3, None, None), {"loss": 1.55112233}),
    "sklearn-sgd": (
        "sklearn",
        2,
        (None, 1.0, None),
        (None, 2.0, None),
        {"Norm": 71.31, "NNZs": 784.0},
    ),
    "tf-cifar10-tutorial": ("tensorflow", 3, (0, None, None), (20, None, None), {"loss": 4.5}),
    "tf-estimator-absl": ("tensorflow", 2, (0, None, None), (100, None, None), {"loss": 8.1}),
    "tf-estimator": ("tensorflow", 5, (0, None, None), (600, None, None), {"accuracy": 0.9712}),
    "tf-object-detection-2": (
        "tensorflow",
        2,
        (100, None, None),
        (200, None, None),
        {"time": 0.321},
    ),
    "tf-slim": ("tensorflow", 4, (0, None, None), (10, None, None), {"loss": 67.3308}),
    "torchvision-reference": (
        "pytorch",
        3,
        (0, 0.0, None),
        (5005, 1.0, None),
        {"lr": 0.1, "img/s": 31.71},
    ),
    "tqdm-description-changes": ("tqdm", 4, (0, None, 50), (3, None, 50), {}),
    "tqdm-download-first": ("tqdm", 3, (0, None, 4689), (500, None, 4689), {}),
    "tqdm-nested": ("tqdm", 6, (0, None, 5), (200, 2.0, 500), {}),
    "tqdm-unnamed-epochs": ("tqdm", 7, (0, None, 782), (1955, 2.5, 2346), {}),
    "tqdm": ("tqdm", 3, (0, None, 300), (300, None, 300), {"loss": 0.1}),
    "xgboost-cv": (
        "xgboost",
        3,
        (1, None, None),
        (21, None, None),
        {"train-rmse": 0.5345, "test-rmse": 0.9156},
    ),
    "xgboost-sklearn": (
        "xgboost",
        3,
        (1, None, None),
        (51, None, None),
        {"validation_0-logloss": 0.18712, "validation_1-logloss": 0.30011},
    ),
    "xgboost": (
        "xgboost",
        3,
        (1, None, None),
        (3, None, None),
        {"train-error": 0.007063, "eval-error": 0.006207},
    ),
    "yolov5": ("tqdm", 3, (231, 0.5, 1386), (924, 2.0, 1386), {}),
    "accelerate": (
        "plain",
        2,
        (None, 1.0, None),
        (None, 2.0, None),
        {"accuracy": 0.83, "f1": 0.87},
    ),
    "detectron2": (
        "plain",
        3,
        (0, None, None),
        (39, None, None),
        {"total_loss": 4.1, "loss_cls": 3.3},
    ),
    "deepspeed": ("plain", 3, (10, None, None), (20, None, None), {"skipped": 0.0, "lr": 1e-05}),
    "detr": (
        "plain",
        2,
        (None, 1.0, None),
        (None, 2.0, None),
        {"train_lr": 0.0001, "train_loss": 4.1},
    ),
    "gnn": ("plain", 2, (None, 1.0, None), (None, 2.0, None), {"Loss": 1.8, "Train": 0.6}),
    "tf1-tutorial": (
        "plain",
        2,
        (1280, None, None),
        (2560, None, None),
        {"Loss": 1.2, "Accuracy": 0.5},
    ),
    "keras-unknown": ("keras", 3, (10, 0.0, None), (150, 1.5, 200), {"loss": 0.3}),
    "mmengine": ("plain", 3, (50, 0.02, None), (2550, 1.02, None), {"lr": 0.02, "loss": 0.02}),
    "mxnet": ("plain", 5, (20, 0.0, None), (60, 1.0, None), {"Speed": 1000.0, "accuracy": 0.5}),
    "opennmt": ("plain", 2, (50, None, 100000), (100, None, 100000), {"acc": 4.11, "ppl": 800.1}),
    "paddle-autolog": (
        "plain",
        2,
        (0, 0.0, None),
        (10, 0.0, None),
        {"avg_samples": 32.0, "loss": 0.945},
    ),
    "paddleocr": ("plain", 2, (10, 0.0, None), (20, 0.0, None), {"global_step": 20.0, "lr": 0.001}),
    "gan": ("plain", 2, (0, 0.0, None), (100, 0.1066, 18760), {"loss": 0.8}),
    "plain-padded": ("plain", 2, (None, 1.0, None), (None, 2.0, None), {"cost": 0.665}),
    "word-language-model": (
        "plain",
        4,
        (200, 0.067, None),
        (3183, 1.067, None),
        {"lr": 20.0, "loss": 5.9},
    ),
    "plain-thousands": ("plain", 2, (1000, None, 10000), (2000, None, 10000), {"loss": 1.9}),
    "tf2-tutorial": ("plain", 3, (0, 0.0, None), (200, 1.0, None), {"Loss": 1.9}),
    "timm": ("pytorch", 3, (0, 0.0, None), (1251, 1.0, None), {"Loss": 5.95}),
    "yolov8": ("tqdm", 3, (4, 0.5, 800), (16, 2.0, 800), {}),
}


def place(point: ProgressPoint) -> Place:
    epoch = None if point.epoch is None else round(point.epoch, 4)
    return point.iteration, epoch, point.total


def read(name: str, epochs: int | None = None) -> tuple[LogParser, list[ProgressPoint]]:
    parser = LogParser(epochs=epochs)
    points = parser.feed((DATA / f"{name}.log").read_bytes(), 7.0)
    return parser, points + parser.finish(7.0)


@pytest.mark.parametrize("name", LOGS)
def test_a_framework_s_log_says_how_far_it_is(name: str) -> None:
    format_name, count, first, last, metrics = LOGS[name]
    parser, points = read(name)
    assert parser.format == format_name
    assert len(points) == count
    assert (place(points[0]), place(points[-1])) == (first, last)
    assert dict(points[-1].metrics) | metrics == dict(points[-1].metrics)
    assert {point.t_s for point in points} == {7.0}
    assert parser.restarts == 0


def test_every_file_and_every_format_is_tested() -> None:
    assert LOGS.keys() == {path.stem for path in DATA.glob("*.log")}
    assert {format_name for format_name, *_ in LOGS.values()} == {f.name for f in known_formats()}


# Where the log does not say how many epochs there will be, the job does.
@pytest.mark.parametrize(
    ("name", "epochs", "total"),
    [
        ("pytorch-mnist", 14, 14 * 60_000),
        ("pytorch-imagenet", 90, 90 * 5005),
        ("lightning-2", 2, 2 * 430),
        ("xgboost", 100, 100),
        ("lightgbm", 100, 100),
        ("catboost", 1000, 1000),
        ("sklearn-mlp", 200, 200),
        ("plain-epochs", 30, 30),
        ("fastai", 5, 5),
        # Thirty epochs are not thirty steps.
        ("tf-estimator", 30, None),
        ("nanogpt", 30, None),
        # What the log says wins.
        ("keras3", 99, 2 * 938),
        ("headway", 99, 3),
        ("hf-trainer-bar", 99, 345),
    ],
)
def test_the_job_s_epochs_give_the_total(name: str, epochs: int, total: int | None) -> None:
    assert read(name, epochs)[1][-1].total == total


def test_a_bar_is_read_as_it_is_drawn_and_not_when_it_is_drawn_again() -> None:
    """tqdm ends no line: what it said was one report old, 40 % of what is left at the end."""
    parser = LogParser()
    bars = [
        f"\r{i:3}%|##  | {i}/100 [00:{i:02}<00:{60 - i:02},  1.00s/it]".encode() for i in (41, 42)
    ]
    assert [place(point) for point in parser.feed(bars[0], 1.0)] == [(41, None, 100)]
    assert parser.feed(bars[1][:30], 2.0) == []
    assert [place(point) for point in parser.feed(bars[1][30:], 2.0)] == [(42, None, 100)]


@given(st.data(), st.sampled_from(sorted(LOGS)))
@settings(max_examples=100)
def test_the_cuts_make_no_difference(data: st.DataObject, name: str) -> None:
    raw = (DATA / f"{name}.log").read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    parser = LogParser()
    points = [
        point
        for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)
        for point in parser.feed(raw[start:end], 7.0)
    ]
    assert points + parser.finish(7.0) == read(name)[1]


# Bars that are redrawn are left out: those of several ranks in one terminal are no log.
@pytest.mark.parametrize("name", [n for n in LOGS if b"\r" not in (DATA / f"{n}.log").read_bytes()])
def test_eight_ranks_count_once(name: str) -> None:
    raw = (DATA / f"{name}.log").read_bytes()
    lines = raw.splitlines(keepends=True)
    points = LogParser().feed(b"".join(line * 8 for line in lines), 7.0)
    assert points == LogParser().feed(raw, 7.0)
