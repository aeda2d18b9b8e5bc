import dataclasses
import math

import numpy as np
import pytest
import torch
from PIL import Image

from polygrain.encoder.model import Model, load
from polygrain.encoder.views import augment, centre_crop
from polygrain.selection import criterion as module
from polygrain.selection.criterion import Embedded, Sample, draw, neighbours, noise, recall, score, standard_error
from polygrain.store import arrays
from polygrain.store.coded import Coding
from polygrain.store.image_table import open_pixels, read_tables
from tests.helpers.settings import criterion, reference
from tests.helpers.small import CONFIG, TASKS, repeat, write_encoder, write_images
from tests.helpers.whitened import whitened

SIZES = (9, 6, 2)


def sample_of(sizes):
    names = np.array([f"task{i}" for i, size in enumerate(sizes) for _ in range(size)], dtype=object)
    return Sample(np.arange(sum(sizes)), names)


def unit(count, seed, dim=4):
    vectors = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), load(write_encoder(folder / "encoder"))
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    return encoder, collection, pixels


def drawn(world, count=12):
    return draw(world[1], count, 4, 0)


def test_draw__some_training_images_of_each_task_that_has_enough(world):
    collection, few = world[1], drawn(world, 7)
    assert [len(own) for own in few.parts().values()] == [7, 7] and list(few.parts()) == list(TASKS)
    assert len(set(few.rows)) == 14 and collection.is_train[few.rows].all()
    np.testing.assert_array_equal(few.tasks, collection.tasks[few.rows])
    np.testing.assert_array_equal(drawn(world, 7).rows, few.rows)
    assert set(draw(collection, 7, 4, 1).rows) != set(few.rows)
    assert set(few.rows) < set(drawn(world).rows)  # what is watched is part of what is compared
    assert len(draw(collection, 7, 25, 0).rows) == 0


def test_draw_clear__leaves_out_a_task_of_too_few_images_and_one_of_images_all_alike(world, tmp_path):
    encoder, collection, pixels = world
    is_train = collection.is_train & ((collection.tasks != TASKS[0]) | (collection.rows < 5))
    fewer = dataclasses.replace(collection, is_train=is_train)
    assert [len(rows) for rows in draw(fewer, 24, 5, 0).parts().values()] == [5, 24]
    assert list(draw(fewer, 24, 6, 0).parts()) == [TASKS[1]]
    images = write_images(tmp_path / "images")
    repeat(images, TASKS[0], 48)
    pixels = open_pixels(images, list(TASKS))
    assert list(module.draw_clear(collection, encoder, pixels, criterion(), 0).parts()) == [TASKS[1]]
    alike = Sample(np.zeros(13, np.int64), np.array(["dots"] * 13, dtype=object))
    embeddings = module.embed_reference(encoder, pixels, alike, reference())
    assert embeddings.shape == (13, 48) and np.isfinite(embeddings).all() and np.ptp(embeddings, axis=0).max() < 1e-5


def test_recall__by_plain_search():
    first, second, sample = unit(sum(SIZES), 0), unit(sum(SIZES), 0) + 0.8 * unit(sum(SIZES), 1), sample_of(SIZES)
    expected = []
    for i in sample.rows:
        own = [j for j in sample.rows if sample.tasks[j] == sample.tasks[i]]
        there = max(own, key=lambda j: first[i] @ second[j])
        back = max(own, key=lambda j: second[i] @ first[j])
        expected.append((int(there == i) + int(back == i)) / 2)
    assert recall(first, second, sample).tolist() == expected and len(set(expected)) == 3


def test_score__by_plain_search():
    """Also in a task with fewer others than neighbours are asked for."""
    count, sample, asked = sum(SIZES), sample_of(SIZES), 3
    plain, careful = unit(count, 0), unit(count, 0) + 0.6 * unit(count, 1)
    pairs = [(unit(count, 0), unit(count, 0) + share * unit(count, 2)) for share in (0.4, 0.9)]

    def nearest(embeddings, i):
        others = [j for j in sample.rows if sample.tasks[j] == sample.tasks[i] and j != i]
        return sorted(others, key=lambda j: -(embeddings[i] @ embeddings[j]))[:asked]

    shares = [len({*nearest(plain, i)} & {*nearest(careful, i)}) / len(nearest(plain, i)) for i in sample.rows]
    known = neighbours(careful, sample, asked)
    values, agreement = score(Embedded(plain, pairs), neighbours(plain, sample, asked), known, sample)
    np.testing.assert_allclose(agreement, shares)
    hits = [recall(first, second, sample) for first, second in pairs]
    np.testing.assert_allclose(values, 0.4 * hits[0] + 0.4 * hits[1] + 0.2 * np.array(shares))
    assert (hits[0] != hits[1]).any() and len(set(shares)) > 2
    own = sample.parts()["task0"]
    assert [own[row].tolist() for row in known["task0"]] == [nearest(careful, i) for i in own]


def cubic(distance, a=-0.75):
    """Keys' kernel."""
    x = abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def brought_back(side, size):
    """The matrix that enlarges a row: each new pixel from the four nearest old ones, edges repeated."""
    matrix = np.zeros((size, side), np.float32)
    for i in range(size):
        place = (i + 0.5) * side / size - 0.5
        for k in range(math.floor(place) - 1, math.floor(place) + 3):
            matrix[i, min(max(k, 0), side - 1)] += cubic(place - k)
    return matrix


