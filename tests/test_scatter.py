import shutil

import numpy as np

import stages.scatter
from polygrain.fisher import scatter as fisher_scatter
from polygrain.fisher.granularities import read_basis, read_scatters
from polygrain.store import arrays
from polygrain.store.image_table import read_tables
from polygrain.store.joined import Joined
from tests.helpers.small import TASKS, cluster, lists, run_features, write_encoder, write_images


def test_main__is_the_scatter_within_clusters_in_the_axes_of_seeds_block_by_block(tmp_path, monkeypatch):
    images, given = write_images(tmp_path / "images"), lists()
    features, read = run_features(tmp_path / "features", images, write_encoder(tmp_path / "encoder")), []

    class Recorded(Joined):
        def __getitem__(self, part):
            read.append(len(self.rows[part]))
            return super().__getitem__(part)

    monkeypatch.setattr(stages.scatter, "Joined", Recorded), monkeypatch.setattr(fisher_scatter, "BLOCK_VALUES", 300)
    seeds, pseudo_labels, scatter = cluster(tmp_path, images, features, given, 2)
    assert read and max(read) < 48 / 2
    found, basis = read_scatters(scatter, ["k4", "k8"]), read_basis(seeds)
    rows = Joined(features, list(TASKS), 2, read_tables(images, list(TASKS)).train)[:]
    for k, scatter_of in zip((4, 8), found, strict=True):
        labels, expected = arrays.open(pseudo_labels / f"k{k}/labels.zarr")[:], 0.0
        turned = rows.astype(float) @ basis.axes
        for cluster_of in range(k):
            own = turned[labels == cluster_of]
            expected = expected + (own - own.mean(0)).T @ (own - own.mean(0))
        np.testing.assert_allclose(scatter_of.within, expected / (48 - k), atol=1e-6)
        assert scatter_of.degrees == 48 - k and 0 <= scatter_of.shrinkage <= 1


def test_main__of_images_that_are_all_equal_there_is_none(tmp_path):
    nothing = {name: {} for name in ("adaptors", "fusions", "models")}
    images, given = write_images(tmp_path / "images"), lists(granularities={"size4": "pseudo_labels/size4"}, **nothing)
    features = run_features(tmp_path / "features", images, write_encoder(tmp_path / "encoder"))
    for task in TASKS:
        shape = arrays.open(features / task / "features.zarr").shape
        shutil.rmtree(features / task / "features.zarr")
        arrays.write(features / task / "features.zarr", np.ones(shape, np.float32))
    seeds, _, scatter = cluster(tmp_path, images, features, given)
    assert read_basis(seeds) is None and read_scatters(scatter, ["size4"])[0].degrees == 0
