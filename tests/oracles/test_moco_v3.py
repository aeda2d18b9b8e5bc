"""Numbers of MoCo v3's public code, so that drift shows: its loss, one whole step of a head, and the copies' momentum.

moco_v3.npz was computed once, in float32, with moco/builder.py of facebookresearch/moco-v3 at
c349e6e24f40d3fedb22d973f92defa4cedf37a7, in one process, on inputs drawn with torch's generator from the seed 20210405:
its contrastive_loss on 24 vectors, and its MoCo_ViT (dim 8, mlp_dim 16, temperature .2, momentum .99) over a linear
layer and a tanh in place of the ViT, with momentum copies that lie apart from the encoder. `moments` has a row for each
tensor of its vit_base at the start, in order: mean, standard deviation, largest absolute value, whether it trains.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.info_nce import batch_contrast
from polygrain.mpcl.pretraining.heads import ProjectorParams, build_projectors
from polygrain.mpcl.pretraining.moco_v3 import MocoV3
from polygrain.mpcl.trainable import fix_patches
from tests.helpers.pretraining_world import Standin, moco_v3, started

PROJECTOR = ProjectorParams(hidden=16, different=[16], out=8, layers=3, norm="all")


@pytest.fixture(scope="module")
def oracle():
    with np.load(Path(__file__).with_name("moco_v3.npz"), allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def part(oracle, name):
    return {key.removeprefix(f"{name}."): value for key, value in oracle.items() if key.startswith(f"{name}.")}


def named(encoder, projectors):
    """Our parameters under the reference's names, where the projector is the encoder's `head`."""
    found = dict(encoder.named_parameters())
    return found | {f"head.{name}": value for name, value in projectors.networks[0].named_parameters()}


def take(parameters, values):
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])


@pytest.fixture
def moco(oracle):
    projectors = build_projectors(Standin.WIDTH, 1, "shared", "plain", PROJECTOR, 0.0)
    params = moco_v3(projector=PROJECTOR, predictor=16, momentum=0.99, fixed_patches=False)
    found = MocoV3(Standin(), projectors, params)
    take(named(found.encoder, found.projectors), part(oracle, "encoder"))
    take(named(found.slow_encoder, found.slow_projectors), part(oracle, "slow"))
    take(dict(found.predictors[0].named_parameters()), part(oracle, "predictor"))
    return found.train()


def test_batch_contrast__value_and_gradient_are_the_references(oracle):
    queries = oracle["queries"].clone().requires_grad_(True)
    (loss,), _ = batch_contrast(normalize(queries, dim=1)[None], normalize(oracle["keys"], dim=1)[None], 0.2)
    loss.backward()
    torch.testing.assert_close(loss.detach(), oracle["contrast"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(queries.grad, oracle["gradient.queries"], rtol=1e-5, atol=1e-7)


def test_forward__a_step_of_one_head_is_the_references(oracle, moco):
    (loss,) = moco(oracle["first"], oracle["second"], 0.0, torch.Generator()).losses
    loss.backward()
    torch.testing.assert_close(loss.detach(), oracle["loss"], rtol=1e-5, atol=1e-6)
    for name, parameter in named(moco.encoder, moco.projectors).items():
        torch.testing.assert_close(parameter.grad, oracle[f"gradient.encoder.{name}"], rtol=1e-4, atol=1e-6)
    for name, parameter in moco.predictors[0].named_parameters():
        torch.testing.assert_close(parameter.grad, oracle[f"gradient.predictor.{name}"], rtol=1e-4, atol=1e-6)
    for name, parameter in named(moco.slow_encoder, moco.slow_projectors).items():
        torch.testing.assert_close(parameter.detach(), oracle[f"followed.{name}"], rtol=1e-6, atol=1e-7)


def test_fix_patches__the_profile_starts_as_the_reference(oracle):
    network = started("imagenet100-vit")
    fix_patches(network)
    ours, moments = list(network.backbone.named_parameters()), oracle["moments"].tolist()
    for (name, parameter), (mean, std, largest, trains) in zip(ours, moments, strict=True):
        assert parameter.requires_grad == trains
        assert parameter.mean().item() == pytest.approx(mean, abs=6 * std / parameter.numel() ** 0.5 + 1e-7), name
        assert parameter.std().item() == pytest.approx(std, rel=0.1), name
        # A uniform law ends at once, a normal one does not: the largest values of a few hundred differ.
        assert parameter.abs().max().item() == pytest.approx(largest, rel=0.3 if name == "cls_token" else 0.001), name
