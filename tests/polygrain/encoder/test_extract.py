import numpy as np
import pytest
import torch
from PIL import Image

from polygrain.compute.blocks import blocks
from polygrain.encoder.extract import embed, embed_shares, whole_batches
from polygrain.encoder.model import Model, load
from polygrain.store import arrays
from polygrain.store.coded import Coding
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


def test_embed__no_pass_is_larger_than_suits_the_machine(world, monkeypatch):
    (model, pixels), rows, sizes = world, np.arange(7), []

    def compute(images):
        sizes.append(len(images))
        return model(images)

    expected = embed(model, pixels, rows, 7, "float32", "x")
    monkeypatch.setenv("POLYGRAIN_BATCH", "2")
    found = embed(model, pixels, rows, 5, "float32", "x", compute)
    assert max(sizes) == 2
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_embed__two_passes_where_one_does_not_fit(world):
    sizes = []

    def compute(images):
        sizes.append(len(images))
        if len(images) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return model(images)

    (model, pixels), rows = world, np.arange(7)
    halves = embed(model, pixels, rows, 5, "float32", "x", compute)
    assert sizes == [5, 3, 2, 2]
    np.testing.assert_allclose(halves, embed(model, pixels, rows, 7, "float32", "x"), atol=1e-6)
    with pytest.raises(torch.OutOfMemoryError):
        embed(model, pixels, np.arange(8), 8, "float32", "x", compute)


def test_embed__whole_images_of_several_shapes_in_the_order_of_rows(tmp_path):
    shapes, rng = [(32, 32), (32, 48), (64, 32), (32, 96)], np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*shapes[i % 4], 3), dtype=np.uint8) for i in range(13)]
    with arrays.create(tmp_path / "pixels.zarr", (96, 96, 3), "uint8", coding=Coding("raw", side=32)) as writer:
        writer.append(pictures)
    pixels, encoder = arrays.open(tmp_path / "pixels.zarr"), load(write_encoder(tmp_path / "encoder"))
    whole = Model(encoder.config.model_copy(update={"shape": "whole", "size": 28, "scaled": 32}))
    whole.load_state_dict(encoder.state_dict())
    rows = rng.permutation(13)
    expected = [whole(whole.transform(Image.fromarray(pictures[row]))[None])[0] for row in rows]
    for batch in (1, 3, 20):
        np.testing.assert_allclose(embed(whole, pixels, rows, batch, "float32", "x"), torch.stack(expected), atol=2e-6)
    squares = encoder(torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(embed(encoder, pixels, rows, 4, "float32", "x"), squares, atol=1e-6)
