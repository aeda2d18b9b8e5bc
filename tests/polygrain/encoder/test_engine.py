import copy
import logging

import pytest
import torch

from polygrain.encoder import engine, load
from polygrain.encoder.config import Config
from polygrain.encoder.model import Model, save
from tests.polygrain.encoder.test_prepare import insert, norms

IMAGES = torch.rand(35, 3, 40, 40, generator=torch.Generator().manual_seed(1))
HALF = (0.5,) * 3


@pytest.fixture(autouse=True)
def onnx(monkeypatch):
    monkeypatch.setenv("POLYGRAIN_ENGINE", "onnx")


@torch.no_grad()
def saved(folder, architecture="tf_efficientnet_lite0", side=40, blocks=2, **kwargs):
    """The folder of a model with random weights and running statistics."""
    torch.manual_seed(0)
    config = {"size": side, "resize": side, "blocks": blocks, "mean": HALF, "std": HALF}
    model = Model(Config(architecture=architecture, kwargs=kwargs, **config))
    for norm in norms(model):
        norm.running_mean.normal_(0, 0.2)
        norm.running_var.uniform_(0.5, 2)
    save(model, folder)
    return folder


def computed(model, images=IMAGES):
    with torch.inference_mode():
        return model.raw_outputs(images)


def require_agreement(model, images):
    """That the program gives what torch gives, of how many blocks."""
    found = computed(model, images)
    for wanted, given in zip(model.raw_outputs(images), found, strict=True):
        assert (given - wanted).abs().max() < 1e-5 * wanted.abs().max()
    return len(found)


@pytest.mark.parametrize(
    ("architecture", "kwargs", "blocks"),
    [("tf_efficientnet_lite0", {}, 3), ("resnet50", {"base_width": 8}, 2), ("mobilenetv3_small_050", {}, 1)],
)
@pytest.mark.slow
def test_program__gives_what_torch_gives_of_each_block_at_each_side(tmp_path, architecture, kwargs, blocks):
    model = load(saved(tmp_path, architecture, blocks=blocks, **kwargs))
    for one in (model, copy.deepcopy(model).at_side(48, False)):
        assert require_agreement(one, IMAGES) == blocks and engine.programs[one.backbone]


def test_program__one_for_images_of_any_shape(tmp_path):
    model = load(saved(tmp_path, blocks=1))
    for height, width in ((40, 40), (24, 40), (31, 17)):
        require_agreement(model, IMAGES[:2, :, :height, :width])
    made = engine.programs[model.backbone]
    assert len(made) == 3 and len({id(program) for program in made.values()}) == 1


def test_program__of_a_network_that_is_traced_for_one_shape_torch_computes_the_others(tmp_path, monkeypatch):
    model = load(saved(tmp_path, blocks=1))
    whole = engine.run
    monkeypatch.setattr(engine, "run", lambda session, x: [(x.shape[3] == 40) * out for out in whole(session, x)])
    for width in (40, 24):
        require_agreement(model, IMAGES[:2, :, :, :width])


@pytest.mark.slow
def test_program__new_weights_are_computed_with(tmp_path):
    model, other = load(saved(tmp_path)), load(saved(tmp_path))
    other.load_state_dict({name: tensor + 0.01 * tensor.abs() for name, tensor in other.state_dict().items()})
    before = computed(model)[0]
    model.load_state_dict(other.state_dict())
    assert torch.equal(computed(model)[0], computed(other)[0]) and not torch.equal(before, computed(model)[0])


VIT = {"img_size": 32, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2}
OTHERS = {
    "attention": lambda folder: load(saved(folder, "vit_tiny_patch16_224", 32, **VIT)),
    "adaptors": lambda folder: insert(load(saved(folder))).requires_grad_(False),
    "another type": lambda folder: load(saved(folder)).double(),
    "not prepared": lambda folder: Model(load(saved(folder)).config),
}


@pytest.mark.parametrize("other", OTHERS)
def test_suits__other_networks_run_in_torch(tmp_path, other):
    model = OTHERS[other](tmp_path)
    images = IMAGES[:2, :, : model.config.size, : model.config.size]
    assert (
        all(map(torch.equal, computed(model, images), model.raw_outputs(images)))
        and model.backbone not in engine.programs
    )


def test_suits__what_trains_or_wants_torch_runs_in_torch(tmp_path, monkeypatch):
    model = load(saved(tmp_path))
    model.raw_outputs(IMAGES[:2])
    with torch.autocast("cpu", torch.bfloat16):
        computed(model, IMAGES[:2])
    monkeypatch.setenv("POLYGRAIN_ENGINE", "torch")
    computed(model, IMAGES[:2])
    assert model.backbone not in engine.programs
    monkeypatch.setenv("POLYGRAIN_ENGINE", "fast")
    with pytest.raises(ValueError, match="'fast'; known: onnx, torch"):
        computed(model, IMAGES[:2])


@pytest.mark.parametrize("reason", ["no such operator", "its outputs differ", ""])
def test_build__a_network_without_a_program_runs_in_torch_and_says_so_once(tmp_path, monkeypatch, caplog, reason):
    def session(model, images):
        if reason != "its outputs differ":
            raise RuntimeError(reason)
        return model

    monkeypatch.setattr(engine, "session", session)
    monkeypatch.setattr(engine, "run", lambda model, x: [1.01 * output for output in model.outputs(x)])
    engine.say_once.cache_clear()
    with caplog.at_level(logging.INFO):
        for model in (load(saved(tmp_path)), load(tmp_path)):
            assert all(map(torch.equal, computed(model, IMAGES[:2]), model.raw_outputs(IMAGES[:2])))
    assert caplog.text.count(reason or "(RuntimeError)") == 1
