import pytest
import timm
import torch
from safetensors.torch import save_file

from polygrain.encoder import model
from polygrain.gsp.folds.trunk import Backbone, load
from tests.helpers.small import SIZE, write_encoder

VALUES = {"weights": "random", "path": "x", "architecture": "test_resnet", "depth": None}
VALUES |= {"mean": [0.5] * 3, "std": [0.25] * 3, "is_trained": True, "freezes_norm": True}


def params(**changes):
    return Backbone(**(VALUES | changes))


def test_load__a_convolutional_map_is_timms_own_also_of_a_file_and_an_earlier_stage(tmp_path):
    torch.manual_seed(9)
    network, images = timm.create_model("test_resnet").eval(), torch.rand(1, 3, 64, 64)
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    result, shallow = (
        load(params(weights="file", path=str(tmp_path / "w.safetensors"), depth=depth), tmp_path, 0)(images)
        for depth in (None, 3)
    )
    assert torch.allclose(result, network.forward_features((images - 0.5) / 0.25), atol=1e-6)
    assert shallow.shape[2] > result.shape[2]


def test_load__an_encoders_tokens_lie_as_they_were_cut_and_the_class_token_is_left_out(tmp_path):
    folder = write_encoder(tmp_path / "encoder")
    backbone = load(params(weights="encoder", architecture=None, is_trained=False), folder, 0)
    images = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        maps = backbone(images)
        tokens = model.load(folder).backbone.forward_features((images - 0.5) / 0.5)[:, 1:]
    assert maps.shape == (2, 24, 2, 2)
    normed = torch.nn.functional.layer_norm(tokens, tokens.shape[-1:])
    assert torch.allclose(torch.stack([maps[:, :, y, x] for y in (0, 1) for x in (0, 1)], 1), normed, atol=1e-5)


@pytest.mark.parametrize("freezes", [True, False])
def test_feature_map__batch_norm_is_frozen_while_the_rest_trains_or_trains_too(tmp_path, freezes):
    backbone = load(params(freezes_norm=freezes), tmp_path, 0).train()
    norm = backbone.network.bn1
    before = norm.running_mean.clone()
    backbone(torch.rand(4, 3, 64, 64)).sum().backward()
    assert torch.equal(norm.running_mean, before) == (norm.weight.grad is None) == freezes
    assert backbone.network.conv1[0].weight.grad is not None
    frozen = load(params(is_trained=False), tmp_path, 0).train()
    assert not any(p.requires_grad for p in frozen.parameters()) and not frozen.network.training


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architecture": "nonsense"}, "nonsense"),
        ({"depth": 99}, "depth"),
        ({"weights": "file", "path": "gone"}, "gone"),
        ({"weights": "encoder"}, "architecture must be null"),
        ({"weights": "pretrained", "architecture": "resnet20"}, "weights"),
    ],
)
def test_load__raises_for_what_does_not_exist_or_fit(tmp_path, changes, word):
    with pytest.raises(ValueError, match=word):
        load(params(**changes), tmp_path, 0)
