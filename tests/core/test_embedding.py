import numpy as np
import torch
from safetensors.numpy import load_file

from stages.core import store
from stages.core.embedding import embed, look, write, write_pictures
from stages.core.maps import Maps
from tests.core.test_embedder import MAPS, make


class Given(Maps):
    """Maps without a backbone."""

    def __init__(self):
        pass

    def plain(self, rows):
        for block in np.array_split(rows, 3):
            yield MAPS[torch.from_numpy(block)]


ROWS = np.arange(12)


def test_embed__unit_vectors_and_attributes_in_the_order_of_the_rows():
    embedder = make()
    vectors, attributes = embed(embedder, Given(), ROWS)
    pooled = embedder(MAPS)
    expected = torch.nn.functional.normalize(pooled.vector, dim=1).detach().numpy()
    assert np.allclose(vectors, expected, atol=1e-6) and np.allclose(attributes, pooled.attributes.detach(), atol=1e-6)
    assert embed(make("gap", {}), Given(), ROWS)[1] is None


def test_look__weights_and_the_prototype_nearest_to_each_place():
    embedder = make()
    weights, nearest = look(embedder, Given(), ROWS)
    assert np.allclose(weights.sum((1, 2)), 1, atol=1e-5) and nearest.shape == (12, 3, 3)
    space = torch.nn.functional.conv2d(embedder.layer(MAPS), embedder.head.project.weight[:, :, None, None]).detach()
    unit = space / space.norm(dim=1, keepdim=True).clamp_min(1)
    centres = embedder.head.pool.selection.prototypes.detach()
    centres = centres / centres.norm(dim=1, keepdim=True).clamp_min(1)
    for image in range(12):
        place = (unit[image, :, 1, 2] - centres).norm(dim=1)
        assert float(place[nearest[image, 1, 2]]) <= float(place.min()) + 1e-4


def test_look__a_plain_mean_looks_everywhere_alike():
    weights, nearest = look(make("gap", {}), Given(), ROWS)
    assert np.allclose(weights, 1 / 9) and nearest is None


def test_write__what_was_trained_and_what_it_says(tmp_path):
    embedder = make()
    write(tmp_path / "0-0", embedder, Given(), ROWS)
    assert set(load_file(tmp_path / "0-0/weights.safetensors")) == set(embedder.state_dict())
    assert store.open(tmp_path / "0-0/embeddings.zarr").shape == (12, 8)
    assert store.open(tmp_path / "0-0/attributes.zarr").shape == (12, 5)


def test_write_pictures__shows_the_first_image_of_classes_spread_over_all(tmp_path):
    labels = np.repeat(np.arange(6), 2)
    write_pictures(tmp_path, make(), Given(), ROWS, labels, 3)
    found = load_file(tmp_path / "pictures.safetensors")
    assert found["rows"].tolist() == [0, 4, 10] and found["weights"].shape == (3, 3, 3)
