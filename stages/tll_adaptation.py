"""The adaptation of one study: for each sigma all runs trained together, beside the baselines on the same splits.

Reads   tll_features/<study>, tll_pca/<study>
Writes  recall.parquet    row, at, run, k, recall: aR@k; rows are `concatenated`, `pca` and `sigma_<sigma>`, `at` is the
                          `last` step, or the `best` one by mean aR@1 over runs, which is chosen on the test pairs
        ranks.parquet     row, run, pair, rank: the better rank of each test pair, at the last step
        nearest.parquet   row, pair, nearest: the right images found for the left ones of run 0's test pairs
        history.csv       row, step, loss, recall_at_1: means over runs
        summary.json      what was done
        model/            W trained on all pairs with the last sigma, the reduction and the network, as
                          tll/adaptation/model.py loads them
"""

import json
from pathlib import Path

import numpy as np
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from polygrain.compute import device
from polygrain.config import schema
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.reading import read_json
from polygrain.store.rectangle import Shape
from polygrain.tll.adaptation import descriptors, model, reduction, training
from polygrain.tll.adaptation.descriptors import Descriptors, Sides, originals, reduced
from polygrain.tll.adaptation.reduction import Reduction
from polygrain.tll.adaptation.tables import Tables
from polygrain.tll.adaptation.training import Training
from polygrain.tll.extractors import layers
from polygrain.training import checkpoint


class Params(schema.Section):
    hidden: schema.Width = Field(description="rows of W: dimensions of the embedding")
    sigmas: list[schema.Factor] = Field(
        min_length=1,
        max_length=100,
        description="factors of the loss, a training each; the last is that of the model handed out",
    )
    learning_rate: schema.Rate = Field(description="of Adam")
    steps: schema.Steps = Field(description="full-batch steps")
    evaluate_every: schema.Steps = Field(description="steps between two evaluations on the test pairs")
    largest_k: schema.Count = Field(description="aR@k is computed for k = 1 to this")


def fit(
    name: str, train_sides: Sides, test: Sides, seeds: list[int], sigma: float, params: Params, work: Path
) -> Training:
    """One training of all the runs that `seeds` start, continued where a killed one stopped."""
    weights = training.starts(seeds, params.hidden, train_sides.left.shape[-1])
    largest_k = min(params.largest_k, test.left.shape[2])
    state = Training(weights, params.steps, params.evaluate_every, largest_k).to(device.best())
    kept = work / f"{name}-{sigma!r}-{seeds[0]}"
    training.train(state, train_sides, test, sigma, params.learning_rate, kept)
    checkpoint.clear(kept)
    return state


def compare(
    described: Descriptors, fits: list[Reduction], splits: np.ndarray, params: Params, seed: int, work: Path
) -> Tables:
    """Baselines and adaptations of all runs."""
    runs = range(len(splits))
    tested, trained = (np.stack([np.flatnonzero(one) for one in part]) for part in (splits, ~splits))
    tables = Tables(min(params.largest_k, tested.shape[1]))
    fit_of = [fits[min(run, len(fits) - 1)] for run in runs]
    train_sides = reduced(described, fit_of, trained, len(described.values))
    test = reduced(described, fit_of, tested, 1)
    for run in runs:
        for row, sides in (
            ("concatenated", originals(described, tested[run])),
            ("pca", [side[run, 0] for side in test]),
        ):
            tables.add_run(row, run, tested[run], *(normalize(side, dim=-1) for side in sides))
    for sigma in params.sigmas:
        state = fit("runs", train_sides, test, [seed * 100_003 + run for run in runs], sigma, params, work)
        for run in runs:
            units = (training.activate(side[run, 0], state.weights[run].detach()) for side in test)
            tables.add_run(f"sigma_{sigma:g}", run, tested[run], *units)
        tables.add_history(f"sigma_{sigma:g}", state)
    return tables


def fit_final(described: Descriptors, fitted: Reduction, params: Params, seed: int, work: Path) -> Tensor:
    """W trained on all pairs with the last sigma: the model to hand out, which no pair is left to test."""
    rows = np.arange(len(described))[None]
    train_sides, test = (reduced(described, [fitted], rows, views) for views in (len(described.values), 1))
    seeds = [seed * 100_003 + 99_999]
    return fit("final", train_sides, test, seeds, params.sigmas[-1], params, work).weights[0].detach().cpu()


def main(features: Path, pca: Path, output: Path, *, study: str, params: Params, seed: int, shape: Shape) -> str:
    described, fits = descriptors.read(features), reduction.load(pca / "pca.safetensors")
    splits = arrays.open(pca / "splits.zarr")
    work = checkpoint.work_folder("tll_adaptation", study, [params, seed], [features, pca])
    tables = compare(described, fits, splits[:], params, seed, work)
    weights = fit_final(described, fits[-1], params, seed, work)
    assembled = model.assemble(layers.restore(features / "network"), fits[-1], weights, params.sigmas[-1], shape)
    with outputs.folder(output) as folder:
        tables.write(folder)
        (folder / "model").mkdir()
        model.save(assembled, folder / "model")
        summary = read_json(pca / "summary.json")
        summary |= {"extractor": assembled.layers.config.network or assembled.layers.config.encoder.architecture}
        summary |= {"layers": assembled.config.extractor.layers} | params.model_dump()
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    shown = ", ".join(f"{row} {100 * value:.1f}" for row, value in tables.recall_at_1().items())
    return f"{len(described):,} pairs, runs: {len(splits)}; aR@1 {shown}"


if __name__ == "__main__":
    command.run(main, Params, shape="tll_pairs.shape")
