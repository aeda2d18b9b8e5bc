import pytest
import torch

from polygrain.gsp.studies.tokens import LIMIT, Bags, World, draw, map_at_r
from polygrain.losses.zero_shot import zero_shot_loss

WORLD = World(classes=3, own=2, shared=2, bag=10, mean_share=0.5, share_deviation=0.1)


def test_draw__mixes_own_and_shared_tokens_about_evenly():
    labels = torch.arange(3).repeat(400)
    bags = draw(WORLD, labels, torch.Generator().manual_seed(0))
    own = (bags // 2 == labels[:, None]) & (bags < 6)
    assert bool((own | (bags >= 6)).all()) and int(bags.max()) == 7
    share = own.float().mean(1)
    assert abs(float(share.mean()) - 0.5) < 0.02 and 0.05 < float(share.std()) < 0.15


def test_map_at_r__is_that_of_a_plain_loop_over_distances():
    torch.manual_seed(0)
    vectors, labels = torch.randn(30, 3), torch.arange(5).repeat(6)
    total = 0.0
    for i in range(30):
        others = [j for j in range(30) if j != i]
        order = sorted(others, key=lambda j: float((vectors[i] - vectors[j]).norm()))[:5]
        hits = [bool(labels[j] == labels[i]) for j in order]
        total += sum(sum(hits[: k + 1]) / (k + 1) for k in range(5) if hits[k]) / 5
    assert map_at_r(vectors, labels) == pytest.approx(total / 30)


def test_bags__a_mean_is_the_mean_of_the_tokens_and_the_tokens_stay_small():
    bags = Bags(WORLD, 4, "gap", {}, 0.5, 0.0)
    some = draw(WORLD, torch.tensor([0, 2]), torch.Generator().manual_seed(0))
    assert torch.allclose(bags(some).vector, bags.tokens[some].mean(1), atol=1e-6)
    bags.tokens.data.fill_(5)
    bags.clamp()
    assert bags.tokens.max().item() == pytest.approx(LIMIT)


def test_bags__the_zero_shot_loss_takes_its_share():
    bags = Bags(WORLD, 4, "gsp", {"prototypes": 4, "mu": 0.5, "epsilon": 5.0}, 0.5, 0.25)
    labels = torch.arange(3).repeat(4)
    some = draw(WORLD, labels, torch.Generator().manual_seed(0))
    pooled = bags(some)
    expected = 0.75 * bags.loss(pooled.vector, labels)
    expected += 0.25 * zero_shot_loss(pooled.attributes, labels, bags.class_embeddings, 0.05, 9.5)
    assert torch.isclose(bags.loss_of(some, labels), expected)
