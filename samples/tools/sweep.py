"""Hydra's sweeps: `python sweep.py --multirun +lr=0.1,0.01 hydra/launcher=headway`."""

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path=None)
def train(config: DictConfig) -> float:
    """Tell what is left of a loss at this learning rate."""
    print("epoch 1/1")
    return float(config.lr) * 2


if __name__ == "__main__":
    train()
