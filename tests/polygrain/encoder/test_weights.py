import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from polygrain.encoder.weights import fill, fit_tensors, load_module, read_checkpoint

VIT = {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2}


def test_fit_tensors__says_what_is_missing_left_over_or_of_another_shape():
    module = nn.Linear(3, 2)
    before = module.weight.clone()
    with pytest.raises(
        ValueError, match=r"origin does not fit the encoder: missing bias; unknown other; weight is \(2, 4\)"
    ):
        fit_tensors(module, {"weight": torch.ones(2, 4), "other": torch.ones(1)}, "origin")
    assert torch.equal(module.weight, before)
    many = {f"t{i}": torch.ones(1) for i in range(9)}
    with pytest.raises(ValueError, match="and 6 more"):
        fit_tensors(module, many, "origin")


def test_load_module__takes_no_memory_before_the_header_fits(tmp_path):
    damaged = r"weights.safetensors is missing or damaged"
    with pytest.raises(ValueError, match=damaged):
        load_module(lambda: nn.Linear(3, 2), tmp_path)
    save_file(nn.Linear(3, 2).state_dict(), tmp_path / "weights.safetensors")
    assert load_module(lambda: nn.Linear(3, 2), tmp_path).weight.device.type == "cpu"
    with pytest.raises(ValueError, match=r"weights.safetensors does not fit the encoder: weight is \(2, 3\)"):
        load_module(lambda: nn.Linear(10**12, 2), tmp_path)  # eight terabytes
    with pytest.raises(ValueError, match=r"config.json describes no model"):
        load_module(lambda: nn.Linear(-1, 2), tmp_path)


class Bomb:
    def __reduce__(self):
        return (print, ("executed",))


def test_read_checkpoint__runs_no_code_from_a_pickle(tmp_path, capsys):
    torch.save({"state_dict": Bomb()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match=r"evil.pth .* cannot be read as weights") as error:
        read_checkpoint(tmp_path / "evil.pth")
    assert "weights_only" not in str(error.value)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [("x.safetensors", r"x.safetensors is missing or damaged"), ("list.pth", "holds no table of tensors")],
)
def test_read_checkpoint__names_a_file_that_is_damaged_or_no_table(tmp_path, name, message):
    torch.save([torch.zeros(2)], tmp_path / name)
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / name)


def written(tmp_path, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.mark.parametrize(
    ("architecture", "kwargs", "heads"),
    [
        ("vit_tiny_patch16_224", VIT, ["head"]),
        ("deit_tiny_distilled_patch16_224", VIT, ["head", "head_dist"]),
        ("resnet10t", {}, ["fc"]),
        ("mobilenetv2_035", {}, ["classifier"]),
        ("convnext_atto", {}, ["head.fc"]),  # and not its own head.norm
    ],
)
def test_fill__drops_the_classifier_and_nothing_else(tmp_path, architecture, kwargs, heads):
    torch.manual_seed(0)
    published = timm.create_model(architecture, num_classes=5, **kwargs)
    backbone = timm.create_model(architecture, num_classes=0, **kwargs)
    fill(backbone, written(tmp_path, published.state_dict()), heads)
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, published.state_dict()[name]), name


def renamed(tensors, prefix):
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


TRAINERS = {
    **{prefix: lambda own, _, prefix=prefix: renamed(own, prefix) | {"projector.weight": torch.zeros(3)}
       for prefix in ("module.", "module.backbone.", "_orig_mod.", "model.net.")},
    "in a wrapper": lambda own, _: {"epoch": 3, "optimizer": {"state": {0: 1}}, "state_dict": renamed(own, "model.")},
    "in an average": lambda own, other: {"model": renamed(other, "module."), "model_ema": renamed(own, "module.")},
    "a teacher before a student": lambda own, other: renamed(other, "student.") | renamed(own, "teacher."),
    "without counters of norms": lambda own, _: {name: t for name, t in own.items() if "num_batches" not in name},
}  # fmt: skip


@pytest.mark.parametrize("trainer", TRAINERS)
def test_fill__what_trainers_save(tmp_path, trainer):
    own, other = (timm.create_model("resnet10t", num_classes=7).state_dict() for _ in range(2))
    torch.save(TRAINERS[trainer](own, other), tmp_path / "x.ckpt")
    backbone = timm.create_model("resnet10t", num_classes=0)
    fill(backbone, tmp_path / "x.ckpt", ["fc"])
    assert all(torch.equal(tensor, own[name]) for name, tensor in backbone.state_dict().items())


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
    filled = backbone.state_dict()
    assert torch.equal(filled["reg_token"], tensors["reg_token"]) and torch.equal(filled["pos_embed"], positions[:, 1:])
    assert torch.equal(filled["cls_token"], start + positions[:, 0])


UNFIT = {
    "other names": (
        {f"stage.{i}": torch.zeros(1) for i in range(9)},
        r"holds stage\.0, stage\.8 and so on, the architecture has bn1\.bias, layer4",
    ),
    "another shape": (
        timm.create_model("resnet10t", num_classes=0).state_dict()
        | {"conv1.0.weight": torch.zeros(2, 3), "extra": torch.zeros(1)},
        r"does not fit the encoder: unknown extra; conv1.0.weight is \(2, 3\)",
    ),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_fill__names_what_does_not_fit(tmp_path, unfit):
    tensors, message = UNFIT[unfit]
    with pytest.raises(ValueError, match=message):
        fill(timm.create_model("resnet10t", num_classes=0), written(tmp_path, tensors), ["fc"])
