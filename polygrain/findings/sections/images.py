"""The images of each task, their clusters, and the files that were left out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polygrain.findings.outcome import Content, Outcome, TaskImages
from polygrain.store import arrays

COPIES = "duplicate of ", "same picture as "  # begin the reason why a copy was left out
REASONS = 20


def content(found: Outcome) -> Content:
    tasks = found.tasks
    return {
        "counts": [task_counts(task, found.table.queries) for task in tasks],
        "has_labels": any(task.is_labelled for task in tasks),
        "clusters": cluster_counts(found.places.pseudo_labels, found.lists.clusters(1), tasks),
        "rejected": left_out(tasks),
    }


def task_counts(task: TaskImages, asked_of: dict[str, int]) -> dict[str, Any]:
    """The counts of a task and of the images left out; None where a count has no meaning."""
    parts = (task.is_train, task.is_test)
    train_classes, test_classes = (len(set(task.labels[part & (task.labels >= 0)])) for part in parts)
    test = int(task.is_test.sum())
    asked = asked_of.get(task.name, 0) if task.is_labelled else None
    duplicates = sum(reason.startswith(COPIES) for _, reason in task.rejected)
    return {
        "task": task.name,
        "images": len(task.labels),
        "train": int(task.is_train.sum()),
        "test": test,
        "drawn": int(task.is_query.sum()) if task.is_labelled else None,
        "classes": len(set(task.labels[task.labels >= 0])) if task.is_labelled else None,
        "train_classes": train_classes if task.is_labelled else None,
        "test_classes": test_classes if task.is_labelled else None,
        "queries": asked,
        "left_out": None if asked is None else test - asked,
        "duplicates": duplicates,
        "rejected": len(task.rejected) - duplicates,
    }


def left_out(tasks: Iterable[TaskImages]) -> list[dict[str, Any]]:
    """Per task and reason the files that were left out; the most frequent `REASONS` first."""
    files: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        for path, reason in task.rejected:
            kind = next((copy + "another" for copy in COPIES if reason.startswith(copy)), reason)
            files.setdefault((task.name, kind), []).append(path)
    rows = [{"task": task, "reason": reason, "files": of} for (task, reason), of in files.items()]
    return sorted(rows, key=lambda row: -len(row["files"]))[:REASONS]


def cluster_counts(
    pseudo_labels: Path, granularities: Iterable[str], tasks: Sequence[TaskImages]
) -> list[dict[str, Any]]:
    """Per granularity the size of its clusters, and the number of clusters with images of several tasks."""
    owners = np.repeat(np.arange(len(tasks)), [int(task.is_train.sum()) for task in tasks])
    rows = []
    for name in granularities:
        labels = arrays.open(pseudo_labels / name / "labels.zarr")[:]
        if len(labels) != len(owners):
            raise ValueError(
                f"{pseudo_labels / name} labels {len(labels)} images, the tables hold {len(owners)}; run again"
            )
        sizes = np.bincount(labels)
        k = len(sizes)
        tasks_of = Counter(cluster for cluster, _ in set(zip(labels.tolist(), owners.tolist(), strict=True)))
        mixed = sum(count > 1 for count in tasks_of.values())
        row = {"name": name, "clusters": k, "mean": len(labels) / k, "median": float(np.median(sizes))}
        rows.append(row | {"smallest": int(sizes.min()), "largest": int(sizes.max()), "mixed": mixed})
    return rows
