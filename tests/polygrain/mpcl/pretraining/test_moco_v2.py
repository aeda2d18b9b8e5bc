import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from polygrain.mpcl.pretraining.heads import build_projectors
from polygrain.mpcl.pretraining.moco_v2 import MocoV2
from polygrain.mpcl.pretraining.split_norm import SplitBatchNorm2d
from tests.helpers.pretraining_world import RESNET, moco_v2, network, projector, views
from tests.helpers.small import CONFIG


def build(config=CONFIG, heads=3, batch=8, **changes):
    params = moco_v2(**changes)
    encoder = network(config)
    projectors = build_projectors(encoder.dim, heads, "shared", "plain", params.projector, 0.0)
    return MocoV2(encoder, projectors, params, batch, torch.Generator().manual_seed(0))


def test_forward__is_a_plain_moco_for_each_head():
    """One head at a time: momentum update, then keys, then logits against the queue as it was before."""
    moco, (first, second) = build(), views()
    with torch.no_grad():
        for parameter in moco.encoder.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))  # so that the copy has something to follow
    queue = moco.queue.clone()
    slow = {
        n: 0.9 * s + 0.1 * dict(moco.encoder.named_parameters())[n] for n, s in moco.slow_encoder.named_parameters()
    }
    keys = torch.func.functional_call(moco.slow_encoder, slow, second)
    measured = moco(first, second, 0.0, torch.Generator().manual_seed(0))
    for name, parameter in moco.slow_encoder.named_parameters():
        torch.testing.assert_close(parameter, slow[name].detach())
    measured.losses.sum().backward(retain_graph=True)
    assert moco.encoder.backbone.blocks[0].attn.qkv.weight.grad.abs().sum() > 0
    assert all(p.grad is None for part in (moco.slow_encoder, moco.slow_projectors) for p in part.parameters())
    for m in range(3):
        q = normalize(moco.projectors(moco.encoder(first))[m], dim=1)
        k = normalize(moco.slow_projectors(keys)[m], dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue[m].T], 1) / 0.2
        torch.testing.assert_close(measured.losses[m], cross_entropy(logits, torch.zeros(8, dtype=torch.long)))
        torch.testing.assert_close(moco.queue[m, :8], k)
        torch.testing.assert_close(moco.queue[m, 8:], queue[m, 8:])


def test_enqueue__the_oldest_keys_go_first():
    moco = build(heads=2)
    for number in range(3):
        moco.enqueue(torch.full((2, 8, 8), float(number)))
    assert moco.queue[0, :8].eq(2).all() and moco.queue[1, 8:].eq(1).all() and moco.pointer == 8


def test_moco_v2__batch_norms_of_both_sides_are_split_and_keys_shuffled():
    moco = build(RESNET, norm_splits=2)
    for side in (moco.encoder, moco.slow_encoder):
        assert sum(isinstance(m, SplitBatchNorm2d) for m in side.modules()) > 5
    first, second = views()
    order = []
    inside = moco.slow_encoder.forward
    moco.slow_encoder.forward = lambda images: (order.append(images.clone()), inside(images))[1]
    moco(first, second, 0.0, torch.Generator().manual_seed(0))
    assert not torch.equal(order[0], second) and torch.equal(
        order[0].sum((1, 2, 3)).sort()[0], second.sum((1, 2, 3)).sort()[0]
    )


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (CONFIG, {"queue": 20}, "does not divide"),
        (RESNET, {"norm_splits": 1}, "norm_splits is 1"),
        (RESNET, {"norm_splits": 8}, "norm_splits is 8"),
        (CONFIG, {"projector": projector("all")}, r"projector\.norm"),
    ],
)
def test_moco_v2__refuses_what_leaks_or_does_not_fit(config, changes, message):
    with pytest.raises(ValueError, match=message):
        build(config, **changes)
