"""The splits of a study, and the principal components that each of its runs reduces the descriptors to.

Reads   tll_features/<study>
Writes  splits.zarr       run pair, bool: tested, not trained on
        pca.safetensors   mean `fit dim`, components `fit component dim`, explained `fit component`
        summary.json      counts, and the share of variance kept

`fit: train` fits each run on its own training pairs. A last fit is on all pairs, for the model that is handed out.
`fit: all` fits once on all pairs, test pairs included, as the published results do (transductive).
"""

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.tll.adaptation import descriptors, reduction


class Params(schema.Section):
    components: schema.Width = Field(description="dimensions kept")
    fit: Literal["train", "all"] = Field(
        description="train: each run on its own training pairs; all: once, test pairs included, as published"
    )
    runs: int = Field(ge=1, le=10_000, description="random splits, each with a training run of its own")
    test_share: float = Field(gt=0, lt=1, description="of the pairs, tested in a run and not trained on")


def split(seed: int, runs: int, pairs: int, test_share: float) -> Bool[np.ndarray, "run pair"]:
    """Which pairs each run tests: floor(test_share * pairs) of them, drawn from the seed and the run's number alone.

    ValueError where fewer than two pairs are left on either side.
    """
    tested = math.floor(test_share * pairs)
    if not 2 <= tested <= pairs - 2:
        raise ValueError(
            f"{pairs} pairs with test_share {test_share} make {tested} test and {pairs - tested} training pairs; "
            "two of each are needed: give more pairs"
        )
    is_tested = np.zeros((runs, pairs), dtype=bool)
    for run in range(runs):
        is_tested[run, np.random.default_rng([seed, run]).permutation(pairs)[:tested]] = True
    return is_tested


def main(features: Path, output: Path, *, study: str, params: Params, seed: int) -> str:
    described = descriptors.read(features)
    pairs, dim = described.values[0][0].shape
    splits = split(seed, params.runs, pairs, params.test_share)
    everything = np.ones(pairs, dtype=bool)
    fits = [
        reduction.fit(np.concatenate([side[rows] for view in described.values for side in view]), params.components)
        for rows in progress([*(~splits if params.fit == "train" else []), everything], "fit", unit="fit")
    ]
    explained = [float(fit.explained.sum()) for fit in fits]
    tested = int(splits[0].sum())
    summary = {
        "pairs": pairs,
        "train": pairs - tested,
        "test": tested,
        "runs": params.runs,
        "views": len(described.values),
        "dim": dim,
        "components": params.components,
        "fit": params.fit,
        "explained": sum(explained) / len(explained),
    }
    with outputs.folder(output) as folder:
        arrays.write(folder / "splits.zarr", splits, "run pair", 64)
        reduction.save(fits, folder / "pca.safetensors")
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    kept = f"{100 * summary['explained']:.1f} % of variance"
    return f"{counted(len(fits), 'fit')} of {dim} to {params.components} dimensions, {kept}"


if __name__ == "__main__":
    command.run(main, Params)
