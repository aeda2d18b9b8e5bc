import csv

import numpy as np
import pytest
from safetensors.torch import load_file

from polygrain.compute import processes
from polygrain.store import arrays
from tests.helpers import shared_work
from tests.helpers.small import write_encoder, write_images
from tests.helpers.torchrun import torchrun


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_share__parts_follow_each_other_and_miss_nothing(monkeypatch):
    for world in (2, 3, 5):
        monkeypatch.setenv("WORLD_SIZE", str(world))
        for n in (0, 1, 4, 17):
            rows = []
            for rank in range(world):
                monkeypatch.setenv("RANK", str(rank))
                rows += range(n)[processes.share(n)]
                assert processes.share(n, world - 1).stop == n and processes.share(n, rank) == processes.share(n)
            assert rows == list(range(n))


def test_require__refuses_fewer_rows_than_processes(monkeypatch):
    processes.require(1, "images")
    monkeypatch.setenv("WORLD_SIZE", "4")
    processes.require(4, "images")
    with pytest.raises(ValueError, match=r"3 images for 4 processes.*start 3 at most"):
        processes.require(3, "images")


EXCHANGES = """
import sys
from pathlib import Path
import numpy as np
import torch
from polygrain.clustering import kmeans
from polygrain.clustering.sampled import assign
from polygrain.clustering.seeding import seed_order
from polygrain.compute import processes
from polygrain.compute.vectors import group_sizes, group_sums
from polygrain.retrieval.approximate import nearest_others
from polygrain.retrieval.neighbours import nearest

n = 300
x = torch.from_numpy(np.random.default_rng(0).normal(size=(n, 16)).astype(np.float32))
groups = torch.arange(n) % 5
rows = torch.tensor([n - 1, 0, 17, 17, 3])
mine = processes.share(n)
here, everything = x[mine], x.numpy()
clusters, seeds = kmeans(here.numpy(), 9, 0), seed_order(here, 40, 0)
assigned = assign(lambda part: (everything[part], everything[part]), n, clusters.centroids, 70)
parts = {
    "take": processes.take(here, rows, n).numpy(),
    "sums": group_sums(here, groups[mine], 5).numpy(),
    "sizes": group_sizes(groups[mine], 5).numpy(),
    "total": np.array(processes.total(len(here))),
    "first": np.frombuffer(processes.from_first(bytes([processes.rank()] * 3)), np.uint8),
    "order": seeds.order,
    "records": seeds.records,
    "labels": processes.gather_array(clusters.labels),
    "centroids": clusters.centroids,
    "inertia": np.array(clusters.inertia),
    "assigned": assigned.labels,
    "assigned_sums": assigned.sums,
    "nearest": nearest(everything, everything, 4, exclude_self=True)[1],
    "ivf": nearest_others(everything, 4, "ivf", 0.9).neighbours,
}
assert processes.gather_bytes(b"x" * processes.rank()) == [b"x" * rank for rank in range(processes.count())]
dealt = list(processes.round_robin(range(7), lambda item: np.full((item, 2), item, np.int16)))
expected = range(7) if processes.rank() == 0 else []
assert [array.tolist() for array in dealt] == [[[item] * 2] * item for item in expected]
with processes.alone():
    assert processes.count() == 1 and processes.total(3) == 3
processes.wait()
np.savez(Path(sys.argv[1]) / f"{processes.count()}-{processes.rank()}.npz", **parts)
"""


@pytest.mark.slow
def test_exchanges__three_processes_find_what_one_finds(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(EXCHANGES)
    for count in (1, 3):
        torchrun(count, program, tmp_path)
    one, *three = (np.load(tmp_path / f"{name}.npz") for name in ("1-0", "3-0", "3-1", "3-2"))
    assert one["total"] == 300
    for values in three:
        for name in one.files:
            np.testing.assert_allclose(values[name], one[name], rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_stages__two_processes_give_the_results_of_one(tmp_path, monkeypatch):
    images = write_images(tmp_path / "images", classes=8, per_class=80)
    encoder = write_encoder(tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    alone, together = tmp_path / "alone", tmp_path / "together"
    for count, output in ((1, alone), (2, together)):
        torchrun(count, "-m", "tests.helpers.shared_work", images, encoder, output)
    assert shared_work.TRAINING.epochs == 2
    for stage in ("features", "seeds", "knn_graph", "indexed", "sampled/seeds"):
        assert contents(alone / stage) == contents(together / stage), stage
    for stage in ("pseudo_labels/k4", "pseudo_labels/k8", "sampled/k8"):
        assert contents(alone / stage / "labels.zarr") == contents(together / stage / "labels.zarr"), stage
        centroids = [arrays.open(folder / stage / "centroids.zarr")[:] for folder in (alone, together)]
        np.testing.assert_allclose(*centroids, atol=1e-6, err_msg=stage)
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
