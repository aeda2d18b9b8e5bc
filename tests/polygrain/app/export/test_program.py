import zipfile

import numpy as np
import pytest
import torch

from polygrain.app.export import program
from polygrain.app.export.agreement import MOST, difference
from polygrain.app.export.program import scaling, trace
from polygrain.app.export.targets import TARGETS, torch_export
from polygrain.collection.postprocessing import Comparison
from polygrain.encoder import Model, networks
from polygrain.encoder.config import AdaptorConfig, Config

ADAPTORS = {n: AdaptorConfig(names=["a", "b"][:n], width=4, fusion=f) for n, f in ((1, "average"), (2, "attention"))}
MEAN = AdaptorConfig(names=["a", "b"], width=4, fusion="average")
VIT = {"img_size": 32, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2}
BEIT = {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2}
WHOLE = {"shape": "whole"}
DINO = {"img_size": 28, "depth": 1, "embed_dim": 24, "num_heads": 2}


def drawn(architecture: str, size: int, kwargs: dict, **config: object) -> Model:
    """A model whose weights, adaptors included, are random; another input's position embeddings differ, too."""
    torch.manual_seed(0)
    colours = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.25)}
    model = Model(Config(architecture=architecture, kwargs=kwargs, size=size, resize=size, **colours, **config))
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter) * (parameter.ndim > 1))
    return model


