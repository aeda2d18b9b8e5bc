"""The page of one study of visual analogies, which opens offline, and its numbers for `dvc metrics`.

Reads   tll_pairs/<study>, tll_adaptation of every study
Writes  index.html    curves, tables, training, queries before and after, extractors beside the published ones
        table.md      the results table
        metrics.json  {row: {recall_at_<k>, deviation_at_1, error_at_1, best_recall_at_1}} in percent
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.report import page, pictures
from polygrain.report.visible import visible
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.reading import read_json
from polygrain.store.tables import read_csv, read_parquet
from polygrain.tll.adaptation import results
from polygrain.tll.extractors import published
from polygrain.tll.report import contents


class Params(schema.Section):
    queries: int = Field(ge=0, le=20, description="gains, and losses, in the gallery")
    thumbnail: int = Field(ge=16, le=512, description="largest side of a picture, in pixels")


def read_names(pairs: Path) -> dict[str, list]:
    """The columns of the table of pairs, names as they can be shown."""
    columns = read_parquet(pairs / "pairs.parquet").to_pydict()
    return columns | {name: [visible(entry) for entry in columns[name]] for name in ("left", "right", "group")}


def shown_queries(
    pairs: Path, adaptation: Path, study: results.Comparison, before: str, after: str, params: Params
) -> list[dict]:
    """Left images with the right images found for them under two rows, the truth beside them."""
    pixels = {side: arrays.open(pairs / side / "pixels.zarr") for side in ("left", "right")}
    names = read_names(pairs)
    table = read_parquet(adaptation / "nearest.parquet").to_pydict()
    nearest = {
        (row, pair): found for row, pair, found in zip(table["row"], table["pair"], table["nearest"], strict=True)
    }

    def picture(side: str, row: int) -> str:
        (image,) = pixels[side][np.array([row])]
        return pictures.pictured(image, params.thumbnail)

    entries = []
    for reason, pair in contents.queries(study, before, after, params.queries):
        lists = [
            {
                "title": contents.title_of(row),
                "rank": study.ranks[row][0][pair],
                "found": [
                    {
                        "picture": picture("right", other),
                        "name": names["right"][other],
                        "is_right": other == pair,
                    }
                    for other in nearest[row, pair]
                ],
            }
            for row in (before, after)
        ]
        entry = {
            "reason": reason,
            "name": names["left"][pair],
            "group": names["group"][pair],
            "lists": lists,
        }
        entries.append(entry | {"left": picture("left", pair), "right": picture("right", pair)})
    return entries


def studies(adaptation: Path, names: list[str]) -> list[dict]:
    """One line of the table over extractors for each study of params.yaml."""
    lines = []
    for name in names:
        study, summary = results.read(adaptation / name), read_json(adaptation / name / "summary.json")
        lines.append({"study": name, "summary": summary, "spreads": {row: study.spread(row, 1) for row in study.rows}})
    return lines


def metrics(study: results.Comparison) -> dict[str, dict[str, float]]:
    """The numbers that `dvc metrics` follows."""
    found = {}
    for row in study.rows:
        numbers = {f"recall_at_{k}": spread.mean for k in contents.SHOWN_KS if (spread := study.spread(row, k))}
        first, best = study.spread(row, 1), study.spread(row, 1, "best")
        numbers |= {"deviation_at_1": first.deviation, "error_at_1": first.error}
        numbers |= {"best_recall_at_1_chosen_on_test": best.mean} if best else {}
        # One run has no deviation, and JSON no NaN.
        found[row] = {name: round(value, 4) for name, value in numbers.items() if value == value}
    return found


def main(pairs: Path, adaptation: Path, output: Path, *, study: str, params: Params, lists: Lists) -> str:
    known, summary = results.read(adaptation / study), read_json(adaptation / study / "summary.json")
    after = known.rows[-1]
    table = read_names(pairs)
    rejected = len(read_csv(pairs / "rejected.csv"))
    content = {
        "study": known,
        "name": study,
        "summary": summary,
        "rejected": rejected,
        "ks": [k for k in contents.SHOWN_KS if known.spread(after, k)],
        "after": after,
        "gains": {row: known.gain(row, after) for row in known.rows[:-1]},
        "titles": {row: contents.title_of(row) for row in known.rows},
        "charts": contents.charts(known),
        "groups": contents.groups(known, table["group"]),
        "queries": shown_queries(pairs, adaptation / study, known, "pca", after, params),
        "studies": studies(adaptation, list(lists.tll)),
        "published": published.rows(),
        "scores": published.SCORES,
        "spreads": published.SPREADS,
    }
    with outputs.folder(output) as folder:
        page.write(folder, "tll/report/tll", content, metrics(known))
    gain = content["gains"]["pca"]
    return f"{known.spread(after, 1).mean:.1f} % aR@1, {page.signed(gain.difference)} over PCA, index.html written"


if __name__ == "__main__":
    command.run(main, Params)
