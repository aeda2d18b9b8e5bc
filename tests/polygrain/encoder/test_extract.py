import numpy as np
import pytest
import torch

from polygrain.compute.blocks import blocks
from polygrain.encoder.extract import embed, embed_shares, extract, whole_batches
from polygrain.encoder.model import load
from polygrain.store import arrays
from tests.helpers.small import write_encoder, write_images


@pytest.fixture
def world(tmp_path):
    images = write_images(tmp_path / "images")
    return load(write_encoder(tmp_path / "encoder")), arrays.open(images / "dots" / "pixels.zarr")


def test_embed__keeps_the_order_of_rows_whatever_the_batch(world):
    model, pixels = world
    rows = np.array([5, 0, 31, 5])
    expected = model(torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2)).numpy()
    for batch in (1, 3, 10):
        np.testing.assert_allclose(embed(model, pixels, rows, batch, "float32", "x"), expected, atol=1e-6)
    np.testing.assert_allclose(embed_shares(model, pixels, rows, 3, "float32", "x")[:], expected, atol=1e-6)
    assert embed(model, pixels, rows[:0], 4, "float32", "x").shape == (0, 24)


@pytest.mark.parametrize("n", [0, 1, 9, 10, 41])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_whole_batches__are_those_of_one_process(n, world, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    parts = []
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        parts += [range(n)[part] for part in blocks(whole_batches(n, 4), 4)]
    assert parts == [range(n)[part] for part in blocks(n, 4)]


def test_extract__no_pass_is_larger_than_suits_the_machine(world, monkeypatch):
    (model, pixels), rows, sizes = world, np.arange(7), []

    def compute(images):
        sizes.append(len(images))
        return model(images)

    expected = embed(model, pixels, rows, 7, "float32", "x")
    monkeypatch.setenv("POLYGRAIN_BATCH", "2")
    found = np.concatenate([*extract(model, pixels, rows, 5, "float32", "x", compute)])
    assert max(sizes) == 2
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_extract__two_passes_where_one_does_not_fit(world):
    sizes = []

    def compute(images):
        sizes.append(len(images))
        if len(images) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return model(images)

    (model, pixels), rows = world, np.arange(7)
    halves = np.concatenate([*extract(model, pixels, rows, 5, "float32", "x", compute)])
    assert sizes == [5, 3, 2, 2]
    np.testing.assert_allclose(halves, embed(model, pixels, rows, 7, "float32", "x"), atol=1e-6)
    with pytest.raises(torch.OutOfMemoryError):
        list(extract(model, pixels, np.arange(8), 8, "float32", "x", compute))
