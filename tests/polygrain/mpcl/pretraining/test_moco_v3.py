import torch
from torch.nn.functional import cross_entropy, normalize

from polygrain.mpcl.pretraining.heads import build_projectors
from polygrain.mpcl.pretraining.moco_v3 import MocoV3
from tests.helpers.pretraining_world import moco_v3, network, views
from tests.helpers.small import CONFIG


def build(config=CONFIG, heads=2, **changes):
    params, encoder = moco_v3(**changes), network(config)
    return MocoV3(encoder, build_projectors(encoder.dim, heads, "shared", "plain", params.projector, 0.0), params)


def test_forward__is_a_plain_moco_v3_for_each_head():
    moco, (first, second) = build(), views()
    with torch.no_grad():
        for parameter in [*moco.encoder.parameters(), *moco.projectors.parameters()]:
            parameter.add_(0.01 * torch.randn_like(parameter))  # so that the copies have something to follow
    pairs = [(moco.slow_encoder, moco.encoder), (moco.slow_projectors, moco.projectors)]
    expected = [
        0.9 * slow + 0.1 * fast for a, b in pairs for slow, fast in zip(a.parameters(), b.parameters(), strict=True)
    ]
    measured = moco(first, second, 0.0, torch.Generator())
    moved = [parameter for slow, _ in pairs for parameter in slow.parameters()]
    assert len(moved) == len(expected)
    for parameter, wanted in zip(moved, expected, strict=True):
        torch.testing.assert_close(parameter, wanted.detach())
    for m in range(2):

        def ask(x, m=m):
            return normalize(moco.predictors[m](moco.projectors(moco.encoder(x))[m]), dim=1)

        def key(x, m=m):
            return normalize(moco.slow_projectors(moco.slow_encoder(x))[m], dim=1)

        def contrast(q, k):
            return cross_entropy(q @ k.T / 0.2, torch.arange(8)) * 2 * 0.2

        torch.testing.assert_close(
            measured.losses[m], contrast(ask(first), key(second)) + contrast(ask(second), key(first))
        )
        torch.testing.assert_close(measured.projections[m], ask(first))


def test_moco_v3__a_head_has_its_own_predictor_and_the_patches_stay():
    moco = build()
    measured = moco(*views(), 0.0, torch.Generator())
    measured.losses[0].backward()
    first, second = moco.predictors
    assert first[0].weight.grad.abs().sum() > 0 and second[0].weight.grad.abs().sum() == 0
    assert moco.encoder.backbone.patch_embed.proj.weight.grad is None