ALL = {"adaptors": ADAPTORS[2], "scaled": 64, "mirrored": True, "blocks": 2, "reduced": 8}
FAMILIES = {
    "uint8 images": ("vit_tiny_patch16_224", 32, VIT, {"adaptors": MEAN, "reduced": 8}),
    "all at once": ("vit_tiny_patch16_224", 32, VIT, ALL),
    "one set of adaptors, smaller side": ("vit_tiny_patch16_224", 32, VIT, {"adaptors": ADAPTORS[1], "scaled": 16}),
    "registers": ("vit_small_patch14_reg4_dinov2", 28, DINO, {"adaptors": ADAPTORS[2], "scaled": 42} | WHOLE),
    "rotary": ("vit_small_patch16_dinov3", 32, {"depth": 1}, {"adaptors": ADAPTORS[2], "scaled": 48}),
    "pooled by attention": ("vit_base_patch16_siglip_224", 32, VIT, {"adaptors": ADAPTORS[2], "scaled": 48}),
    "ResNet": ("resnet18", 32, {}, {"adaptors": ADAPTORS[2], "scaled": 64, "mirrored": True} | WHOLE),
    "MobileNet": ("mobilenetv2_100", 68, {"pad_type": "same"}, {"adaptors": MEAN, "blocks": 3, "reduced": 16} | WHOLE),
    "ConvNeXt": ("convnext_atto", 32, {}, {"adaptors": ADAPTORS[2], "scaled": 64, "blocks": 2} | WHOLE),
    "one side alone": ("beit_base_patch16_224", 32, BEIT, WHOLE),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_programs__of_every_family_give_what_the_model_gives(tmp_path, name):
    architecture, size, kwargs, config = FAMILIES[name]
    model, uint8 = drawn(architecture, size, kwargs, **config), name == "uint8 images"
    comparison = Comparison(tuple((0.3 * model(torch.rand(4, 3, size, size)).mean(0)).tolist()))
    graph = trace(model, uint8, comparison.mean)
    free = program.has_free_sides(graph)
    assert free == (model.config.shape == "whole" and name != "one side alone")
    for target in TARGETS:
        target.write(graph, tmp_path / target.FILE)
        assert difference(model, target.runner(tmp_path / target.FILE), uint8, comparison, free) <= MOST


@pytest.mark.slow
def test_trace__takes_rectangles_of_a_model_that_sees_images_whole():
    model = drawn("vit_tiny_patch16_224", 40, VIT | {"img_size": 48}, scaled=48, mirrored=True, shape="whole")
    model.config = model.config.model_copy(update={"resize": 50})
    graph = trace(model, True)
    assert program.has_free_sides(graph) and difference(model, torch_module(graph), True, free=True) <= 1e-5
    longest = torch.randint(256, (1, 3, 2 * 50 + 40, 40), dtype=torch.uint8)  # of 3 * 50 px, less the border
    torch.testing.assert_close(graph.module()(longest), model(longest), rtol=0, atol=1e-5)


def torch_module(graph):
    return lambda batch: graph.module()(torch.from_numpy(batch)).detach().numpy()


def test_trace__asks_timm_nothing_while_torch_looks_on():
    """A first question whether a network resizes its position embeddings would build one, which torch cannot trace."""
    networks.built_on_meta.cache_clear()
    networks.traced.cache_clear()
    networks.foldable.cache_clear()
    trace(drawn("vit_tiny_patch16_224", 32, VIT), False)


def test_trace__of_what_it_cannot_free_takes_squares_and_says_so(monkeypatch, caplog):
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no symbols here")

    monkeypatch.setattr(program, "scaled", fail)
    model = drawn("vit_tiny_patch16_224", 32, VIT, shape="whole")
    graph = trace(model, False)
    assert not program.has_free_sides(graph) and "square inputs only (no symbols here)" in caplog.text
    assert difference(model, torch_module(graph), False) <= 1e-5


TURNED = ("tf_efficientnet_lite0", "tf_mobilenetv3_small_minimal_100", "tf_mixnet_s")


@pytest.mark.parametrize("architecture", ["resnet10t", *TURNED])
def test_program__free_takes_rectangles_of_any_sides(architecture):
    """TensorFlow's padding depends on whether a side is odd."""
    model = drawn(architecture, 40, {}, scaled=57, shape="whole")
    free = program.Program(model, free=True)
    assert free.is_turned == (architecture in TURNED)
    for height, width in ((40, 40), (40, 70), (97, 40), (40, 120)):
        images = torch.rand(1, 3, height, width)
        torch.testing.assert_close(free(images), model(images), rtol=0, atol=3e-5)


@pytest.mark.parametrize("size, side", [(32, 48), (48, 32), (31, 64)])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_scaling__is_the_models_own(size, side, mode):
    images = torch.rand(2, 3, size, size)
    matrix = scaling(size, side, mode)
    expected = torch.nn.functional.interpolate(images, (side, side), mode=mode, antialias=True, align_corners=False)
    torch.testing.assert_close(matrix @ images @ matrix.T, expected, rtol=0, atol=1e-5)


def test_program__leaves_the_model_as_it_was():
    model = drawn("vit_tiny_patch16_224", 32, VIT, **ALL, interpolation="bilinear").mask("b")
    images, before = torch.rand(2, 3, 32, 32), model.state_dict()
    torch.testing.assert_close(program.Program(model)(images), model(images), rtol=0, atol=1e-5)
    mean = torch.full([8], 0.1)
    less = [(row - mean) / (row - mean).norm() for row in model(images)]
    torch.testing.assert_close(program.Program(model, mean.tolist())(images), torch.stack(less), rtol=0, atol=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.with_attention(images)[1].isfinite().all()


def test_torch_export__the_file_holds_no_pickle(tmp_path):
    """Loading it with every unpickler taken away works, and a file that has one is refused."""
    file = tmp_path / torch_export.FILE
    torch_export.write(trace(drawn("vit_tiny_patch16_224", 32, VIT), False), file)
    with zipfile.ZipFile(file) as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    assert not any(content.startswith((b"\x80\x02", b"PK")) and content.endswith(b".") for content in contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pickle.Unpickler", refuse)
        patch.setattr("pickle.loads", refuse)
        patch.setattr("torch.load", refuse)
        torch_export.runner(file)(np.zeros((1, 3, 32, 32), np.float32))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("model/data/sample_inputs/other.pt", b"\x80\x02.")
    with pytest.raises(ValueError, match="put a pickle into"):
        torch_export.require_no_pickle(file)


def refuse(*args: object, **kwargs: object) -> None:
    raise AssertionError("a pickle is read")


def test_trace__says_which_network_cannot_be_exported(monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no such operator\nand a long trace")

    monkeypatch.setattr(torch.export, "export", fail)
    with pytest.raises(ValueError, match=r"^torch cannot export 'vit_tiny_patch16_224' \(no such operator\)"):
        trace(drawn("vit_tiny_patch16_224", 32, VIT), False)
