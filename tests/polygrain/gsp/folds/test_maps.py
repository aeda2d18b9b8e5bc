from pathlib import Path

import numpy as np
import pytest
import torch

from polygrain.encoder.views import Augmentation, augment, centre_crop, centre_square
from polygrain.gsp.folds.maps import Maps, Whole
from polygrain.gsp.folds.trunk import Backbone, load
from polygrain.store import arrays

SHAKE = Augmentation(smallest_crop=0.5, turn=0, flip=0.5, stroke=0, jitter=0.2, tint=0, grey=0, blur=0)
RANDOM = {"weights": "random", "path": "x", "architecture": "test_resnet", "mean": None, "std": None}


@pytest.fixture
def pixels(tmp_path):
    values = np.random.default_rng(0).integers(0, 255, (10, 64, 64, 3), dtype=np.uint8)
    arrays.write(tmp_path / "pixels.zarr", values)
    return arrays.open(tmp_path / "pixels.zarr")


def make(pixels, is_trained, augmentation, whole=None):
    """The maps, and what they are without augmentation."""
    backbone = load(Backbone(**RANDOM, depth=3, is_trained=is_trained, freezes_norm=True), Path(), 0)
    with torch.no_grad():
        plain = backbone(centre_crop(torch.from_numpy(pixels[:]), 64))
    return Maps(backbone, pixels, 64, augmentation, 1.0, "float32", 4, whole), plain


def test_maps__of_a_frozen_backbone_are_computed_once(pixels):
    maps, expected = make(pixels, False, None)
    maps.backbone.forward = None  # nothing may be computed any more
    rows = torch.tensor([7, 0, 7])
    assert torch.allclose(maps.train(rows, torch.Generator(), False), expected[rows], atol=1e-5)
    assert torch.allclose(torch.cat(list(maps.plain(np.arange(10)))), expected, atol=1e-5)


def test_train__augments_and_has_a_gradient_unless_frozen(pixels):
    maps, expected = make(pixels, True, SHAKE)
    rows = torch.arange(4)
    views = maps.train(rows, torch.Generator().manual_seed(0), False)
    again = maps.train(rows, torch.Generator().manual_seed(0), True)
    assert views.requires_grad and not again.requires_grad and torch.allclose(views, again, atol=1e-5)
    assert not torch.allclose(views, expected[:4], atol=1e-2)
    blocks = list(maps.plain(np.arange(10)))
    assert [len(block) for block in blocks] == [4, 4, 2] and not blocks[0].requires_grad
    assert torch.allclose(torch.cat(blocks), expected, atol=1e-5)


def test_views__of_whole_images_have_each_its_own_proportion(pixels):
    aspects = torch.linspace(0.5, 2, 10)
    maps, _ = make(pixels, True, SHAKE, Whole(aspects, 0.9))
    rows = np.array([7, 0])
    images = torch.from_numpy(pixels[rows])
    assert torch.equal(maps.views(rows, None), centre_square(images, 64, aspects[rows], 0.9))
    drawn, again = (torch.Generator().manual_seed(0) for _ in range(2))
    assert torch.equal(maps.views(rows, drawn), augment(images, 64, SHAKE, again, 1.0, aspects[rows]))
