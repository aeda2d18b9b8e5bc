import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.projector_balance import projector_weights
from polygrain.losses.projector_contrast import projector_contrast
from polygrain.mpcl.pretraining.heads import Measured
from polygrain.mpcl.pretraining.objective import HeadBalance, combine, evenness


def measured(heads=3):
    return Measured(torch.rand(heads), torch.rand(heads), torch.randn(heads, 5, 7), torch.randn(5, 7))


def test_combine__is_equation_4():
    step, weights = measured(), torch.tensor([0.5, 0.3, 0.2])
    values = combine(step, weights, 0.01, 0.25)
    cosines = [
        [torch.cosine_similarity(step.projections[m], step.projections[o], dim=1).mean() for o in range(3) if o != m]
        for m in range(3)
    ]
    plain = sum(weights[m] * step.losses[m] + 0.01 * sum(cosines[m]) / 2 for m in range(3)) / 3 + 0.25
    torch.testing.assert_close(values["loss"], plain)
    torch.testing.assert_close(values["contrast"], projector_contrast(step.projections))


@pytest.mark.parametrize(("balance", "first", "factor"), [("literal", 0.25, 1), ("neutral", 1.0, 4)])
def test_head_balance__weights_come_from_the_last_epochs_mean_accuracy(balance, first, factor):
    heads = HeadBalance(4, balance, 0.5)
    heads.next_epoch(0, 0.01)
    assert heads.weights.tolist() == [first] * 4
    for shift in (-0.1, 0.1):
        heads.record(torch.tensor([0.70, 0.75, 0.80, 0.85]) + shift, torch.tensor(0.5))
    heads.next_epoch(1, 0.01)
    torch.testing.assert_close(heads.weights, factor * projector_weights([0.70, 0.75, 0.80, 0.85], 0.5))
    heads.record(torch.full((4,), 0.5), torch.tensor(0.5))
    heads.next_epoch(2, 0.01)
    assert heads.weights.tolist() == pytest.approx([first] * 4)  # the epoch before is forgotten


def test_head_balance__a_collapse_names_its_epoch():
    heads = HeadBalance(2, "literal", 0.5)
    heads.record(torch.tensor([0.1, 0.9]), evenness(torch.ones(5, 7)))
    with pytest.raises(ValueError, match="epoch 3"):
        heads.next_epoch(3, 0.01)


def test_evenness__is_one_for_even_and_zero_for_equal_features():
    assert evenness(torch.randn(4000, 50)).item() == pytest.approx(1, abs=0.02)
    assert evenness(torch.randn(1, 50).expand(9, 50)).item() == pytest.approx(0, abs=1e-4)
    x = torch.randn(6, 4)
    plain = torch.stack([normalize(row, dim=0) for row in x]).std(0, correction=0).mean() * 2
    torch.testing.assert_close(evenness(x), plain)
