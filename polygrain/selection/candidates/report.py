"""The choice's account of itself: its reasons, every candidate, the nearest sampled images, and its card."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from polygrain.compute.counted import counted
from polygrain.encoder.config import Config
from polygrain.selection import criterion
from polygrain.selection.candidates.search import ENCODER, Decision, Neighbours, Search, Settings
from polygrain.store.image_table import ImageTable

CANNOT_TELL = "No task has enough images that differ to compare candidates. So the encoder as it is was taken."
CARD = """\
# {name}

An embedding model for image retrieval. It makes a vector of {dim} from an image, of unit length. Subtract the mean of
the collection from each vector; then the inner product of two vectors says how alike their images are.

- Network: {architecture}, input {side} x {side} px (the centre of a square of {resize} px{whole}){seen}
- Output: {outputs}
- Adaptors: {adaptors}
- Last layer: {layer}
- Cost: {cost:g} times that of the encoder at its own input side
- Learnt from {images} of {tasks}, without labels

## Why this one

{why}

## Use it

```python
import torch
from PIL import Image
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.encoder import load

model, comparisons = load("this folder"), Comparisons.read("this folder")
embedding = model(torch.stack([model.transform(Image.open("picture.jpg"))])).numpy()
query = comparisons.of({task!r}).query(embedding)  # or comparisons.default, for images of another kind
```

`polygrain embed`, `polygrain search` and `polygrain export` take this folder and subtract the mean themselves.

The criterion needs no labels. It ranks candidates well on the mean of several tasks, and less well on one task: where
you have labels, measure the model with them. It may be a poor choice for kinds of images that it did not learn from.
"""


def reasons(search: Search, decision: Decision, settings: Settings) -> list[str]:
    """Why this one, in sentences."""
    lines = comparison(search, decision, settings) if len(search.sample.rows) else [CANNOT_TELL]
    if search.uncertain:
        lines.append(
            f"These tasks were left out, as they have fewer than {settings.criterion.fewest} training images, or only "
            f"images that look alike: {', '.join(search.uncertain)}."
        )
    return lines


def about_layer(granularities: Sequence[str]) -> str:
    """Which clusters make the last layer."""
    return (
        "The last layer was computed from views of the images, and from clusters of "
        f"{counted(len(granularities), 'granularity', 'granularities')} ({', '.join(granularities)})."
    )


def about_sides(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Which sides of the input were tried, by the rows of `recall.csv`; nothing where there was one alone."""
    if len(rows) < 2:
        return []
    found = ", ".join(f"{100 * float(row['recall']):.1f} % of the images at {row['side']} px" for row in rows)
    (side,) = (row["side"] for row in rows if row["chosen"] == "1")
    return [
        f"Of two views of an image one finds the other first, for {found}. "
        f"{side} px is the largest side that is not clearly worse than the best."
    ]


def comparison(search: Search, decision: Decision, settings: Settings) -> list[str]:
    """The number of candidates, the best one, and why it was not chosen, where it was not."""
    fallen = sum(bool(tasks) for tasks in decision.falls.values())
    best, chosen, encoder = (100 * search.value(name) for name in (decision.best, decision.chosen, ENCODER.name))
    lines = [
        f"The criterion compared {counted(len(search.candidates), 'candidate')} on "
        f"{counted(len(search.sample.rows), 'image')} of {counted(len(search.sample.parts()), 'task')}. It needs no "
        "labels and goes from 0 to 100; it is another measure than R-Precision.",
        f"Of the candidates that could be taken {decision.best} has the highest criterion, {best:.1f}. The encoder as "
        f"it is has {encoder:.1f}.",
    ]
    if fallen:
        lines.append(f"{counted(fallen, 'candidate')} could not be taken: clearly below the encoder on a task.")
    if decision.best != decision.chosen:
        lines.append(
            f"{decision.chosen} was taken. Its criterion, {chosen:.1f}, is within {settings.errors:g} standard errors "
            "of the highest, and its nearest images agree better with those of the frozen encoder at several input "
            "sides."
        )
    if search.scale != 1:
        lines.append(
            f"The input of all candidates but the encoder as it is has {search.scale:g} times the encoder's side, "
            "which the stage `resolution` chose."
        )
    return lines


