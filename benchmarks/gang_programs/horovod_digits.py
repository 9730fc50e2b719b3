"""Learns handwritten digits with Horovod's PyTorch optimizer over all that `horovodrun` starts.

Each step takes one global batch, of which each process has its share, as `samples/ddp` does it.
"""

import argparse
import json
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH = 64


def main() -> None:
    """Train; the first process speaks for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    hvd.allreduce(torch.ones(1))
    print(f"process {rank} of {size} on cpu has met the others at {time.time():.3f}", flush=True)

    pixels, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
    torch.manual_seed(0)  # the same order in all processes
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Sum
    )
    curve = []
    for _ in range(options.epochs):
        for batch in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            share = batch[rank::size]
            lost = nn.functional.cross_entropy(model(x[share]), y[share], reduction="sum")
            loss = lost / BATCH
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(hvd.allreduce(loss.detach(), op=hvd.Sum).item())

    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    everybodys = hvd.allgather(weights.unsqueeze(0))
    if rank == 0:
        equal = all(torch.equal(weights, each) for each in everybodys)
        told = json.dumps({"loss": curve, "weights_equal": equal})
        (Path(os.environ["HEADWAY_OUTPUTS"]) / "curve.json").write_text(told)


if __name__ == "__main__":
    main()
