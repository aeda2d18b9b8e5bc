from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from polygrain.app.page.sides import Side, encoder_of, same_images
from polygrain.collection.collection import Gallery
from polygrain.collection.embedding import embed, embed_pictures
from polygrain.collection.postprocessing import comparison, known
from polygrain.encoder.model import load
from tests.helpers.pretended_gpu import pretended_gpu


def test_encoder_of__without_adaptors_and_what_was_made_for_them(fused: Path) -> None:
    model, plain = load(fused), load(f"{fused}-encoder")
    model.reduce(torch.eye(24)[:8], torch.zeros(8))
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(encoder_of(model)(images), plain(images))
    assert encoder_of(plain) is None
    # Without adaptors there is an encoder, too, behind a last layer.
    reduced = load(f"{fused}-encoder")
    reduced.reduce(torch.eye(24)[:8], torch.zeros(8))
    torch.testing.assert_close(encoder_of(reduced)(images), plain(images))
    of_several = encoder_of(load(fused).at_side(32, False, 2))
    torch.testing.assert_close(of_several(images), plain(images))
    assert of_several.dim == 24
    with pretended_gpu():
        assert encoder_of(model.to("cuda")).mean.is_cuda


def test_same_images__says_which_are_gone(sides: list[Side], photos: Path) -> None:
    gallery = sides[1].gallery
    (photos / "dots/class1/0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="1 of the images"):
        same_images(gallery, sides[0].model, "plain", smooth=False)
    moved = Gallery(Path("/nowhere"), gallery.paths, gallery.vectors([*range(24)]), "abc")
    with pytest.raises(ValueError, match="/nowhere"):
        same_images(moved, sides[0].model, "plain", smooth=False)


def test_same_images__as_many_are_alike_and_an_upload_asks_less_their_mean(
    sides: list[Side], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "FEWEST", 24), monkeypatch.setattr(known, "FEWEST", 24)
    model, gallery = sides[0].model, sides[1].gallery
    gallery.comparison = replace(gallery.comparison, alike=7)
    other = Side("encoder", "", model, *same_images(gallery, model, "other", smooth=False))
    assert other.gallery.comparison.alike == 7 and other.start == 0
    square = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    given = embed(model, [photos / path for path in gallery.paths])
    less = embed_pictures(model, [square])[0] - given.mean(0)
    np.testing.assert_allclose(other.embed(square)[0], less / np.linalg.norm(less), atol=1e-5)
