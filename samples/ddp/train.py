"""Learns handwritten digits with DistributedDataParallel, the same on one process and on many.

Each step takes one global batch, the same whatever the number of processes, of which each process
has its share; so the loss falls alike, and `--batch` needs no change when the job grows. An attempt
goes on from the epoch that the one before it has finished, also on more or fewer processes.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch

# DDP loads it, too: behind init_process_group its functions would keep the group to the very end.
import torch.distributed.nn.functional
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Join the others, train and leave; the first process speaks for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="over all processes")
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if has_gpu else "gloo")
    train(options.epochs, options.batch, f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu")
    # The model is gone, so this waits for the threads of gloo. One that freed a tensor while the
    # interpreter ends would abort the process.
    distributed.destroy_process_group()


def train(epochs: int, batch_size: int, device: str) -> None:
    """Train, and write down curve and weights."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    distributed.all_reduce(torch.ones(1, device=device))
    met = f"process {rank} of {size} on {device} has met the others at {time.time():.3f}"
    print(met, flush=True)

    pixels, digits = load_digits(return_X_y=True)
    x = torch.tensor(pixels / 16, dtype=torch.float32, device=device)
    y = torch.tensor(digits, device=device)
    torch.manual_seed(0)  # the same model and order in all processes
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    kept = Path(os.environ["HEADWAY_CHECKPOINT"], "state.pt")
    curve = restore(model, kept)
    steps = len(x) // batch_size
    begun = len(curve) // steps
    if rank == 0:
        print(f"begins behind epoch {begun} on {size} processes", flush=True)
    shared = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(begun + 1, epochs + 1):
        for batch in torch.randperm(len(x)).split(batch_size)[:steps]:
            share = batch[rank::size].to(device)
            # The mean over the processes, which DDP takes, is so that over the batch, also where
            # shares are not of one size.
            lost = nn.functional.cross_entropy(shared(x[share]), y[share], reduction="sum")
            loss = lost * size / batch_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            distributed.all_reduce(mean := loss.detach() / size)
            curve.append(mean.item())
        if rank == 0:
            order = torch.get_rng_state()
            torch.save({"model": model.state_dict(), "order": order, "loss": curve}, f"{kept}.new")
            Path(f"{kept}.new").replace(kept)
            said = {"epoch": epoch, "epochs": epochs, "metrics": {"loss": curve[-1]}}
            print(json.dumps({"headway": said}), flush=True)

    equal = everywhere_equal(model)
    if rank == 0:
        outputs = Path(os.environ["HEADWAY_OUTPUTS"])
        torch.save(model.state_dict(), outputs / "model.pt")
        (outputs / "curve.json").write_text(json.dumps({"loss": curve, "weights_equal": equal}))


def restore(model: nn.Module, kept: Path) -> list[float]:
    """Go on from what an earlier attempt has kept; its losses, none where there was none."""
    # The node that leads has the checkpoint; the others are told.
    state = [torch.load(kept) if distributed.get_rank() == 0 and kept.exists() else None]
    distributed.broadcast_object_list(state)
    if state[0] is None:
        return []
    model.load_state_dict(state[0]["model"])
    torch.set_rng_state(state[0]["order"])
    losses: list[float] = state[0]["loss"]
    return losses


def everywhere_equal(model: nn.Module) -> bool:
    """Whether all processes have the same weights."""
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(distributed.get_world_size())]
    distributed.all_gather(everybodys, weights)
    return all(torch.equal(weights, each) for each in everybodys)


if __name__ == "__main__":
    main()
