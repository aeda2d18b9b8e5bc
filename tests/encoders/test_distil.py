"""The program that distils, on ten images and a teacher that knows nothing."""

import io
import zipfile

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from encoders import distil
from polygrain.encoder.model import load


@pytest.fixture
def given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where .work is
    monkeypatch.setattr(distil, "BATCH", 4)
    monkeypatch.setattr(distil, "DRAWN", [1, 1])
    monkeypatch.setattr(distil, "read_embedded", lambda size: [np.zeros((2, size, size, 3), np.uint8)] * 2)
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for i in range(10):
            stream = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(stream, "webp")
            archive.writestr(f"class/{i}.webp", stream.getvalue())
    torch.manual_seed(0)
    teacher = timm.create_model("mobilenetv2_100", num_classes=1001, pad_type="same")
    save_file(teacher.state_dict(), tmp_path / "teacher.safetensors")
    return tmp_path / "images.zip", tmp_path / "teacher.safetensors"


@pytest.mark.slow
def test_main__writes_an_encoder_that_loads_and_goes_on_where_it_was_killed(given, tmp_path, monkeypatch):
    distil.main(*given, tmp_path / "whole", epochs=2, views=2, start=None)
    for kept in (tmp_path / ".work" / "distil").glob("*.pt"):
        kept.unlink()
    encoder = load(tmp_path / "whole")
    assert encoder(torch.zeros(1, 3, 48, 48, dtype=torch.uint8)).shape == (1, 192)

    relate, calls = distil.relate, []

    def die_late(*given):
        calls.append(given)
        if len(calls) == 6:  # two of them a step, two steps an epoch: in the second
            raise KeyboardInterrupt
        return relate(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(distil, "relate", die_late)
        distil.main(*given, tmp_path / "killed", epochs=2, views=2, start=None)
    assert not (tmp_path / "killed").exists() and len(calls) == 6
    distil.main(*given, tmp_path / "killed", epochs=2, views=2, start=None)
    assert (tmp_path / "killed" / "weights.safetensors").read_bytes() == (
        tmp_path / "whole" / "weights.safetensors"
    ).read_bytes()


def test_main__too_few_images_are_refused(given, tmp_path, monkeypatch):
    monkeypatch.setattr(distil, "BATCH", 11)
    with pytest.raises(ValueError, match=r"images\.zip holds 10 images.*give 11 or more"):
        distil.main(*given, tmp_path / "out", epochs=1, views=2, start=None)


def test_whitening__centres_and_evens_out_in_part(monkeypatch):
    monkeypatch.setattr(distil, "DIMENSIONS", 3)
    drawn = torch.randn(2000, 6, generator=torch.Generator().manual_seed(0))
    features = (drawn * torch.tensor([8.0, 4, 2, 0.1, 0.1, 0.1]) + 3).half()
    mean, projection = distil.whitening(features)
    projected = features.float() @ projection - mean
    assert projected.mean(0).abs().max() < 0.01
    # Standard deviations 8, 4, 2, each divided by variance ** POWER.
    wanted = torch.tensor([8.0, 4, 2]) ** (1 - 2 * distil.POWER)
    torch.testing.assert_close(projected.std(0), wanted, rtol=0.1, atol=0)
