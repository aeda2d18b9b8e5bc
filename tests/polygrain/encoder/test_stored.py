import json
import shutil

import numpy as np
import pytest
import torch

from polygrain.encoder import stored as module
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.encoder.stored import open_features
from polygrain.store.image_table import open_pixels
from tests.helpers.small import TASKS, adapted, run_features, write_encoder, write_images

ROWS = np.array([90, 3, 3, 0, 47, 48])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    features = run_features(folder / "features", images, encoder)
    return encoder, open_pixels(images, list(TASKS)), features


def reduced(model):
    generator = torch.Generator().manual_seed(0)
    model.reduce(torch.randn(5, model.dim, generator=generator), torch.randn(5, generator=generator))
    return model


FORMS = {
    "plain": lambda model: model,
    "blocks": lambda model: model.without_reduction(2),
    "reduced": reduced,
    "reduced blocks": lambda model: reduced(model.without_reduction(2)),
}


@pytest.mark.parametrize("form", FORMS)
def test_embed__equals_a_pass_of_the_network_within_half_precision(world, form, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 4)
    model, stored = FORMS[form](load(world[0])), open_features(world[2], list(TASKS))
    expected = embed(model, world[1], ROWS, 3, "float32", "")
    monkeypatch.setattr(module.extract, "embed", None)
    found = module.embed(model, stored, world[1], ROWS, "")
    np.testing.assert_allclose(found, expected, atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert module.embed(model, stored, world[1], ROWS[:0], "").shape == (0, model.dim)


OTHERS = {
    "adapted": lambda folder: adapted(folder, ["k4"], 0),
    "mirrored": lambda folder: load(folder).at_side(32, True),
    "another side": lambda folder: load(folder).at_side(48, False),
}


@pytest.mark.parametrize("other", OTHERS)
def test_embed__passes_a_network_whose_outputs_are_not_stored(world, other):
    model, stored = OTHERS[other](world[0]), open_features(world[2], list(TASKS))
    found = module.embed(model, stored, world[1], ROWS, "")
    np.testing.assert_allclose(found, embed(model, world[1], ROWS, 6, "float32", ""), atol=1e-6)


def test_require__names_what_is_stored_what_is_expected_and_the_stage(world):
    encoder, stored = load(world[0]), open_features(world[2], list(TASKS))
    stored.require(encoder, 2)
    with pytest.raises(ValueError, match=r"at 32 px, 2 blocks; .* at 32 px, 3 blocks, .* run `dvc repro features`"):
        stored.require(encoder, 3)
    with pytest.raises(ValueError, match=r"at 32 px, 2 blocks; .* at 48 px"):
        stored.require(encoder.at_side(48, False), 1)
    other = encoder.without_reduction()
    other.backbone.blocks[0].norm1.bias.data[0] = 1
    with pytest.raises(ValueError, match="is expected"):
        stored.require(other, 1)
    assert not stored.holds(other)


def test_embed__blocks_that_are_missing_are_an_error(world, tmp_path):
    features = shutil.copytree(world[2], tmp_path / "features")
    for task in TASKS:
        file = features / task / "features.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"blocks": 1}))
    with pytest.raises(ValueError, match="2 blocks, is expected: run `dvc repro features`"):
        module.embed(load(world[0]).without_reduction(2), open_features(features, list(TASKS)), world[1], ROWS, "")
