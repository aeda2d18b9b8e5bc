import math

import pytest
import torch

from polygrain.losses.projector_balance import projector_weights


def test_projector_weights__of_the_worked_example():
    weights = projector_weights([0.70, 0.75, 0.80, 0.85], 0.5)
    assert [round(float(w), 3) for w in weights] == [0.289, 0.261, 0.236, 0.214]


def test_projector_weights__are_the_softmax_of_the_errors():
    accuracies, epsilon = [0.1, 0.9, 0.4], 0.3
    terms = [math.exp((1 - a) / epsilon) for a in accuracies]
    torch.testing.assert_close(
        projector_weights(torch.tensor(accuracies), epsilon), torch.tensor([t / sum(terms) for t in terms])
    )


def test_projector_weights__equal_accuracies_share_equally():
    torch.testing.assert_close(projector_weights([0.3] * 5, 0.5), torch.full((5,), 0.2))


@pytest.mark.parametrize("wrong", [[70.0, 80.0], [-0.1], [], [float("nan")]])
def test_projector_weights__refuses_what_is_no_fraction(wrong):
    with pytest.raises(ValueError, match="fraction between 0 and 1"):
        projector_weights(wrong, 0.5)


@pytest.mark.parametrize("epsilon", [0.0, -1.0])
def test_projector_weights__refuses_an_epsilon_that_is_not_positive(epsilon):
    with pytest.raises(ValueError, match="must be positive"):
        projector_weights([0.5], epsilon)