def reduced(images, side):
    """Each channel of each image resized by Pillow, in 32-bit floats, and enlarged again by hand."""
    matrix, channels = brought_back(side, images.shape[1]), []
    for channel in images.permute(0, 3, 1, 2).flatten(0, 1).numpy():
        small = Image.fromarray(channel.astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
        channels.append(matrix @ (np.asarray(small) / 255) @ matrix.T)
    return torch.from_numpy(np.stack(channels)).unflatten(0, (len(images), 3)).clamp(0, 1)


def test_embed_views__depend_on_the_place_in_the_sample_alone(world, monkeypatch):
    monkeypatch.setattr(module.device, "batch_at", lambda side, usual, pixels=None: 10)
    encoder, _, pixels = world
    settings, sample = criterion(), drawn(world)
    embedded = module.embed_views(encoder, pixels, sample, settings)
    images = torch.from_numpy(pixels[sample.rows])
    np.testing.assert_allclose(embedded.plain, encoder(centre_crop(images, 32)).numpy(), atol=1e-5)
    for start in (0, 10, 20):
        part, generator = images[start : start + 10], torch.Generator().manual_seed(start // 10)
        views = [augment(part, 32, settings.trained, generator) for _ in range(2)]
        views += [augment(part, 32, settings.recoloured, generator), reduced(part, 16)]
        found = [view[start : start + 10] for pair in embedded.pairs for view in pair]
        for view, embeddings in zip(views, found, strict=True):
            np.testing.assert_allclose(embeddings, encoder(view).numpy(), atol=1e-5)
    for first, second in embedded.pairs:
        assert np.abs(first - second).max() > 0.01
    nothing = module.embed_views(encoder, pixels, draw(world[1], 12, 99, 0), settings)
    assert nothing.plain.shape == nothing.pairs[1][0].shape == (0, 24)


def test_embed_views__of_whole_images_are_squares_of_any_part_in_proportion(world, tmp_path):
    encoder, settings, rng = world[0], criterion(), np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (32, width, 3), dtype=np.uint8) for width in (32, 64, 32, 96, 64)]
    with arrays.create(tmp_path / "pixels.zarr", (96, 96, 3), "uint8", coding=Coding("raw", side=32)) as writer:
        writer.append(pictures)
    pixels, rows = arrays.open(tmp_path / "pixels.zarr"), np.array([4, 1, 0, 3])
    whole = Model(encoder.config.model_copy(update={"shape": "whole"}))
    whole.load_state_dict(encoder.state_dict())
    found = module.embed_views(whole, pixels, Sample(rows, np.array(["dots"] * 4, object)), settings)
    images = [torch.from_numpy(pictures[row])[None].movedim(3, 1) / 255 for row in rows]
    np.testing.assert_allclose(found.plain, torch.cat([whole(image) for image in images]), atol=1e-5)
    coarse = [torch.cat([whole(module.coarsen(settings.coarse, image)) for image in images])]
    np.testing.assert_allclose(found.pairs[1][1], coarse[0], atol=1e-5)
    squares, aspects = module.squeezed(pixels, rows)
    assert aspects.tolist() == [2, 2, 1, 3] and np.array_equal(squares[2], pictures[0])
    by_pillow = np.asarray(Image.fromarray(pictures[3]).resize((32, 32), Image.Resampling.BILINEAR))
    assert np.abs(squares[3].astype(int) - by_pillow).max() <= 1
    view = augment(torch.from_numpy(squares), 32, settings.trained, torch.Generator().manual_seed(0), aspects=aspects)
    np.testing.assert_allclose(found.pairs[0][0], encoder(view), atol=1e-5)


def test_embed_carefully__embeddings_at_all_sides_next_to_each_other(world):
    encoder, collection, pixels = world
    rows = collection.train[:7]
    images = torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2)
    embeddings = module.embed_carefully(encoder, pixels, rows, reference(), 3, "float32", "x")
    expected = torch.cat([encoder.at_side(side, True)(images) for side in (32, 48)], 1) / math.sqrt(2)
    np.testing.assert_allclose(embeddings, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("dim", [8, 999])
def test_embed_reference__is_the_half_whitened_look(world, dim):
    encoder, _, pixels = world
    sample, settings = drawn(world), reference(dim=dim)
    embeddings = module.embed_reference(encoder, pixels, sample, settings)
    looks = module.embed_carefully(encoder, pixels, sample.rows, settings, 5, "float32", "x")
    expected = whitened(looks, min(dim, 23))
    np.testing.assert_allclose(embeddings @ embeddings.T, expected @ expected.T, atol=1e-3)


def test_round_side__multiples_of_a_vits_patch_any_for_a_cnn_or_the_only_one(world):
    assert [module.round_side(side, world[0]) for side in (48.0, 50.0, 57.0, 3.0)] == [48, 48, 64, 16]
    cnn = Model(CONFIG.model_copy(update={"architecture": "resnet10t", "kwargs": {}}))
    assert [module.round_side(side, cnn) for side in (33.0, 33.4, 0.2)] == [33, 33, 1]
    kwargs = {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2}
    fixed = Model(CONFIG.model_copy(update={"architecture": "beit_base_patch16_224", "kwargs": kwargs}))
    assert module.round_side(48.0, fixed) == 32


def plain_error(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def test_noise__is_the_spread_of_the_mean_over_images_drawn_anew():
    values, generator = np.random.default_rng(0).normal(size=150), np.random.default_rng(1)
    means = [
        (generator.choice(values[:50], 50).mean() + generator.choice(values[50:], 100).mean()) / 2 for _ in range(4000)
    ]
    error = noise(values, sample_of((50, 100)))
    assert error == pytest.approx(np.std(means), rel=0.05)
    assert error == pytest.approx(math.hypot(plain_error(values[:50]), plain_error(values[50:])) / 2)
    assert standard_error(np.array([0.3])) == math.inf and standard_error(np.array([0.3, 0.3])) == 0
