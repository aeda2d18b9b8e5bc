import pytest
import timm
import torch
from safetensors.torch import save_file

from polygrain.encoder import model
from polygrain.gsp.folds.trunk import Backbone, load
from tests.helpers.small import SIZE, write_encoder

VALUES = {
    "weights": "random",
    "path": "x",
    "architecture": "test_resnet",
    "arguments": {},
    "mean": [0.5] * 3,
    "std": [0.25] * 3,
    "depth": None,
    "is_trained": True,
}


def params(**changes):
    return Backbone(**(VALUES | changes))


def test_load__a_convolutional_map_is_timms_own(tmp_path):
    backbone = load(params(), tmp_path, 3)
    images = torch.rand(2, 3, 64, 64)
    assert torch.allclose(backbone(images), backbone.network.forward_features((images - 0.5) / 0.25))


def test_load__depth_takes_the_map_of_an_earlier_stage(tmp_path):
    deep, shallow = (load(params(depth=depth), tmp_path, 3)(torch.rand(1, 3, 64, 64)) for depth in (None, 3))
    assert shallow.shape[2] > deep.shape[2]


def test_load__an_encoders_tokens_lie_as_they_were_cut_and_the_class_token_is_left_out(tmp_path):
    folder = write_encoder(tmp_path / "encoder")
    backbone = load(params(weights="encoder", architecture=None, is_trained=False), folder, 0)
    images = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        maps = backbone(images)
        tokens = model.load(folder).backbone.forward_features((images - 0.5) / 0.5)[:, 1:]
    assert maps.shape == (2, 24, 2, 2)
    normed = torch.nn.functional.layer_norm(tokens, tokens.shape[-1:])
    for y in range(2):
        for x in range(2):
            assert torch.allclose(maps[:, :, y, x], normed[:, 2 * y + x], atol=1e-5)


def test_load__reads_the_weights_of_a_file(tmp_path):
    torch.manual_seed(9)
    network = timm.create_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    backbone = load(params(weights="file", path=str(tmp_path / "w.safetensors")), tmp_path, 0)
    images = torch.rand(1, 3, 64, 64)
    network.eval()
    assert torch.allclose(backbone(images), network.forward_features((images - 0.5) / 0.25), atol=1e-6)


def test_feature_map__batch_norm_is_frozen_while_the_rest_trains(tmp_path):
    backbone = load(params(), tmp_path, 0).train()
    norm = backbone.norms()[0]
    before = norm.running_mean.clone()
    backbone(torch.rand(4, 3, 64, 64)).sum().backward()
    assert torch.equal(norm.running_mean, before) and norm.weight.grad is None
    assert any(p.grad is not None for p in backbone.parameters())
    frozen = load(params(is_trained=False), tmp_path, 0).train()
    assert not any(p.requires_grad for p in frozen.parameters()) and not frozen.network.training


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architecture": "nonsense"}, "nonsense"),
        ({"depth": 99}, "depth"),
        ({"weights": "file", "path": "gone"}, "gone"),
        ({"weights": "encoder"}, "architecture must be null"),
        ({"architecture": None}, "timm name"),
    ],
)
def test_load__raises_for_what_does_not_exist_or_fit(tmp_path, changes, word):
    with pytest.raises(ValueError, match=word):
        load(params(**changes), tmp_path, 0)
