"""Ten made recipes: how far off is the time that is told before the second and the third run?

    python benchmarks/option_recipes.py [seeds]

Each recipe's time is a start-up and work that its options change by a law of its own; no two runs
have the same options, and some options change nothing (seed, port, where logs go). Prints by recipe
the median of |told ÷ truth - 1|, what the prior of a recipe's median would have been off, the share
of truths in the interval, and what is said of the options.
"""

import math
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from headway.estimate.features import Configuration
from headway.estimate.options import numbers_of
from headway.estimate.recall import said_of
from headway.model.run import Prediction
from headway.model.trace import Trace

NOISE_SD = 0.05
Options = dict[str, float]


@dataclass(frozen=True)
class Recipe:
    """A made program."""

    name: str
    seconds: Callable[[Options], float]
    choices: dict[str, tuple[float, ...]]
    """What its options may be."""
    hydra: bool = False
    """Written as ``name=value``."""

    def command(self, options: Options) -> list[str]:
        """As somebody would type it."""
        dash = "" if self.hydra else "--"
        return [
            "python",
            "train.py",
            *(f"{dash}{name}={value:g}" for name, value in options.items()),
        ]


ANY = {"seed": tuple(range(1, 1000)), "port": tuple(range(6000, 7000))}
LR = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
RECIPES = (
    Recipe("epochs", lambda o: 4 + 20 * o["epochs"], {**ANY, "epochs": (2, 5, 10, 20), "lr": LR}),
    Recipe("short", lambda o: 6 + 0.8 * o["num-epochs"], {**ANY, "num-epochs": (3, 5, 10, 30)}),
    Recipe("iters", lambda o: 10 + 0.02 * o["trainer.max_iters"],
           {**ANY, "trainer.max_iters": (500, 1200, 5000), "trainer.learning_rate": LR},
           hydra=True),
    Recipe("boost", lambda o: 2 + 0.05 * o["n_estimators"] * o["max_depth"] / 6,
           {**ANY, "n_estimators": (100, 300, 1000), "max_depth": (4, 6, 8), "eta": (0.1, 0.3)}),
    Recipe("steps", lambda o: 3 + 0.3 * o["max_steps"],
           {**ANY, "max_steps": (100, 200, 1000), "warmup-ratio": (0.01, 0.1),
            "log-every": (1, 10)}),
    Recipe("agent", lambda o: 5 + 1e-3 * o["total-timesteps"],
           {**ANY, "total-timesteps": (5e4, 2e5, 1e6), "gamma": (0.9, 0.99),
            "gae-lambda": (0.9, 0.95)}),
    Recipe("width", lambda o: 3 + 4 * o["epochs"] * (o["hidden"] / 128) ** 0.8,
           {**ANY, "epochs": (4, 8, 16), "hidden": (64, 128, 256)}),
    Recipe("batch", lambda o: 3 + 10 * o["epochs"] * (64 / o["batch-size"]) ** 0.4,
           {**ANY, "epochs": (4, 8, 16), "batch-size": (32, 64, 128)}),
    Recipe("sampler", lambda o: 1 + 0.01 * o["draws"],  # a name that no table has
           {**ANY, "draws": (1000, 2000, 4000), "chains-id": (1, 2, 3)}),
    Recipe("constant", lambda _: 90.0, {**ANY, "lr": LR, "wd": (0.0, 0.1), "save-port": (1, 2)}),
)  # fmt: skip


def _trace(recipe: Recipe, options: Options, seconds: float) -> Trace:
    return Trace(
        recipe.name, "cpu", 0, None, runtime_s=seconds, recipe=recipe.name, exit="ok",
        metrics=numbers_of(recipe.command(options)),
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    everything: dict[int, list[float]] = {1: [], 2: []}
    print(f"{'recipe':10} {'2nd run':>8} {'3rd run':>8} {'median of 2':>12} {'in 80 %':>8}  said")
    for recipe in RECIPES:
        off: dict[int, list[float]] = {1: [], 2: []}
        naive, inside, words = [], [], ""
        for seed in range(seeds):
            draw = random.Random(f"{recipe.name} {seed}")
            runs = []
            for _ in range(3):
                options = {name: draw.choice(each) for name, each in recipe.choices.items()}
                runs.append((options, recipe.seconds(options) * math.exp(draw.gauss(0, NOISE_SD))))
            for known in (1, 2):
                options, truth = runs[known]
                asked = Configuration(
                    network=recipe.name, recipe=recipe.name,
                    settings=numbers_of(recipe.command(options)),
                )  # fmt: skip
                said = said_of(asked, Prediction(), [_trace(recipe, *run) for run in runs[:known]])
                off[known].append(abs((said.runtime_s or 0.0) / truth - 1))
                if known == 2:
                    inside.append((said.runtime_low_s or 0) <= truth <= (said.runtime_high_s or 0))
                    naive.append(abs(statistics.median(s for _, s in runs[:2]) / truth - 1))
                    words = said.basis.partition(": ")[2]
        for known, values in off.items():
            everything[known] += values
        second, third = (statistics.median(off[known]) for known in (1, 2))
        print(f"{recipe.name:10} {second:8.0%} {third:8.0%} {statistics.median(naive):12.0%} "
              f"{statistics.mean(inside):8.0%}  {words}")  # fmt: skip
    second, third = (statistics.median(everything[known]) for known in (1, 2))
    print(f"{'all':10} {second:8.0%} {third:8.0%}")


if __name__ == "__main__":
    main()
