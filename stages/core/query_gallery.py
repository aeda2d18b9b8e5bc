"""Retrieval scores of a test set: every image queries all others, or where the set says so queries ask a gallery."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, Int64

from stages.core.measures import measure
from stages.core.metrics import query_metrics
from stages.core.ranking import rank
from stages.core.vectors import CELLS

NAMES = ("map_at_r", "r_precision", "recall_at_1")


def score(
    embeddings: Float32[np.ndarray, "image dim"],
    labels: Int64[np.ndarray, " image"],
    splits: np.ndarray,
    recall_at: Sequence[int] = (),
) -> dict[str, float]:
    """Mean map_at_r, r_precision, recall_at_1 and `recall_at_<k>` as fractions, by cosine similarity.

    `splits` holds "query" and "gallery" where these are apart (In-shop); queries without a relevant image do not
    count. ValueError where none is left.
    """
    deepest = max(recall_at, default=0)
    is_query, is_gallery = splits == "query", splits == "gallery"
    if is_query.any():
        values, hits = ask(embeddings[is_query], labels[is_query], embeddings[is_gallery], labels[is_gallery], deepest)
    else:
        found = query_metrics(embeddings, labels, min(deepest, len(labels) - 1))
        values = {name: getattr(found, name) for name in NAMES}
        hits = labels[found.nearest] == labels[:, None]
    counted = ~np.isnan(values["map_at_r"])
    if not counted.any():
        raise ValueError(f"none of {len(counted)} queries has another image of its class to be found")
    means = {name: float(values[name][counted].mean()) for name in NAMES}
    return means | {f"recall_at_{k}": float(hits[counted, :k].any(1).mean()) for k in recall_at}


def ask(
    queries: np.ndarray, query_labels: np.ndarray, gallery: np.ndarray, labels: np.ndarray, deepest: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores of each query against a gallery that it is not part of, and which of its nearest are of its class."""
    if not len(gallery):
        raise ValueError("there are queries and no gallery: the table's split must name both")
    asked, offered = (torch.nn.functional.normalize(torch.from_numpy(x).float(), dim=1) for x in (queries, gallery))
    relevant = count(query_labels, labels)
    # `rank` looks one place beyond the depth it is asked for, so a column that nobody wants goes last.
    depth = min(max(int(relevant.max()), deepest, 1), len(gallery))
    numbers, scores, hits = torch.from_numpy(labels), [], []
    for start in range(0, len(asked), max(1, CELLS // len(gallery))):
        part = slice(start, start + max(1, CELLS // len(gallery)))
        similarities = torch.nn.functional.pad(asked[part] @ offered.T, (0, 1), value=-torch.inf)
        met = numbers[rank(similarities, depth)] == torch.from_numpy(query_labels[part])[:, None]
        scores.append(measure(met, relevant[part]))
        hits.append(met[:, :deepest])
    r_precision, map_at_r, recall_at_1 = torch.cat(scores, 1).numpy()
    values = {"map_at_r": map_at_r, "r_precision": r_precision, "recall_at_1": recall_at_1}
    return values, torch.cat(hits).numpy()


def count(query_labels: np.ndarray, labels: np.ndarray) -> torch.Tensor:
    """How many gallery images are of each query's class."""
    known, counts = np.unique(labels, return_counts=True)
    places = np.searchsorted(known, query_labels).clip(max=len(known) - 1)
    return torch.from_numpy(np.where(known[places] == query_labels, counts[places], 0))
