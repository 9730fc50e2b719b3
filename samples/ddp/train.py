"""Fits a line with DistributedDataParallel; torchrun and headway tell each process its part."""

import json
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 5


def main() -> None:
    """Train; the first process speaks for all."""
    has_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if has_gpu else "gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu"
    torch.manual_seed(rank)  # other data in each process, the same model in all
    x = torch.rand(1000, 1, device=device)
    y = 3 * x + 1
    model = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    print(f"process {rank} of {size} on {device}", flush=True)
    for epoch in range(1, EPOCHS + 1):
        for _ in range(50):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        distributed.all_reduce(mean := loss.detach() / size)
        if rank == 0:
            said = {"iteration": epoch, "total": EPOCHS, "metrics": {"loss": mean.item()}}
            print(json.dumps({"headway": said}), flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), Path(os.environ["HEADWAY_OUTPUTS"]) / "model.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
