"""Learns handwritten digits with DistributedDataParallel, the same on one process and on many.

Each step takes one global batch, the same whatever the number of processes, of which each process
has its share; so the loss falls alike, and `--batch` needs no change when the job grows.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train; the first process speaks for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="over all processes")
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if has_gpu else "gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu"
    distributed.all_reduce(torch.ones(1, device=device))
    met = f"process {rank} of {size} on {device} has met the others at {time.time():.3f}"
    print(met, flush=True)

    pixels, digits = load_digits(return_X_y=True)
    x = torch.tensor(pixels / 16, dtype=torch.float32, device=device)
    y = torch.tensor(digits, device=device)
    torch.manual_seed(0)  # the same model and order in all processes
    layers = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curve = []
    for epoch in range(1, options.epochs + 1):
        # Batches that are whole: the mean of the shares' means is then that of the batch.
        for batch in torch.randperm(len(x)).split(options.batch)[: len(x) // options.batch]:
            share = batch[rank::size].to(device)
            loss = nn.functional.cross_entropy(model(x[share]), y[share])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            distributed.all_reduce(mean := loss.detach() / size)
            curve.append(mean.item())
        if rank == 0:
            said = {"epoch": epoch, "epochs": options.epochs, "metrics": {"loss": curve[-1]}}
            print(json.dumps({"headway": said}), flush=True)

    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(size)]
    distributed.all_gather(everybodys, weights)
    if rank == 0:
        equal = all(torch.equal(weights, each) for each in everybodys)
        outputs = Path(os.environ["HEADWAY_OUTPUTS"])
        torch.save(model.module.state_dict(), outputs / "model.pt")
        (outputs / "curve.json").write_text(json.dumps({"loss": curve, "weights_equal": equal}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
