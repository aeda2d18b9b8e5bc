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
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.config import schema
from polygrain.losses.symmetric_softmax import LARGEST_SIGMA
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.reading import read_json
from polygrain.store.square import Shape
from polygrain.tll.adaptation import descriptors, model, reduction, training
from polygrain.tll.adaptation.descriptors import Descriptors, Sides, originals, reduced
from polygrain.tll.adaptation.reduction import Reduction
from polygrain.tll.adaptation.tables import Tables
from polygrain.tll.adaptation.training import Training, train
from polygrain.tll.extractors import layers
from polygrain.training import checkpoint

RESIDENT_BYTES = 2 * 2**30


class Params(schema.Section):
    hidden: schema.Width = Field(description="rows of W: dimensions of the embedding")
    sigmas: list[Annotated[float, Field(gt=0, le=LARGEST_SIGMA)]] = Field(
        min_length=1,
        max_length=100,
        description="factors of the loss, a training each; the last is that of the model handed out",
    )
    learning_rate: schema.Rate = Field(description="of Adam")
    steps: schema.Steps = Field(description="full-batch steps")
    evaluate_every: schema.Steps = Field(description="steps between two evaluations on the test pairs")
    largest_k: schema.Count = Field(description="aR@k is computed for k = 1 to this")


def unit(vectors: Tensor) -> Tensor:
    return nn.functional.normalize(vectors, dim=-1)


def trained(
    name: str, sides: tuple[Sides, Sides], seeds: list[int], sigma: float, params: Params, key: str
) -> Training:
    """One training of all the runs that `seeds` start, continued where a killed one stopped."""
    train_sides, test = sides
    weights = training.starts(seeds, params.hidden, train_sides.left.shape[-1])
    largest_k = min(params.largest_k, test.left.shape[2])
    state = Training(weights, params.steps, params.evaluate_every, largest_k).to(device.best())
    work = checkpoint.work_folder("tll_adaptation", name, params.model_dump_json(), sigma, seeds, key)
    train(state, train_sides, test, sigma, params.learning_rate, work)
    checkpoint.clear(work)
    return state


def compare(
    known: Descriptors, fits: list[Reduction], splits: np.ndarray, params: Params, seed: int, key: str
) -> Tables:
    """Baselines and adaptations of all runs, as many runs at a time as stay in memory."""
    runs, pairs = splits.shape
    tested, kept = (np.stack([np.flatnonzero(one) for one in part]) for part in (splits, ~splits))
    tables = Tables(min(params.largest_k, tested.shape[1]))
    of_run = [fits[min(run, len(fits) - 1)] for run in range(runs)]
    bytes_per_run = 8 * len(known.values) * pairs * len(fits[0].components)
    size = max(1, RESIDENT_BYTES // bytes_per_run)
    states: dict[float, list[Training]] = {sigma: [] for sigma in params.sigmas}
    for part in blocks(runs, size):
        train_sides = reduced(known, of_run[part], kept[part], len(known.values))
        test = reduced(known, of_run[part], tested[part], 1)
        for i, run in enumerate(range(runs)[part]):
            tables.add_run("concatenated", run, tested[run], *map(unit, originals(known, tested[run])))
            tables.add_run("pca", run, tested[run], *(unit(side[i, 0]) for side in test))
        for sigma in params.sigmas:
            state = trained(
                "runs", (train_sides, test), [seed * 100_003 + run for run in range(runs)[part]], sigma, params, key
            )
            states[sigma].append(state)
            for i, run in enumerate(range(runs)[part]):
                units = (
                    training.activate(side[i : i + 1, 0], state.weights[i : i + 1].detach())[0][0] for side in test
                )
                tables.add_run(f"sigma_{sigma:g}", run, tested[run], *units)
    for sigma in params.sigmas:
        tables.add_history(f"sigma_{sigma:g}", states[sigma])
    return tables


def final(known: Descriptors, fit: Reduction, params: Params, seed: int, key: str) -> Tensor:
    """W trained on all pairs with the last sigma: the model to hand out, which no pair is left to test."""
    rows = np.arange(len(known))[None]
    sides = reduced(known, [fit], rows, len(known.values)), reduced(known, [fit], rows, 1)
    return trained("final", sides, [seed * 100_003 + 99_999], params.sigmas[-1], params, key).weights[0].detach().cpu()


def main(features: Path, pca: Path, output: Path, *, study: str, params: Params, seed: int, shape: Shape) -> str:
    known, fits = descriptors.read(features), reduction.load(pca / "pca.safetensors")
    splits = arrays.open(pca / "splits.zarr")
    key = f"{known.digest} {splits.digest} {checkpoint.digest(pca / 'pca.safetensors')}"
    tables = compare(known, fits, splits[:], params, seed, key)
    weights = final(known, fits[-1], params, seed, key)
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
    return f"{len(known):,} pairs, {len(splits)} runs; aR@1 {shown}"


if __name__ == "__main__":
    command.run(main, Params, shape="tll_pairs.shape")
