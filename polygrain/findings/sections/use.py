"""The first screen: the model to use, how good it is, and commands that can be copied whole."""

import os
from pathlib import Path

from polygrain.findings import collection, paired, scores, wording
from polygrain.findings.chosen import ENCODER
from polygrain.findings.outcome import Content, Outcome
from polygrain.report.rows import row_of


def content(found: Outcome) -> Content:
    """Images are named by their table in data/, not by their folder, which is another one on another machine."""
    advice = found.advice
    ends = [value for row in advice.rows for value in (row.encoder, row.recommended)]
    words, _, time = found.params.better.rpartition(", ")
    command, time = (words, time) if words else (time, "")
    if command.startswith("--"):  # of a profile of before
        command = f"polygrain new NAME --images IMAGES {command}"
    first = Path(f"data/gallery/{next(iter(found.lists.tasks))}/embeddings.parquet").absolute()
    is_chosen = advice.row.startswith(scores.RECOMMENDED)
    return {
        "advice": advice,
        "leading": found.leading,
        "steps": collection.steps(found.leading, advice.row),
        "paired": paired_with_encoder(found),
        "used": row_of(advice.row.removesuffix(collection.SMOOTHED)).title.lower(),
        "searched": os.path.relpath(first, found.lists.root) if is_chosen else None,
        "better": found.params.better and {"command": command, "time": time},
        "place": wording.placement([*ends, advice.before, advice.after]),
    }


def paired_with_encoder(found: Outcome) -> dict[str, paired.Paired]:
    """The test of the recommended row against the encoder, as one of all rows that the labels could recommend."""
    row, plain = found.advice.row, [ENCODER, scores.RECOMMENDED, scores.WITHOUT_TRAINING]
    names = [ENCODER, row, *plain, *(name + collection.SMOOTHED for name in plain if found.leads)]
    files = [found.sides(name)[1][1] for name in dict.fromkeys(names)]
    if row == ENCODER or not all(file.exists() for file in files[:2]):
        return {}
    before, after, *others = [scores.read_queries(file) for file in files if file.exists()]
    return paired.compare(before, after, others)
