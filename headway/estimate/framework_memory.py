"""Host memory that a program takes to begin with, by the framework that it uses. Cheap to import.

Measured in a fresh process that imports the framework and trains something small on two CPUs
(`benchmarks/framework_memory.py`), with a third on top. What it takes beyond is learnt as it grows.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from headway.model.job import TrainingJob
from headway.model.node import NodeSpace
from headway.units import GIB, MIB

NOTHING_KNOWN = "a guess: nothing is known of it"
UNKNOWN_BYTES = 1 * GIB
"""Of a job of which nothing is known: most frameworks begin within it."""
FOR_EACH_GPU_BYTES = 4 * GIB
"""What is loaded onto a GPU is in host memory first, beside the libraries of its driver."""
FRAMEWORKS = {
    **dict.fromkeys(("numpy", "pandas", "polars", "scipy"), 256 * MIB),
    **dict.fromkeys(("jax", "flax", "sklearn", "statsmodels"), 512 * MIB),
    **dict.fromkeys(("xgboost", "lightgbm", "catboost"), 512 * MIB),
    **dict.fromkeys(("spacy", "torch", "tensorflow", "keras", "stable_baselines3"), 1 * GIB),
    **dict.fromkeys(("torchvision", "torch_geometric", "timm", "fastai"), 1280 * MIB),
    **dict.fromkeys(("lightning", "pytorch_lightning", "ultralytics"), 1280 * MIB),
    **dict.fromkeys(("accelerate", "transformers"), 1280 * MIB),
}
"""Bytes by the name under which Python imports it, those that need most last."""
_SAME = {
    "pytorch": "torch",
    "scikit-learn": "sklearn",
    "scikit_learn": "sklearn",
    "huggingface": "transformers",
    "stable-baselines3": "stable_baselines3",
    "torch-geometric": "torch_geometric",
    "pytorch-lightning": "pytorch_lightning",
}


class HostGuess(NamedTuple):
    """Host memory that a job is taken to need before anything like it has run."""

    bytes_: int
    why: str
    """What it rests on, as the end of a sentence."""


def known_framework(names: Iterable[str]) -> str:
    """Of *names* of packages or modules the framework that needs most; empty where none is one."""
    plain = {_SAME.get(name.lower(), name.lower()) for name in names}
    return next((each for each in reversed(FRAMEWORKS) if each in plain), "")


def host_guess(job: TrainingJob, gpus: int, spaces: Iterable[NodeSpace]) -> HostGuess:
    """Host memory of *job* on *gpus* of a node, without its data: little, by *spaces*.

    Too little costs a step of growing, or one attempt; too much keeps a node from everybody for as
    long as the job runs.
    """
    said = job.training.framework
    words = [said] if said else re.split(r"[^a-z0-9_-]+", job.image.lower())
    framework = known_framework(words)
    guess_bytes = FRAMEWORKS.get(framework, UNKNOWN_BYTES)
    why = f"a guess by its framework, {framework}" if framework else NOTHING_KNOWN
    if gpus:
        guess_bytes, why = FOR_EACH_GPU_BYTES * gpus, f"{why}, with {gpus} GPU(s)"
    largest_bytes = max((each.host_memory_bytes for each in spaces), default=guess_bytes)
    return HostGuess(min(guess_bytes, largest_bytes or guess_bytes), why)
