import math

import torch

from polygrain.losses.projector_balance import projector_weights


def test_projector_weights__are_the_softmax_of_the_errors():
    accuracies, epsilon = [0.1, 0.9, 0.4], 0.3
    terms = [math.exp((1 - a) / epsilon) for a in accuracies]
    torch.testing.assert_close(
        projector_weights(torch.tensor(accuracies), epsilon), torch.tensor([t / sum(terms) for t in terms])
    )
