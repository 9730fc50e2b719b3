"""Learns handwritten digits with Keras over all workers that TF_CONFIG names, or alone.

Each step takes one global batch, of which each worker has its share, as `samples/ddp` does it.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 64


def main() -> None:
    """Train; the first worker speaks for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
    size = strategy.num_replicas_in_sync
    strategy.reduce("SUM", strategy.run(lambda: tf.ones(1)), axis=None)
    print(f"process {rank} of {size} on cpu has met the others at {time.time():.3f}", flush=True)

    pixels, digits = load_digits(return_X_y=True)
    keras.utils.set_random_seed(0)  # the same model in all processes
    with strategy.scope():
        layers = keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)
        model, optimizer = keras.Sequential(layers), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def learn(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) / BATCH
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        return loss

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def step(x: Any, y: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(learn, args=(x, y)), axis=None)

    order, curve = np.random.default_rng(0), []
    for _ in range(options.epochs):
        chosen = order.permutation(len(pixels))[: len(pixels) // BATCH * BATCH]
        shares = chosen.reshape(-1, BATCH)[:, rank::size]
        x, y = (pixels[shares] / 16).astype("float32"), digits[shares]
        curve += [
            float(step(*each))
            for each in zip(map(tf.constant, x), map(tf.constant, y), strict=True)
        ]
    own = strategy.run(
        lambda: tf.concat([tf.reshape(each, [1, -1]) for each in model.trainable_variables], 1)
    )
    weights = strategy.gather(own, axis=0).numpy()
    if rank == 0:
        equal = bool(len(weights) == size and (weights == weights[0]).all())
        told = json.dumps({"loss": curve, "weights_equal": equal})
        (Path(os.environ["HEADWAY_OUTPUTS"]) / "curve.json").write_text(told)


if __name__ == "__main__":
    main()
