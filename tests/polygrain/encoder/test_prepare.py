import logging

import pytest
import torch
from torch import nn

from polygrain.app.export.program import Program
from polygrain.encoder import load, networks
from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.model import Model, save
from polygrain.encoder.prepare import Norm, pairs, restore
from polygrain.store.tensors import read_tensors

# Arguments that make them small; how many norms they have, and before how many stands no convolution alone.
FAMILIES = {
    "tf_efficientnet_lite0": ({}, 49, 0),
    "resnet50": ({"base_width": 8}, 53, 0),
    "resnetv2_50d": ({"width_factor": 0.25}, 51, 17),
    "mobilenetv2_035": ({}, 52, 0),
    "mobilenetv3_small_050": ({}, 34, 0),
    "mobilenetv4_conv_small_050": ({}, 46, 0),
    "lcnet_050": ({}, 27, 0),
    "ghostnet_050": ({}, 80, 0),
    "convnext_atto": ({}, 0, 0),
    "vit_tiny_patch16_224": ({"img_size": 64, "depth": 2, "embed_dim": 24, "num_heads": 2}, 0, 0),
}
DEEP = FAMILIES.keys() - {"tf_efficientnet_lite0", "lcnet_050", "convnext_atto", "vit_tiny_patch16_224"}
IMAGES = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def norms(model):
    return [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]


@torch.no_grad()
def plain(architecture):
    """A model of random weights and running statistics, which nothing has prepared."""
    torch.manual_seed(0)
    half, kwargs = (0.5,) * 3, FAMILIES[architecture][0]
    model = Model(Config(architecture=architecture, kwargs=kwargs, size=64, resize=64, mean=half, std=half))
    for norm in norms(model):
        norm.running_mean.normal_(0, 0.2)
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_(0, 0.2)
    return model


def insert(model):
    adaptors = AdaptorConfig(names=["a", "b"], width=4, fusion="attention")
    torch.manual_seed(2)
    model.insert(model.new_adaptors(adaptors), adaptors)
    for layer in model.adaptors:
        layer.requires_grad_(True).up.data.normal_(0, 0.02)
    return model


def runs(model):
    """How many batch norms compute in a pass, and are not merely there."""
    called = []
    for norm in norms(model):
        if not isinstance(norm, Norm):
            norm.register_forward_hook(lambda *_: called.append(1))
    model.features(IMAGES)
    return len(called)


