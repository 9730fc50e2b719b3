"""What each of several GPUs does of a training, in the two ways in which programs share it."""

import math
from dataclasses import dataclass

from headway.model.job_parts import Training


@dataclass(frozen=True, slots=True)
class Shares:
    """Data-parallel training on several GPUs that is as long as the job says for one.

    *Sharded*: a sampler gives each GPU its part of the data (PyTorch's DistributedSampler,
    `tf.data`'s shards). *Shared*: each GPU goes through all of it in each epoch, as the examples
    of Keras and Horovod do, so that fewer epochs train as much.
    """

    gpus: int
    batch: int
    """Of all GPUs together, in samples; each has its part."""
    epochs: int
    """To give a program that shards."""
    steps: int | None
    """Of one such epoch; None where nobody has said how many samples there are."""
    shared_epochs: int
    """To give a program whose GPUs share each epoch: rounded up, at least 1."""
    shared_steps: int | None
    """Of one such epoch, on each GPU."""

    def words(self) -> str:
        """In a sentence for each of the two."""
        sharded, shared = (
            f"{epochs} epoch{'s' if epochs > 1 else ''}" + (f" of {steps} steps" if steps else "")
            for epochs, steps in (
                (self.epochs, self.steps),
                (self.shared_epochs, self.shared_steps),
            )
        )
        more = f"{self.gpus} times as much, and take as many times as long."
        said = f"do: give {shared}; {self.epochs} would train {more}"
        if self.shared_epochs == self.epochs:
            said = f"do, the least there is would train {more}"
        return (
            f"{self.gpus} GPUs take {self.batch} samples in each step. Where each reads its part "
            f"of the data (DistributedSampler): {sharded}. Where each reads all of it, as examples "
            f"of Keras and Horovod {said}"
        )


def shares_of(training: Training, gpus: int) -> Shares | None:
    """What *gpus* GPUs in all do of *training*; None for one, or without batch size and epochs."""
    batch, epochs, samples = training.batch_size, training.epochs, training.samples
    if gpus < 2 or not (batch and epochs):
        return None
    return Shares(
        gpus=gpus,
        batch=batch * gpus,
        epochs=epochs,
        steps=math.ceil(samples / (batch * gpus)) if samples else None,
        shared_epochs=math.ceil(epochs / gpus),
        shared_steps=math.ceil(samples / batch) if samples else None,
    )
