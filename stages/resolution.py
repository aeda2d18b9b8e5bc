"""The side of the encoder's input, chosen without labels before any training.

Reads   images, encoder
Writes  weights.safetensors, config.json   the encoder for inputs of that side, from which all else starts
        and in a folder of its own, so that `features` follows the model alone: recall.csv, each side within the budget
        with its cost, and on each task how often one view finds the other; and for `choice` the embeddings of that
        measurement (selection/seen.py)

A network often retrieves better at larger inputs than those of its training (Touvron et al., "Fixing the train-test
resolution discrepancy", 2019), and adapts best at the side at which it is used. Agreement with a careful look, part of
the criterion elsewhere, does not count here: the sides of that look would decide.
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from polygrain.compute import device
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.model import Model, blocks_for, load, save
from polygrain.encoder.stored import Stored, facts_of
from polygrain.runner import command, outputs
from polygrain.selection import criterion
from polygrain.selection.seen import Seen
from polygrain.store import arrays
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.store.tables import write_csv


class Params(schema.Section):
    scales: list[criterion.Scale] = Field(
        max_length=20, description="sides that are tried, as multiples of the encoder's own, which is always tried"
    )
    cost: float = Field(
        ge=1, le=10_000, description="highest cost of an embedding, in passes of the encoder at its own side"
    )
    errors: float = Field(
        ge=0, le=100, description="standard errors within which sides count as equal: the largest wins"
    )


def sides(params: Params, encoder: Model) -> list[int]:
    """The sides within the budget, ascending; the encoder's own is always one."""
    own = encoder.config.side
    tried = {criterion.round_side(scale * own, encoder) for scale in params.scales}
    return sorted(side for side in tried | {own} if side == own or (side / own) ** 2 <= params.cost)


def see(
    encoder: Model,
    pixels: arrays.Reader,
    sample: criterion.Sample,
    tried: list[int],
    settings: criterion.CriterionSettings,
    taken: int,
) -> dict[int, Stored]:
    """For each side, the outputs of the encoder's last blocks for the views of the sample."""
    seen, unreduced = {}, encoder.without_reduction(blocks_for(encoder, taken))
    for side in tried:
        wide = unreduced.at_side(side, False).to(device.best())
        views = criterion.embed_views(wide, pixels, sample, settings).stacked()
        seen[side] = Stored(views.astype(np.float16), facts_of(wide), "resolution")
    return seen


def judge(encoder: Model, seen: dict[int, Stored], sample: criterion.Sample) -> dict[int, np.ndarray]:
    """For each side, the share of each image's two pairs of views in which one finds the other."""
    judged = {}
    for side, stored in seen.items():
        views = stored.embed(encoder.at_side(side, False), np.arange(len(sample.rows)))
        pairs = criterion.Embedded.of(views).pairs
        judged[side] = np.mean([criterion.recall(first, second, sample) for first, second in pairs], 0)
    return judged


def largest_of_the_best(judged: dict[int, np.ndarray], sample: criterion.Sample, errors: float) -> int:
    """The largest of the sides that are as good as the best within `errors` standard errors: it sees the most."""
    best = max(judged, key=lambda side: criterion.mean_over_tasks(judged[side], sample))

    def is_near(side: int) -> bool:
        difference = judged[best] - judged[side]
        return criterion.mean_over_tasks(difference, sample) <= errors * criterion.noise(difference, sample)

    return max(side for side in judged if side == best or is_near(side))


def main(
    images: Path,
    encoder: Path,
    output: Path,
    output_views: Path,
    *,
    params: Params,
    settings: criterion.CriterionSettings,
    reference: criterion.Reference,
    taken: int,
    lists: Lists,
    seed: int,
) -> str:
    model, tasks = load(encoder), list(lists.tasks)
    own, tried = model.config.side, sides(params, model)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    sample = criterion.draw_clear(collection, model.to(device.best()), pixels, settings, seed)
    # Without a task that can be judged there is no measure.
    seen, judged = {}, {own: np.full(len(sample.rows), np.nan)}
    if len(sample.rows):
        seen = see(model, pixels, sample, tried, settings, taken)
        judged = judge(model, seen, sample)
    side = largest_of_the_best(judged, sample, params.errors) if len(judged) > 1 else own
    parts = sample.parts()
    rows = [["side", "cost", "recall", *parts, "chosen"]]
    for one, values in judged.items():
        shares = [criterion.mean_over_tasks(values, sample), *(values[own].mean() for own in parts.values())]
        row = [one, f"{(one / own) ** 2:g}", *("" if np.isnan(share) else f"{share:.6g}" for share in shares)]
        rows.append([*row, int(one == side)])
    chosen, looks = model.at_side(side, model.config.mirrored), None
    if seen:
        settings_of = *device.inference(pixels.shape[1]), "reference"
        looks = criterion.embed_carefully(chosen, pixels, sample.rows, reference, *settings_of)
    with outputs.folder(output) as folder, outputs.folder(output_views) as views:
        save(chosen.cpu(), folder)
        write_csv(views / "recall.csv", rows)
        Seen(sample, {one: stored for one, stored in seen.items() if one in (own, side)}, looks).write(views)
    return f"side {side} px, chosen from {', '.join(map(str, judged))} px"


if __name__ == "__main__":
    command.run(main, Params, settings="choice.criterion", reference="choice.reference", taken="choice.blocks")
