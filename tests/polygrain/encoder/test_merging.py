import pytest
import torch

from polygrain.encoder.merging import merge
from tests.helpers.small import adapted, write_encoder


def test_merge__sets_of_different_width_are_refused(tmp_path):
    encoder = write_encoder(tmp_path / "encoder")
    wide, narrow = (adapted(encoder, [name], 0, 0.3) for name in ("k4", "k8"))
    changed = narrow.config.adaptors.model_copy(update={"width": 2})
    narrow.config = narrow.config.model_copy(update={"adaptors": changed})
    with pytest.raises(ValueError, match=r"different widths \[2, 4\]"):
        merge([wide, narrow], ["k4", "k8"], "average", torch.Generator(), 0.0)


def test_merge__one_set_is_that_set(tmp_path):
    model = adapted(write_encoder(tmp_path / "encoder"), ["k4"], 0, 0.3)
    images = torch.rand(2, 3, 32, 32)
    merged = merge([model], ["k4"], "average", torch.Generator(), 0.0)
    torch.testing.assert_close(merged(images), model.eval()(images))
