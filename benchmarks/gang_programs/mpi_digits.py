"""Learns handwritten digits with NumPy over all processes that `mpirun` starts.

Each step takes one global batch, of which each process has its share, as `samples/ddp` does it.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

BATCH, RATE = 64, 0.1


def main() -> None:
    """Train; the first process speaks for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    world.Allreduce(np.ones(1), np.empty(1))
    print(f"process {rank} of {size} on cpu has met the others at {time.time():.3f}", flush=True)

    pixels, digits = load_digits(return_X_y=True)
    x, wanted = pixels / 16, np.eye(10)[digits]
    order, curve = np.random.default_rng(0), []
    weights = np.zeros((64, 10))
    for _ in range(options.epochs):
        chosen = order.permutation(len(x))[: len(x) // BATCH * BATCH]
        for batch in chosen.reshape(-1, BATCH):
            share = batch[rank::size]
            scores = np.exp(x[share] @ weights)
            likely = scores / scores.sum(axis=1, keepdims=True)
            step = x[share].T @ (likely - wanted[share])
            lost = np.array([-np.log((likely * wanted[share]).sum(axis=1)).sum()])
            world.Allreduce(MPI.IN_PLACE, step)
            world.Allreduce(MPI.IN_PLACE, lost)
            weights -= RATE * step / BATCH
            curve.append(lost[0] / BATCH)
    everybodys = world.gather(weights)
    if rank == 0:
        equal = all(np.array_equal(weights, each) for each in everybodys)
        told = json.dumps({"loss": curve, "weights_equal": equal})
        (Path(os.environ["HEADWAY_OUTPUTS"]) / "curve.json").write_text(told)


if __name__ == "__main__":
    main()
