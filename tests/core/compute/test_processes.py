import csv

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages.core.compute import processes
from stages.core.store import arrays
from tests.helpers import shared_work
from tests.helpers.small import write_encoder, write_images
from tests.helpers.torchrun import torchrun


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_share__one_process_takes_all():
    assert processes.share(7) == slice(0, 7) and processes.count() == 1 and processes.rank() == 0


def test_share__parts_follow_each_other_and_miss_nothing(monkeypatch):
    for world in (2, 3, 5):
        monkeypatch.setenv("WORLD_SIZE", str(world))
        for n in (0, 1, 4, 17):
            rows = []
            for rank in range(world):
                monkeypatch.setenv("RANK", str(rank))
                rows += range(n)[processes.share(n)]
            assert rows == list(range(n))


def test_gather__of_one_process_is_the_part_itself():
    part = torch.arange(3)
    assert processes.gather(part) is part
    assert processes.gather_array(part.numpy()).tolist() == [0, 1, 2]
    processes.add_up([part])
    processes.wait()
    assert part.tolist() == [0, 1, 2]


@pytest.mark.slow
def test_stages__two_processes_give_the_results_of_one(tmp_path, monkeypatch):
    images = write_images(tmp_path / "images", classes=8, per_class=80)
    encoder = write_encoder(tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    alone, together = tmp_path / "alone", tmp_path / "together"
    for count, output in ((1, alone), (2, together)):
        torchrun(count, "-m", "tests.helpers.shared_work", images, encoder, output)
    assert shared_work.TRAINING.epochs == 2
    for stage in (
        "features",
        "seeds",
        "pseudo_labels",
        "knn_graph",
        "indexed",
        "sampled/seeds",
        "sampled/k8/labels.zarr",
    ):
        assert contents(alone / stage) == contents(together / stage), stage
    # Each process sums the rows of its part.
    centres = [arrays.open(folder / "sampled/k8/centroids.zarr")[:] for folder in (alone, together)]
    np.testing.assert_allclose(*centres, atol=1e-6)
    # Sums over half batches round differently from sums over whole ones.
    assert shared_work.FUSION.augmentation.epochs == 2
    trained = [f"adaptor/{name}" for name in ("k4", "k8")] + [f"fusion/{name}" for name in shared_work.FUSIONS]
    for name in trained:
        losses = [
            [float(row["loss"]) for row in csv.DictReader((folder / name / "history.csv").read_text().splitlines())]
            for folder in (alone, together)
        ]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5, err_msg=name)
        # Adam divides by the size of a gradient, which makes much of a little where that is small; LARS does not.
        bound = 1e-5 if name in ("fusion/augmentation", "fusion/neighbour") else 1e-3
        weights = [load_file(folder / name / "weights.safetensors") for folder in (alone, together)]
        for part, tensor in weights[0].items():
            assert (tensor - weights[1][part]).abs().max() < bound, f"{name} {part}"
    assert not list(tmp_path.rglob("*.partial"))
