import json

import numpy as np
import pytest
import torch

from polygrain.encoder.adaptors import fuse
from polygrain.encoder.config import AdaptorConfig
from polygrain.encoder.model import load
from polygrain.store import arrays
from polygrain.store.image_table import open_pixels, read_tables
from stages.refreshed_graph import Params, main
from tests.helpers.small import TASKS, adapted, lists, write_encoder, write_images, write_model


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Images, two adaptor sets with all weights drawn, and a graph by chance."""
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    for seed, name in enumerate(("k4", "k8")):
        write_model(adapted(encoder, [name], seed, 0.3), folder / "adaptor" / name)
    (folder / "graph").mkdir()
    rng = np.random.default_rng(0)
    arrays.write(folder / "graph/neighbours.zarr", np.stack([rng.permutation(48)[:5] for _ in range(48)]))
    return images, folder / "adaptor", folder / "graph"


def run(world, output):
    main(*world, output, params=Params(precision="float32"), lists=lists())
    return arrays.open(output / "neighbours.zarr")[:], json.loads((output / "summary.json").read_text())


def test_main__equals_sorting_all_cosines_by_the_mean_of_the_sets(world, tmp_path):
    graph, facts = run(world, tmp_path / "out")
    sets, rows = [load(world[1] / name) for name in ("k4", "k8")], read_tables(world[0], list(TASKS)).train
    images = torch.from_numpy(open_pixels(world[0], list(TASKS))[rows]).permute(0, 3, 1, 2).float() / 255
    # What the mean of the sets adds behind each block, written out.
    average = sets[0].without_adaptors()
    layers = fuse([model.adaptors for model in sets], "average", torch.Generator(), 0.0)
    for layer, own in zip(layers, zip(*(model.adaptors for model in sets), strict=True), strict=True):
        layer.forward = lambda x, own=own: sum(adaptor(x) for adaptor in own) / len(own)
    average.insert(layers, AdaptorConfig(names=["k4", "k8"], width=layers[0].width, fusion="average"))
    vectors = average.eval()(images).detach().numpy()
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    np.testing.assert_array_equal(graph, np.argsort(-cosines, 1, kind="stable")[:, :5])
    before = arrays.open(world[2] / "neighbours.zarr")[:]
    fresh = [len({*map(int, now)} - {*map(int, then)}) / 5 for then, now in zip(before, graph, strict=True)]
    assert facts == {
        "index": "exact",
        "wanted": 1.0,
        "recall": 1.0,
        "turnover": pytest.approx(np.mean(fresh), abs=1e-6),
    }


def test_main__takes_the_kind_of_index_of_the_graph_before(world, tmp_path):
    before = tmp_path / "graph"
    before.mkdir()
    arrays.write(before / "neighbours.zarr", arrays.open(world[2] / "neighbours.zarr")[:])
    (before / "summary.json").write_text('{"index": "ivf", "wanted": 0.9}')
    graph, facts = run((*world[:2], before), tmp_path / "out")
    assert graph.shape == (48, 5) and facts["index"] == "ivf" and facts["recall"] >= facts["wanted"] == 0.9
