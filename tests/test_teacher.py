import numpy as np
import pytest
import torch

from polygrain.encoder.extract import embed
from polygrain.encoder.model import load, save
from polygrain.retrieval import whitening
from polygrain.selection.criterion import embed_carefully
from polygrain.store import arrays
from polygrain.store.image_table import open_pixels, read_tables
from stages import teacher
from tests.helpers.settings import reference
from tests.helpers.small import TASKS, lists, write_encoder, write_images

LOOK = reference(scales=[0.5, 1.0], mirrored=True, blocks=2, dim=10)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    return write_images(folder / "images"), write_encoder(folder / "encoder")


def run(images, path, output, item, look=LOOK):
    listed = lists(teachers={"own": item | {"path": str(path)}})
    message = teacher.main(
        images, path, output, name="own", params=teacher.Params(look=look), lists=listed, shape="crop"
    )
    assert message.startswith("48 images")
    return arrays.open(output / "embeddings.zarr")[:], load(output)


def test_main__targets_are_the_careful_look_half_whitened(world, tmp_path):
    images, encoder = world
    targets, model = run(images, encoder, tmp_path / "out", {})
    rows, pixels = read_tables(images, list(TASKS)).train, open_pixels(images, list(TASKS))
    looks = embed_carefully(load(encoder), pixels, rows, LOOK, 16, "float32", "test")
    expected = whitening.apply(whitening.fit(looks, 10, "half"), looks)
    np.testing.assert_allclose(targets, expected, atol=1e-4)
    # The model is one look of them, at its own side.
    assert (model.config.side, model.config.mirrored, model.config.blocks, model.dim) == (32, True, 2, 10)
    one = embed(load(encoder).at_side(32, True, 2), pixels, rows, 16, "float32", "test")
    by_hand = whitening.apply(whitening.fit(one, 10, "half"), one)
    np.testing.assert_allclose(embed(model, pixels, rows, 16, "float32", "test"), by_hand, atol=1e-3)


@pytest.mark.parametrize(("scales", "scaled"), [([0.5, 1.0], None), ([1.0, 1.5], 48)])
def test_main__sees_sides_that_are_stored_or_the_smallest(world, tmp_path, scales, scaled):
    """An encoder of 48 px where squares of 32 px are stored."""
    images, encoder = world
    other = load(encoder).at_side(48, False)
    other.config = other.config.model_copy(update={"size": 48, "resize": 48, "scaled": None})
    (tmp_path / "other").mkdir()
    save(other, tmp_path / "other")
    targets, model = run(
        images, tmp_path / "other", tmp_path / "out", {}, look=LOOK.model_copy(update={"scales": scales})
    )
    assert (model.config.resize, model.config.size, model.config.scaled) == (32, 32, scaled)
    assert targets.shape == (48, 10) and torch.isfinite(model(torch.rand(1, 3, 32, 32))).all()


def test_main__a_chosen_model_keeps_its_last_layer(world, tmp_path):
    images, encoder = world
    chosen = load(encoder)
    chosen.reduce(torch.randn(6, 24), torch.zeros(6))
    (tmp_path / "recommended").mkdir()
    save(chosen, tmp_path / "recommended")
    targets, model = run(images, tmp_path / "recommended", tmp_path / "out", {})
    assert targets.shape[1] == 10 and model.dim == 6
    assert torch.equal(model.reduction.weight, chosen.reduction.weight)


@pytest.mark.parametrize("wrong", [{"source": "file"}, {"architecture": "resnet18"}])
def test_fits__says_which_teacher_is_wrong(wrong):
    with pytest.raises(ValueError, match=r"teachers\.large: .*architecture"):
        teacher.Params(look=LOOK).fits(lists(teachers={"large": {"path": "data/resolution"} | wrong}))
