import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from polygrain.encoder.weights import fill, fit_tensors, load_module, load_weights, read_checkpoint

VIT = {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2}


def test_load_weights__fills_the_module(tmp_path):
    given, module = nn.Linear(3, 2), nn.ModuleDict({"inner": nn.Linear(3, 2)})
    save_file(given.state_dict(), tmp_path / "w.safetensors")
    load_weights(module, tmp_path / "w.safetensors", "inner.")
    assert torch.equal(module["inner"].weight, given.weight) and torch.equal(module["inner"].bias, given.bias)


def test_load_weights__names_a_missing_or_damaged_file(tmp_path):
    file = tmp_path / "w.safetensors"
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged"):
        load_weights(nn.Linear(3, 2), file)
    save_file(nn.Linear(3, 2).state_dict(), file)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged"):
        load_weights(nn.Linear(3, 2), file)


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


def test_read_checkpoint__names_a_file_that_is_damaged_or_no_table(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"x.safetensors is missing or damaged"):
        read_checkpoint(tmp_path / "x.safetensors")
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="holds no table of tensors"):
        read_checkpoint(tmp_path / "list.pth")


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
    classifier = fill(backbone, written(tmp_path, published.state_dict()), heads)
    assert dropped <= set(classifier) == set(published.state_dict()) - set(backbone.state_dict())
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, published.state_dict()[name]), name


@pytest.mark.parametrize("prefix", ["module.", "module.backbone.", "_orig_mod.", "model.net."])
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
    filled = backbone.state_dict()
    assert torch.equal(filled["reg_token"], tensors["reg_token"]) and torch.equal(filled["pos_embed"], positions[:, 1:])
    assert torch.equal(filled["cls_token"], start + positions[:, 0])


@pytest.mark.parametrize("wrapped", [("state_dict", "model."), ("model_ema", "module."), ("teacher", "backbone.")])
def test_fill__what_trainers_save(tmp_path, wrapped):
    key, prefix = wrapped
    published = timm.create_model("resnet10t", num_classes=7).state_dict()
    table = {f"{prefix}{name}": tensor for name, tensor in published.items()}
    torch.save({"epoch": 3, "optimizer": {"state": {0: 1}}, key: table}, tmp_path / "x.ckpt")
    backbone = timm.create_model("resnet10t", num_classes=0)
    assert set(fill(backbone, tmp_path / "x.ckpt", ["fc"])) == {"fc.weight", "fc.bias"}
    assert all(torch.equal(tensor, published[name]) for name, tensor in backbone.state_dict().items())


def test_fill__a_teacher_is_taken_before_a_student(tmp_path):
    networks = {name: timm.create_model("resnet10t", num_classes=0).state_dict() for name in ("student", "teacher")}
    tensors = {f"{who}.{name}": tensor for who, table in networks.items() for name, tensor in table.items()}
    backbone = timm.create_model("resnet10t", num_classes=0)
    fill(backbone, written(tmp_path, tensors), [])
    assert all(torch.equal(tensor, networks["teacher"][name]) for name, tensor in backbone.state_dict().items())


def test_fill__counters_of_norms_may_be_missing(tmp_path):
    published = timm.create_model("resnet10t", num_classes=0).state_dict()
    tensors = {name: tensor for name, tensor in published.items() if not name.endswith("num_batches_tracked")}
    backbone = timm.create_model("resnet10t", num_classes=0)
    fill(backbone, written(tmp_path, tensors), [])
    assert all(torch.equal(backbone.state_dict()[name], tensor) for name, tensor in tensors.items())


def test_fill__names_of_both_sides_where_none_fits(tmp_path):
    tensors = {f"stage.{i}": torch.zeros(1) for i in range(9)}
    backbone = timm.create_model("resnet10t", num_classes=0)
    with pytest.raises(ValueError, match=r"holds stage\.0, stage\.8 and so on, the architecture has bn1\.bias, layer4"):
        fill(backbone, written(tmp_path, tensors), [])


def test_fill__names_what_does_not_fit(tmp_path):
    tensors = timm.create_model("resnet10t", num_classes=0).state_dict()
    tensors |= {"conv1.0.weight": torch.zeros(2, 3), "extra": torch.zeros(1)}
    backbone = timm.create_model("resnet10t", num_classes=0)
    with pytest.raises(ValueError, match=r"does not fit the encoder: unknown extra; conv1.0.weight is \(2, 3\)"):
        fill(backbone, written(tmp_path, tensors), ["fc"])


def test_fill__weights_that_timm_s_reader_cannot_translate(tmp_path):
    backbone = timm.create_model("vit_tiny_patch16_224", num_classes=0, **VIT)
    with pytest.raises(ValueError, match=r"weights.safetensors (holds no weights of this network|does not fit)"):
        fill(backbone, written(tmp_path, {"pos_embed": torch.zeros(1), "patch_embed.proj.weight": torch.zeros(2)}), [])
