"""Tells two spirals apart, on the GPU if there is one; goes on from its checkpoint."""

import argparse
import json
import os
from pathlib import Path

import torch
from torch import nn


def spirals(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two spirals, and which of the two each is on."""
    turns = torch.linspace(0.5, 6.0, rows)
    arm = torch.arange(rows) % 2
    angle = turns + arm * torch.pi
    points = torch.stack([turns * angle.cos(), turns * angle.sin()], dim=1) / 6.0
    return points, arm.float()


def main() -> None:
    """Train, one line an epoch."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--epochs", type=int, default=5)
    asked.add_argument("--lr", type=float, default=0.01)
    wanted = asked.parse_args()

    torch.manual_seed(13)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    points, arm = (each.to(device) for each in spirals(2000))
    model = nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=wanted.lr)

    kept = Path(os.environ["HEADWAY_CHECKPOINT"]) / "last.pt"
    begun = 0
    if kept.exists():
        state = torch.load(kept, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begun = state["epoch"]
    print(f"on {device}, from epoch {begun + 1}")

    for epoch in range(begun + 1, wanted.epochs + 1):
        for _ in range(100):
            loss = nn.functional.binary_cross_entropy_with_logits(model(points).squeeze(1), arm)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        part = kept.with_suffix(".part")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, part)
        part.replace(kept)
        said = {"iteration": epoch, "total": wanted.epochs, "metrics": {"loss": loss.item()}}
        print(json.dumps({"headway": said}))

    torch.save(model.state_dict(), Path(os.environ["HEADWAY_OUTPUTS"]) / "model.pt")


if __name__ == "__main__":
    main()
