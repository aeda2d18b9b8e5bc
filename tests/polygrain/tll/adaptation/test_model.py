import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from polygrain.store.rectangle import rectangle
from polygrain.tll.adaptation import model, reduction
from polygrain.tll.extractors import layers
from tests.helpers.pairs import EXTRACTOR
from tests.helpers.small import SIZE, write_encoder


@pytest.fixture
def made(tmp_path):
    network = layers.load(EXTRACTOR, write_encoder(tmp_path / "encoder"))
    rows = np.random.default_rng(0).normal(size=(40, 48)).astype(np.float32)
    weights = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
    return model.assemble(network, reduction.fit(rows, 6), weights, 15.0, "crop"), rows


def pictures(count: int = 4) -> list[Image.Image]:
    drawn = np.random.default_rng(0).integers(0, 256, (count, 40, 50, 3), dtype=np.uint8)
    return [Image.fromarray(pixels) for pixels in drawn]


def test_load__embeds_as_the_parts_do(made, tmp_path):
    whole, rows = made
    folder = tmp_path / "model"
    folder.mkdir()
    model.save(whole, folder)
    assert {file.name for file in folder.iterdir()} == {"weights.safetensors", "config.json"}
    again = model.load(folder)
    images = torch.stack([again.transform(image) for image in pictures()])
    assert images.shape == (4, 3, SIZE, SIZE) and images.dtype == torch.uint8
    reduced = reduction.fit(rows, 6).apply(whole.layers(images).numpy())
    expected = normalize(torch.relu(torch.from_numpy(reduced) @ whole.weights.T), dim=1)
    torch.testing.assert_close(again(images), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again(images).norm(dim=1), torch.ones(4))
    assert again.config.sigma == 15.0 and not any(p.requires_grad for p in again.parameters())


def test_transform__prepares_as_the_pairs_were(made):
    whole, rows = made
    squashing = model.assemble(whole.layers, reduction.fit(rows, 6), whole.weights, 15.0, "squash")
    (image, *_) = pictures()
    for known, shape in ((whole, "crop"), (squashing, "squash")):
        assert np.array_equal(known.transform(image).permute(1, 2, 0), rectangle(image, SIZE, shape))


def test_load__raise_on_what_is_no_model(made, tmp_path):
    with pytest.raises(ValueError, match="config"):
        model.load(tmp_path / "encoder")
    model.save(made[0], tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="weights"):
        model.load(tmp_path)
