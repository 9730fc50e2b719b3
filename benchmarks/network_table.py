"""Rows of headway/estimate/data/networks.csv for the models of torchvision and timm.

    python benchmarks/network_table.py > rows.csv        needs torch, torchvision and timm

Builds every image classifier of the two libraries on PyTorch's meta device, where nothing is
allocated or computed, and runs one sample of its usual size through it: multiply-adds (PyTorch's
own counter), parameters, elements of the outputs of its convolutions and linear layers, and how
many of those layers there are. Names that the table has already keep the row that they have.
A model that cannot be built or run so is named on standard error.
"""

import csv
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import timm
import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode

from headway.estimate.names import plain_network
from headway.estimate.physics import shipped

COUNTED = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)


def facts(build: Callable[[], Any], size: tuple[int, ...] | None) -> tuple[float, int, int, int]:
    """Multiply-adds, parameters, activations and layers of the model that *build* makes."""
    with torch.device("meta"):
        model = build().eval()
    outputs: list[int] = []
    for module in model.modules():
        if isinstance(module, COUNTED):
            module.register_forward_hook(lambda _, __, out: outputs.append(out.numel()))
    sample = torch.empty(1, *(size or model.default_cfg["input_size"]), device="meta")
    with FlopCounterMode(display=False) as counter:
        model(sample)
    params = sum(each.numel() for each in model.parameters())
    return counter.get_total_flops() / 2, params, sum(outputs), len(outputs)


def main() -> None:
    """Print the rows that are new."""
    known = set(shipped().networks)
    table = csv.writer(sys.stdout, lineterminator="\n")
    libraries: tuple[tuple[Any, list[str], Callable[..., Any], tuple[int, ...] | None], ...] = (
        (
            torchvision,
            torchvision.models.list_models(module=torchvision.models),
            torchvision.models.get_model,
            (3, 224, 224),
        ),
        (timm, timm.list_models(), timm.create_model, None),
    )
    for library, names, build, size in libraries:
        source = f"counted: {library.__name__} {version(library.__name__)}"
        for name in names:
            if plain_network(name) in known or name.startswith("test_"):
                continue
            try:
                flops, params, activations, layers = facts(partial(build, name), size)
            except Exception as error:  # noqa: BLE001  # what meta tensors lack
                print(f"{name}: {str(error).splitlines()[:1]}", file=sys.stderr)
                continue
            known.add(plain_network(name))
            numbers = [f"{x:.4g}" for x in (flops, params, activations)]
            table.writerow([name.replace("_", "-"), *numbers, layers, "", source])


if __name__ == "__main__":
    main()
