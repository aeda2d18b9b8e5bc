import os

import pytest
import timm
import torch
from safetensors.torch import save_file

from polygrain.encoder.backbone import fill, read_checkpoint

VIT = {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2}


class Bomb:
    def __reduce__(self):
        return (print, ("executed",))


def test_read_checkpoint__runs_no_code_from_a_pickle(tmp_path, capsys):
    torch.save({"state_dict": Bomb()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match=r"evil.pth cannot be read as weights"):
        read_checkpoint(tmp_path / "evil.pth")
    assert "executed" not in capsys.readouterr().out


def test_read_checkpoint__names_a_file_that_is_damaged_or_no_table(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"x.safetensors is missing or damaged"):
        read_checkpoint(tmp_path / "x.safetensors")
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="holds no table of tensors"):
        read_checkpoint(tmp_path / "list.pth")


def test_read_checkpoint__does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"weights.pth is missing or damaged \(it is a pipe"):
        read_checkpoint(tmp_path / "weights.pth")


def written(tmp_path, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.mark.parametrize(
    ("architecture", "kwargs", "heads", "dropped"),
    [
        ("vit_tiny_patch16_224", VIT, ["head"], {"head.weight", "head.bias"}),
        ("deit_tiny_distilled_patch16_224", VIT, ["head", "head_dist"], {"head.weight", "head_dist.weight"}),
        ("resnet10t", {}, ["fc"], {"fc.weight", "fc.bias"}),
        ("mobilenetv2_035", {}, ["classifier"], {"classifier.weight", "classifier.bias"}),
        ("convnext_atto", {}, ["head.fc"], {"head.fc.weight", "head.fc.bias"}),  # and not its own head.norm
    ],
)
def test_fill__drops_the_classifier_and_nothing_else(tmp_path, architecture, kwargs, heads, dropped):
    torch.manual_seed(0)
    published = timm.create_model(architecture, num_classes=5, **kwargs)
    backbone = timm.create_model(architecture, num_classes=0, **kwargs)
    found = fill(backbone, written(tmp_path, published.state_dict()), heads)
    assert dropped <= set(found) == set(published.state_dict()) - set(backbone.state_dict())
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, published.state_dict()[name]), name


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.backbone."])
def test_fill__a_trainer_s_prefix_of_any_family(tmp_path, prefix):
    published = timm.create_model("resnet10t", num_classes=0).state_dict()
    tensors = {f"{prefix}{name}": tensor for name, tensor in published.items()} | {"projector.weight": torch.zeros(3)}
    backbone = timm.create_model("resnet10t", num_classes=0)
    fill(backbone, written(tmp_path, tensors), [])
    assert all(torch.equal(tensor, published[name]) for name, tensor in backbone.state_dict().items())


def test_fill__the_original_names_of_dinov2_with_registers(tmp_path):
    """As its owners publish it: a mask token, registers of another name, a position for the class token."""
    kwargs = {**VIT, "img_size": 28}
    backbone = timm.create_model("vit_small_patch14_reg4_dinov2", num_classes=0, **kwargs)
    tensors = {name: torch.randn_like(tensor) for name, tensor in backbone.state_dict().items()}
    original = dict(tensors)
    positions, start = torch.randn(1, 5, 24), torch.randn(1, 1, 24)
    original |= {"register_tokens": original.pop("reg_token"), "mask_token": torch.zeros(1, 24)}
    original |= {"pos_embed": positions, "cls_token": start}
    fill(backbone, written(tmp_path, original), ["head"])
    found = backbone.state_dict()
    assert torch.equal(found["reg_token"], tensors["reg_token"]) and torch.equal(found["pos_embed"], positions[:, 1:])
    assert torch.equal(found["cls_token"], start + positions[:, 0])


def test_fill__names_what_does_not_fit(tmp_path):
    tensors = timm.create_model("resnet10t", num_classes=0).state_dict()
    tensors |= {"conv1.0.weight": torch.zeros(2, 3), "extra": torch.zeros(1)}
    backbone = timm.create_model("resnet10t", num_classes=0)
    with pytest.raises(ValueError, match=r"does not fit the encoder: unknown extra; conv1.0.weight is \(2, 3\)"):
        fill(backbone, written(tmp_path, tensors), ["fc"])


def test_translate__what_timm_s_reader_trips_over_is_said_of_the_file(tmp_path):
    backbone = timm.create_model("vit_tiny_patch16_224", num_classes=0, **VIT)
    with pytest.raises(ValueError, match=r"weights.safetensors (holds no weights of this network|does not fit)"):
        fill(backbone, written(tmp_path, {"pos_embed": torch.zeros(1), "patch_embed.proj.weight": torch.zeros(2)}), [])
