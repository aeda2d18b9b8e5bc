"""Average precision against a slow twin by its definition, and cases that one can count by hand."""

import numpy as np
import pytest

from polygrain.mpcl.detection.precision import average_precision


def plain_overlap(a, b, is_crowd):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (area[0] if is_crowd else area[0] + area[1] - width * height)


def plain_precision(found, true, label, level):
    """One box after another, the highest score first over all images; then each recall by looking at every cut."""
    rows = [(score, i, j) for i, one in enumerate(found) for j, score in enumerate(one["scores"])]
    rows = sorted((row for row in rows if found[row[1]]["labels"][row[2]] == label), key=lambda row: -row[0])
    there = sum(int(((one["labels"] == label) & ~one["ignored"]).sum()) for one in true)
    taken, right = set(), []
    for _, i, j in rows:
        best, place = -1.0, None
        is_near_ignored = False
        for k, box in enumerate(true[i]["boxes"]):
            if true[i]["labels"][k] != label:
                continue
            ignored = bool(true[i]["ignored"][k])
            value = plain_overlap(found[i]["boxes"][j], box, ignored)
            if ignored:
                is_near_ignored |= value >= level
            elif (i, k) not in taken and value >= level and value > best:
                best, place = value, (i, k)
        if place:
            taken.add(place)
            right.append(1)
        elif not is_near_ignored:
            right.append(0)
    cuts = [(sum(right[: n + 1]) / there, sum(right[: n + 1]) / (n + 1)) for n in range(len(right))]
    reached = [[p for r, p in cuts if r >= recall] for recall in np.linspace(0, 1, 101)]
    return sum(max(values, default=0.0) for values in reached) / 101


def draw(rng, count, labels=2):
    corners = rng.uniform(0, 20, (count, 2))
    return np.hstack([corners, corners + rng.uniform(5, 20, (count, 2))]), rng.integers(1, labels + 1, count)


@pytest.mark.parametrize("seed", range(8))
def test_average_precision__is_the_slow_one(seed):
    rng, found, true = np.random.default_rng(seed), [], []
    for _ in range(6):
        boxes, labels = draw(rng, int(rng.integers(0, 6)))
        true.append({"boxes": boxes, "labels": labels, "ignored": rng.random(len(boxes)) < 0.2})
        other, others = draw(rng, int(rng.integers(0, 4)))
        near = np.vstack([boxes + rng.normal(0, 1, boxes.shape), other])
        found.append({"boxes": near, "labels": np.append(labels, others), "scores": rng.permutation(len(near)) / 7})
        found[-1]["scores"] = rng.random(len(near))
    classes = sorted({label for one in true for label in one["labels"][~one["ignored"]]})
    slow = [
        np.mean([plain_precision(found, true, label, level) for label in classes])
        for level in np.linspace(0.5, 0.95, 10)
    ]
    ours = average_precision(found, true)
    assert ours == pytest.approx({"AP": np.mean(slow), "AP50": slow[0], "AP75": slow[5]}, abs=1e-9)
    assert 0 < ours["AP50"] < 1