def candidate_rows(search: Search, decision: Decision) -> list[list[Any]]:
    """`criterion.csv`: a line per candidate, the best first."""
    parts = search.sample.parts()
    header = ["name", "model", "scale", "blocks", "layer", "dim", "cost"]
    rows = [[*header, "criterion", "agreement", "falls", "recommended", *parts]]
    for name in sorted(search.candidates, key=search.value, reverse=True):
        form, scores = search.candidates[name].form, search.candidates[name].scores
        agreement = criterion.mean_over_tasks(scores.agreement, search.sample)
        row: list[Any] = [name, form.model, form.scale, form.blocks, form.layer]
        row += [form.dim or "", *(f"{value:.6g}" for value in (form.cost, search.value(name), agreement))]
        row += [" ".join(decision.falls[name]), int(name == decision.chosen)]
        rows.append(row + [f"{scores.score[places].mean():.6g}" for places in parts.values()])
    return rows


def neighbour_table(search: Search, chosen: Neighbours, collection: ImageTable) -> pa.Table:
    """`neighbours.parquet`: the nearest of each sampled image, best first, as rows within its task."""
    rows = collection.rows[search.sample.rows]
    records: dict[str, list[Any]] = {"task": [], "row": [], "encoder": [], "recommended": []}
    for task, places in search.sample.parts().items():
        records["task"] += [task] * len(places)
        records["row"] += rows[places].tolist()
        for key, found in (("encoder", search.candidates[ENCODER.name].neighbours), ("recommended", chosen)):
            records[key] += rows[places[found[task]]].tolist()
    lists = pa.list_(pa.int64())
    fields = [("task", pa.string()), ("row", pa.int64()), ("encoder", lists), ("recommended", lists)]
    return pa.table(records, pa.schema(fields))


def summary(search: Search, chosen: str, why: list[str], collection: ImageTable) -> dict[str, Any]:
    """`choice.json`; criteria with the bounds of their 95 % interval over images."""
    parts = search.sample.parts()
    compared = {}
    for column, of in [("mean", [*parts.values()]), *((task, [places]) for task, places in parts.items())]:
        before, after = (search.candidates[name].scores.score for name in (ENCODER.name, chosen))
        rows = {"encoder": before, "recommended": after, "difference": after - before}
        compared[column] = {key: interval([values[places] for places in of]) for key, values in rows.items()}
    return {
        "name": chosen,
        "form": asdict(search.candidates[chosen].form),
        "why": why,
        "images": len(search.sample.rows),
        "criterion": compared if parts else {},
        "uncertain": search.uncertain,
        "learnt": {"tasks": list(dict.fromkeys(collection.tasks[collection.train])), "images": len(collection.train)},
    }


def interval(
    parts: Sequence[Float[np.ndarray, " _"]], draws: int = 1000, share: float = 0.95
) -> tuple[float, float, float]:
    """The mean of the parts' means and its bootstrap interval, values drawn anew within each part; NaN without any."""
    if not parts:
        return math.nan, math.nan, math.nan
    generator = np.random.default_rng(0)
    means = [part[generator.integers(len(part), size=(draws, len(part)))].mean(1) for part in parts]
    low, high = np.quantile(np.mean(means, 0), [(1 - share) / 2, (1 + share) / 2])
    return float(np.mean([part.mean() for part in parts])), float(low), float(high)


def card(config: Config, choice: dict[str, Any]) -> str:
    """The card in Markdown; `choice` is the content of `choice.json`."""
    form, adaptors = choice["form"], config.adaptors
    seen = f", scaled to {config.side} px for the network" if config.scaled else ""
    layers = {
        "none": "the first principal axes of the training images" if config.reduced else "none",
        "own": "the model's own",
        "clusters": "computed in closed form from clusters of the training images",
    }
    return CARD.format(
        name=choice["name"],
        task=choice["learnt"]["tasks"][0] if choice["learnt"]["tasks"] else None,
        dim=f"{config.reduced} numbers" if config.reduced else "all the network's numbers",
        architecture=config.architecture,
        side=config.size,
        resize=config.resize,
        whole="; of longer images all, up to 3 to 1" if config.shape == "whole" else "",
        seen=seen,
        outputs=f"its last {config.blocks} blocks side by side" if config.blocks > 1 else "its last block",
        adaptors=", ".join(adaptors.names) if adaptors else "none",
        layer=layers[form["layer"]],
        cost=form["scale"] ** 2,
        images=counted(choice["learnt"]["images"], "image"),
        tasks=", ".join(choice["learnt"]["tasks"]),
        why="\n".join(f"- {line}" for line in choice["why"]),
    )
