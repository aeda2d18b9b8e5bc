"""The module of sentence-transformers, found as that library finds it, and compared with the model."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from polygrain.app.export import images, sentence_transformers
from polygrain.comparing import Comparison
from polygrain.comparing.known import Known
from polygrain.encoder import load
from tests.helpers.small import adapted, write_encoder, write_model


def pictures(count=3):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (50, 40, 3), dtype=np.uint8)) for _ in range(count)]


def test_images__the_module_that_is_named_gives_the_model(tmp_path):
    model = adapted(write_encoder(tmp_path / "encoder"), ["k4", "k8"], 1, fusion="attention").at_side(48, True)
    mean = torch.full([model.dim], 0.1)
    folder = write_model(model, tmp_path / "choice")
    Known({"dots": Comparison(tuple(mean.tolist()))}).write(folder)
    written = sentence_transformers.write(folder, tmp_path / "out", "dots")
    (named,) = json.loads((tmp_path / "out/modules.json").read_text())
    assert named["type"] == f"{images.__name__}.Images" and written.difference <= 1e-5
    module = images.Images.load(str(tmp_path / "out"), subfolder=named["path"])
    pictures()[0].save(tmp_path / "a.png")
    result = module(module.preprocess([tmp_path / "a.png", *pictures()[1:]]))["sentence_embedding"]
    plain = model(torch.stack([model.transform(image) for image in pictures()]))
    expected = torch.stack([(row - mean) / (row - mean).norm() for row in plain])
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)
    assert module.get_embedding_dimension() == result.shape[1]
    (tmp_path / "again").mkdir()
    module.save(str(tmp_path / "again"))
    again = images.Images.load(str(tmp_path / "again"))
    torch.testing.assert_close(again(again.preprocess(pictures()))["sentence_embedding"], expected, rtol=0, atol=1e-5)


def test_write__a_task_that_the_model_does_not_know_is_named(tmp_path):
    folder = write_model(load(write_encoder(tmp_path / "encoder")), tmp_path / "choice")
    Known({"dots": Comparison()}).write(folder)
    with pytest.raises(ValueError, match="no task 'bars'; it knows dots"):
        sentence_transformers.write(folder, tmp_path / "out", "bars")
    assert not (tmp_path / "out").exists()
