"""Simpler methods than Grappa on the same frozen encoder: random adaptors that learn from views, or one layer.

Reads   images, encoder, features and pseudo_labels (for `closed_form`)
Writes  weights.safetensors, config.json   one model
        history.csv                        epoch, loss (no row for `closed_form`, which has no epochs)

- `one_set`: one adaptor set, drawn at random, trained on pairs of views (M+A_1 of Table 2);
- `many_sets`: as many random sets as there are granularities, trained together with their fusion (M*(random));
- `closed_form`: a linear layer by the pseudo-labels of all granularities, in closed form (polygrain/fisher).
"""

from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from polygrain.compute.counted import counted
from polygrain.compute.vectors import unit_rows
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import Attention
from polygrain.encoder.model import Model, load, save
from polygrain.fisher.granularities import Granularities
from polygrain.grappa import barlow_twins
from polygrain.grappa.random_sets import insert_random
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import open_features, open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history


class Params(schema.Section):
    width: schema.Width = Field(description="hidden units D' of each bottleneck")
    up_std: float = Field(
        ge=0, le=10, description="standard deviation of the up-projections at the start of random sets; 0: none"
    )
    one_set: barlow_twins.Pairs = Field(description="one random adaptor set")
    many_sets: barlow_twins.Pairs = Field(description="a random adaptor set for each granularity, with their fusion")
    closed_form: None = Field(description="nothing to set")

    def fits(self, lists: Lists) -> None:
        """ValueError for a baseline without the clusters or the adaptor sets that it is made after."""
        for name, kind in (("closed_form", "granularities"), ("many_sets", "adaptors")):
            if name in lists.baselines and not getattr(lists, kind):
                raise ValueError(f"baselines lists {name!r}, which needs {kind}: list some, or leave it out")


def project(model: Model, features: np.ndarray, labels: dict[str, np.ndarray]) -> None:
    """Puts the layer of these clusters behind the model, which know no tasks, as in the paper."""
    fitted = Granularities(np.arange(len(features)), np.zeros(len(features)), labels).fit(features, None)
    if fitted is None:
        raise ValueError("all training images have the same features: there is nothing to tell apart")
    model.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))


def main(
    images: Path,
    encoder: Path,
    features: Path,
    pseudo_labels: Path,
    output: Path,
    *,
    kind: str,
    params: Params,
    attention: Attention,
    lists: Lists,
    seed: int,
) -> str:
    params.fits(lists)
    model, tasks = load(encoder), list(lists.tasks)
    rows, chosen, history = read_tables(images, tasks).train, getattr(params, kind), []
    if kind == "closed_form":
        vectors = unit_rows(open_features(features, tasks)[rows].astype(np.float32))
        labels = {name: arrays.open(pseudo_labels / name / "labels.zarr")[:] for name in lists.granularities}
        project(model, vectors, labels)
    else:
        count, reads = 1 if kind == "one_set" else len(lists.trained), [encoder, *(images / task for task in tasks)]
        values = [chosen, seed, params.width, params.up_std, count, attention]
        work = checkpoint.work_folder("baseline", kind, values, reads)
        parts = insert_random(model, count, params.width, attention, chosen.start_std, seed, params.up_std)
        history = barlow_twins.train(model, parts, open_pixels(images, tasks), rows, None, chosen, seed, work)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder, ["epoch", "loss"])
    if not history:
        return f"{model.dim} numbers from {counted(len(lists.granularities), 'granularity', 'granularities')}"
    return f"loss {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}, {counted(len(history), 'epoch')}"


if __name__ == "__main__":
    command.run(main, Params, attention="fusion.attention")
