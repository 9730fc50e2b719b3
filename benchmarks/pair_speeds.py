"""How well the speed of pairs that share a GPU is told that nobody has measured.

    PYTHONPATH=. python benchmarks/pair_speeds.py PAIRS.csv
    PYTHONPATH=. python benchmarks/pair_speeds.py --fill    tell the pairs that begin with ~:
                                                            writes headway/replay/pair_speeds.csv

PAIRS.csv has the columns gpu_type, network, batch_size, other_network, other_batch_size,
alone_iteration_s, shared_iteration_s. Pairs are held out in ten parts, both of a pair together: on
their GPU type, then on all; at last whole programs. Errors are |said ÷ measured − 1| of the speed
(1 for alone); beside them those of a speed that adds up from both programs' means.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits

from headway.estimate.encode import Floats
from headway.estimate.regressors import SlowDown

SPEEDS = Path(__file__).parents[1] / "headway" / "replay" / "pair_speeds.csv"


def read(path: Path) -> tuple[pd.DataFrame, Floats]:
    """Rows as `SlowDown` takes them, and how many times as long a step took."""
    table = pd.read_csv(path).dropna(subset="shared_iteration_s")
    rows = table.rename(
        columns={"other_network": "beside", "other_batch_size": "beside_batch_size"}
    ).drop(columns=["alone_iteration_s", "shared_iteration_s"])
    longer = (table["shared_iteration_s"] / table["alone_iteration_s"]).to_numpy(dtype=float)
    return rows.reset_index(drop=True), longer


def programs(rows: pd.DataFrame) -> pd.DataFrame:
    """The name and batch of each and of its neighbour."""
    batch = rows[["batch_size", "beside_batch_size"]].fillna(0).astype(int).astype(str)
    return pd.DataFrame({
        "own": rows["network"] + "-" + batch["batch_size"],
        "other": rows["beside"] + "-" + batch["beside_batch_size"],
    })  # fmt: skip


def scores(rows: pd.DataFrame, longer: Floats) -> None:
    """A row for each way of holding out."""
    names = programs(rows)
    pair = pd.Series(["+".join(sorted(each)) for each in names.to_numpy().tolist()])
    print(f"| held out | rows | mean | median | in 80 % | sums of both: mean |\n|{'---|' * 6}")
    for words, groups in (
        ("pairs on their GPU type", pair + rows["gpu_type"]),
        ("pairs on all GPU types", pair),
        ("programs, beside all others", names["own"]),
    ):
        said, plain = np.zeros((len(rows), 3)), np.zeros(len(rows))
        for kept, held in GroupKFold(10).split(rows, groups=groups):
            said[held] = (
                SlowDown().fit(rows.iloc[kept], longer[kept]).predict_quantiles(rows.iloc[held])
            )
            sums = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge(0.1))
            on = [rows["gpu_type"] + names["own"], rows["gpu_type"] + names["other"]]
            codes = pd.concat(on, axis=1)
            sums.fit(codes.iloc[kept], np.log(longer[kept]))
            plain[held] = np.maximum(np.exp(sums.predict(codes.iloc[held])), 1.0)
        error, simple = np.abs(longer / said[:, 1] - 1), np.abs(longer / plain - 1)
        inside = (said[:, 0] <= longer) & (longer <= said[:, 2])
        print(
            f"| {words} | {len(rows)} | {error.mean():.1%} | {np.median(error):.1%} "
            f"| {inside.mean():.1%} | {simple.mean():.1%} |",
            flush=True,
        )


def fill() -> None:
    """Write into the replay's table what its measured pairs tell of the others."""
    table = pd.read_csv(SPEEDS, index_col=0, dtype=str)
    long = (
        table.T.rename_axis("other").reset_index().melt("other", var_name="own", value_name="speed")
    )
    rows = pd.DataFrame({"gpu_type": "v100"}, index=long.index)
    for whose, name, batch in (
        ("own", "network", "batch_size"),
        ("other", "beside", "beside_batch_size"),
    ):
        told = long[whose].str.extract(r"(.*?)(?:-(\d+))?$")
        rows[name], rows[batch] = told[0], told[1].astype(float)
    measured = ~long["speed"].str.startswith("~")
    model = SlowDown().fit(rows[measured], 1 / long["speed"][measured].astype(float))
    said = 1 / model.predict(rows[~measured])
    long.loc[~measured, "speed"] = [f"~{each:.3f}" for each in said]
    filled = long.pivot(index="own", columns="other", values="speed")
    filled.loc[table.index, table.columns].to_csv(SPEEDS, index_label="network")
    print(f"{len(said)} pairs told, {said.min():.2f} to {said.max():.2f}")


def main() -> None:
    """Print the scores, or fill the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--fill", action="store_true")
    asked = parser.parse_args()
    with threadpool_limits(1):
        if asked.fill:
            fill()
        if asked.pairs:
            scores(*read(asked.pairs))


if __name__ == "__main__":
    main()
