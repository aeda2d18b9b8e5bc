"""The page of one study of visual analogies, which opens offline, and its numbers for `dvc metrics`.

Reads   tll_pairs/<study>, tll_adaptation of every study
Writes  index.html    curves, tables, training, queries before and after, extractors beside the published ones
        table.md      the results table
        metrics.json  {row: {recall_at_<k>, deviation_at_1, error_at_1, best_recall_at_1}} in percent
"""

from pathlib import Path

import numpy as np

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

QUERIES = 4  # gains in the gallery, and as many losses
THUMBNAIL = 96  # largest side of a picture, px


def read_pairs(folder: Path) -> dict[str, list]:
    """The columns of the table of pairs, in a form that can be shown."""
    columns = read_parquet(folder / "pairs.parquet").to_pydict()
    return {name: [visible(entry) for entry in columns[name]] for name in ("left", "right")}


def query_entries(folder: Path, adaptation: Path, study: results.Study, before: str, after: str) -> list[dict]:
    """Left images with the right images that two rows find for them, beside the right answer."""
    pixels = {side: arrays.open(folder / side / "pixels.zarr") for side in ("left", "right")}
    pairs = read_pairs(folder)
    table = read_parquet(adaptation / "nearest.parquet").to_pylist()
    nearest = {(entry["row"], entry["pair"]): entry["nearest"] for entry in table}

    def picture(side: str, pair: int) -> str:
        return pictures.pictured(pixels[side][np.array([pair])][0], THUMBNAIL)

    def hits(row: str, pair: int) -> list[dict]:
        return [
            {"picture": picture("right", hit), "name": pairs["right"][hit], "is_right": hit == pair}
            for hit in nearest[row, pair]
        ]

    return [
        {
            "reason": reason,
            "name": pairs["left"][pair],
            "left": picture("left", pair),
            "right": picture("right", pair),
            "lists": [
                {"title": contents.title_of(row), "rank": study.ranks[row][0][pair], "found": hits(row, pair)}
                for row in (before, after)
            ],
        }
        for reason, pair in contents.queries(study, before, after, QUERIES)
    ]


def study_line(name: str, folder: Path, extractor: str) -> dict:
    """A study's line of the table over extractors, by the name that the graph, and the paper's table, has for it."""
    study = results.read(folder)
    spreads = {row: study.spread(row, 1) for row in study.rows}
    return {"study": name, "extractor": extractor, "summary": read_json(folder / "summary.json"), "spreads": spreads}


def metrics(study: results.Study) -> dict[str, dict[str, float]]:
    """The numbers that `dvc metrics` follows."""
    content = {}
    for row in study.rows:
        numbers = {f"recall_at_{k}": spread.mean for k in contents.SHOWN_KS if (spread := study.spread(row, k))}
        first, best = study.spread(row, 1), study.spread(row, 1, "best")
        numbers |= {"deviation_at_1": first.deviation, "error_at_1": first.error}
        numbers |= {"best_recall_at_1_chosen_on_test": best.mean} if best else {}
        # One run has no deviation, and JSON no NaN.
        content[row] = {name: round(value, 4) for name, value in numbers.items() if value == value}
    return content


def main(pairs: Path, adaptation: Path, output: Path, *, study: str, lists: Lists) -> str:
    comparison = results.read(adaptation / study)
    after = comparison.rows[-1]
    lines = [study_line(name, adaptation / name, item.extractor) for name, item in lists.tll.items()]
    of_paper = [line for line in lines if line["summary"]["pairs"] == published.PAIRS and line["spreads"].get(after)]
    measured = {line["extractor"]: line["spreads"][after].mean for line in of_paper}
    content = {
        "study": comparison,
        "name": study,
        "summary": read_json(adaptation / study / "summary.json"),
        "rejected": len(read_csv(pairs / "rejected.csv")),
        "ks": [k for k in contents.SHOWN_KS if comparison.spread(after, k)],
        "after": after,
        "gains": {row: comparison.gain(row, after) for row in comparison.rows[:-1]},
        "titles": {row: contents.title_of(row) for row in comparison.rows},
        "charts": contents.charts(comparison),
        "queries": query_entries(pairs, adaptation / study, comparison, "pca", after),
        "studies": lines,
        "published": {row["name"]: row for row in published.rows()},
        "published_pairs": published.PAIRS,
        "by_learning": published.by_learning(measured),
        "scores": published.SCORES,
        "factors": contents.factors(comparison),
    }
    with outputs.folder(output) as folder:
        page.write(folder, "tll/report/tll", content, metrics(comparison))
    gain = content["gains"]["pca"]
    return f"{comparison.spread(after, 1).mean:.1f} % aR@1, {page.signed(gain.difference)} over PCA, index.html written"


if __name__ == "__main__":
    command.run(main, None)