@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=[pytest.mark.slow] * (name in DEEP)) for name in FAMILIES]
)
def test_prepare__same_outputs_and_gradients_with_fewer_norms(architecture, tmp_path):
    model, (_, count, left) = plain(architecture), FAMILIES[architecture]
    save(model, tmp_path)
    prepared, expected = load(tmp_path), model.features(IMAGES)
    assert (prepared.features(IMAGES) - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (runs(model), runs(prepared)) == (count, left)
    for one in (model, prepared):
        insert(one).features(IMAGES).square().sum().backward()
    wanted, found = (
        torch.cat([p.grad.flatten() for p in one.parameters() if p.requires_grad]) for one in (model, prepared)
    )
    assert (found - wanted).norm() < 1e-4 * wanted.norm()


def test_prepare__the_state_and_the_file_are_those_of_the_plain_network(tmp_path):
    model = insert(plain("lcnet_050"))
    save(model, tmp_path)
    before = (tmp_path / "weights.safetensors").read_bytes()
    prepared, tensors = load(tmp_path), read_tensors(tmp_path / "weights.safetensors")
    save(prepared, tmp_path)
    assert (tmp_path / "weights.safetensors").read_bytes() == before
    assert prepared.state_dict().keys() == tensors.keys() and all(tensor.is_contiguous() for tensor in tensors.values())


@pytest.mark.slow
@torch.no_grad()
def test_prepare__new_weights_and_copies_of_a_prepared_model_compute_with_theirs(tmp_path):
    model, other = plain("lcnet_050"), plain("lcnet_050")
    other.backbone.bn1.bias.add_(1)
    save(insert(model), tmp_path)
    prepared = load(tmp_path)
    for copy in (prepared.at_side(64, False), prepared.without_reduction(), prepared.double().float()):
        torch.testing.assert_close(copy.features(IMAGES), model.features(IMAGES), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(prepared.at_side(96, False)(IMAGES), model.at_side(96, False)(IMAGES))
    encoder = prepared.without_adaptors()
    encoder.load_state_dict(other.state_dict())
    assert runs(encoder) == 0
    torch.testing.assert_close(encoder.features(IMAGES), other.features(IMAGES), atol=1e-4, rtol=1e-4)


def test_restore__trains_as_the_plain_network_does_and_a_prepared_one_refuses(tmp_path):
    model = plain("lcnet_050")
    save(model, tmp_path)
    prepared = load(tmp_path)
    prepared.backbone.requires_grad_(True)
    with pytest.raises(ValueError, match="restore"):
        prepared.features(IMAGES)
    restore(prepared.backbone)
    for one in (model, prepared):
        one.requires_grad_(True).train().features(IMAGES).square().sum().backward()
    for (name, wanted), found in zip(model.named_parameters(), prepared.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-3, atol=1e-4, msg=name)
    assert torch.equal(norms(prepared)[0].running_mean, norms(model)[0].running_mean)


def test_prepare__a_norm_left_in_training_mode_stays_frozen(tmp_path):
    save(plain("lcnet_050"), tmp_path)
    prepared = load(tmp_path)
    expected = prepared.features(IMAGES)
    assert torch.equal(prepared.train().features(IMAGES), expected)


class Odd(nn.Module):
    """Norms whose convolution has another reader, runs twice, is changed in place, or normalises its weights."""

    def __init__(self):
        super().__init__()
        from timm.layers import StdConv2d

        self.first, self.twice, self.changed, self.last = (nn.Conv2d(3, 3, 1) for _ in range(4))
        self.own, self.unknown = StdConv2d(3, 3, 1), nn.BatchNorm2d(3, track_running_stats=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(4))
        self.last_norm = nn.BatchNorm2d(3)

    def forward_features(self, x):
        x = self.first(x)
        x = x + self.norms[0](x)
        x = self.norms[1](self.twice(self.twice(x)))
        x = self.norms[2](self.changed(x).add_(1))
        x = self.norms[3](self.own(x))
        return self.last_norm(self.last(self.unknown(self.twice(x))))

    def forward_head(self, x, pre_logits):
        return x.mean((2, 3))


def test_pairs__only_where_a_norm_alone_takes_what_a_convolution_gives():
    assert pairs(Odd().eval(), torch.zeros(1, 3, 4, 4)) == [("last", "last_norm")]


def test_foldable__a_network_that_cannot_be_traced_runs_as_it_is_and_says_so_once(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("depends on values")

    networks.foldable.cache_clear()
    monkeypatch.setattr(networks, "pairs", refuse)
    model = plain("lcnet_050")
    save(model, tmp_path)
    with caplog.at_level(logging.INFO):
        models = [load(tmp_path), load(tmp_path)]
    networks.foldable.cache_clear()
    assert caplog.text.count("depends on values") == 1
    torch.testing.assert_close(models[1].features(IMAGES), model.features(IMAGES), atol=1e-4, rtol=1e-4)


def test_program__holds_what_it_computes_with_and_no_norm(tmp_path):
    model = insert(plain("lcnet_050")).requires_grad_(False)
    save(model, tmp_path)
    program = Program(load(tmp_path))
    assert runs(program.model) == 0 and "running_var" not in " ".join(program.state_dict())
    held, had = (sum(tensor.numel() for tensor in each.state_dict().values()) for each in (program, model))
    assert held < had and all(tensor.is_contiguous() for tensor in program.state_dict().values())
    torch.testing.assert_close(program(IMAGES), model(IMAGES), atol=1e-5, rtol=0)
