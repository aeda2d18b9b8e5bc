import csv

import numpy as np
import pytest
import torch
from scipy.stats import sem

from polygrain.encoder.model import load
from polygrain.selection.criterion import Sample
from stages import resolution
from tests.helpers.settings import criterion, reference
from tests.helpers.small import TASKS, lists, repeat, write_encoder, write_images


def params(**changes):
    return resolution.Params(**({"scales": [1, 1.5, 2], "cost": 2.25, "errors": 1} | changes))


def run(images, encoder, output, settings=None, **changes):
    values = {"settings": settings or criterion(), "reference": reference(), "taken": 2, "lists": lists()}
    folders = images, encoder, output, output.with_name("views")
    message = resolution.main(*folders, params=params(**changes), seed=0, **values)
    return message, list(csv.DictReader((output.with_name("views") / "recall.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resolution")
    return write_images(folder / "images"), write_encoder(folder / "encoder")


def test_main__hands_out_the_encoder_at_one_of_the_sides(world, tmp_path):
    images, encoder = world
    message, rows = run(images, encoder, tmp_path / "out")
    assert [(row["side"], row["cost"]) for row in rows] == [("32", "1"), ("48", "2.25")]
    (chosen,) = [row for row in rows if row["chosen"] == "1"]
    assert f"{chosen['side']} px" in message and "32, 48" in message
    for row in rows:
        assert float(row["recall"]) == pytest.approx(np.mean([float(row[task]) for task in TASKS]), abs=1e-5)
        assert 0 < float(row["recall"]) <= 1
    before, after = load(encoder), load(tmp_path / "out")
    assert after.config == before.at_side(int(chosen["side"]), False).config
    for name, tensor in before.state_dict().items():
        assert torch.equal(tensor, after.state_dict()[name])


def test_main__other_images_leave_the_model_as_it_was(world, tmp_path):
    """All that starts from the encoder would run again otherwise, for every task."""
    rows, content = [], []
    for images in (world[0], write_images(tmp_path / "images", per_class=9)):
        rows += [run(images, world[1], tmp_path / "out", cost=1)[1]]
        content += [{file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}]
    assert rows[0] != rows[1] and content[0] == content[1]


@pytest.mark.parametrize("case", ["budget", "few images", "images alike", "one side only"])
def test_main__keeps_the_encoders_own_side_where_there_is_nothing_to_choose(world, tmp_path, case, monkeypatch):
    images = world[0]
    if case == "images alike":
        images = write_images(tmp_path / "images")
        for task in TASKS:
            repeat(images, task, 48)
    if case == "one side only":
        monkeypatch.setattr(resolution.Model, "takes_other_sides", False)
    changes = {"cost": 1} if case == "budget" else {}
    settings = criterion(fewest=99) if case == "few images" else None
    message, rows = run(images, world[1], tmp_path / "out", settings, **changes)
    assert "32 px" in message and [row["side"] for row in rows] == ["32"]
    assert (rows[0]["recall"] == "") == ("images" in case)
    weights = "weights.safetensors"
    assert (tmp_path / "out" / weights).read_bytes() == (world[1] / weights).read_bytes()
    assert load(tmp_path / "out").config == load(world[1]).config


def test_main__a_task_that_cannot_tell_leaves_the_side_to_the_others(world, tmp_path):
    images = write_images(tmp_path / "images")
    repeat(images, "dots", 48)
    _, rows = run(images, world[1], tmp_path / "out")
    assert len(rows) == 2 and set(rows[0]) == {"side", "cost", "recall", "bars", "chosen"}


def test_sides__whole_patches_within_the_budget(world):
    encoder = load(world[1])
    assert resolution.sides(params(scales=[0.5, 1.5, 1.52, 2], cost=4), encoder) == [16, 32, 48, 64]
    assert resolution.sides(params(scales=[2], cost=3.9), encoder) == [32]


def plain_rule(judged, tasks, errors):
    """Means and standard errors of each task by scipy, one task after the other."""
    names = sorted(set(tasks))

    def mean(values):
        return np.mean([values[tasks == task].mean() for task in names])

    best = max(judged, key=lambda side: mean(judged[side]))
    near = [best]
    for side, values in judged.items():
        away = judged[best] - values
        error = np.sqrt(sum(sem(away[tasks == task]) ** 2 for task in names)) / len(names)
        if mean(away) <= errors * error:
            near.append(side)
    return max(near)


@pytest.mark.parametrize("errors", [0.0, 1.0, 3.0])
def test_largest_of_the_best__as_the_plain_rule(errors):
    rng, tasks = np.random.default_rng(0), np.repeat(["a", "b", "c"], [40, 10, 25])
    sample, chosen = Sample(np.arange(75), tasks), set()
    for _ in range(20):
        judged = {side: rng.random(75) + 0.05 * rng.normal() for side in (32, 48, 64)}
        side = resolution.largest_of_the_best(judged, sample, errors)
        assert side == plain_rule(judged, tasks, errors)
        chosen.add(side)
    assert len(chosen) > 1 or errors == 3.0
