import numpy as np
import pytest
import torch

from polygrain.retrieval import ranking
from polygrain.retrieval.ranking import rank


def plain(scores, k):
    """A stable sort of whole rows."""
    return np.argsort(-scores.numpy(), axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("k", [1, 2, 7, 40, 199])
@pytest.mark.parametrize("ranked", [1, 1000, 2**19])
def test_rank__equals_a_stable_sort(k, ranked, monkeypatch):
    monkeypatch.setattr(ranking, "RANKED", ranked)
    scores = torch.randn(23, 200, generator=torch.Generator().manual_seed(k))
    assert (rank(scores, k).numpy() == plain(scores, k)).all()


@pytest.mark.parametrize("k", [1, 5, 60])
def test_rank__breaks_ties_by_column_across_signs_and_infinities(k):
    values = torch.tensor([-torch.inf, -2.0, -1.0, -0.0, 0.0, 1e-40, -1e-40, 1.0, 2.0])
    scores = values[torch.randint(len(values), (30, 61), generator=torch.Generator().manual_seed(0))]
    # Minus zero equals zero, for the plain sort too.
    assert (rank(scores, k).numpy() == plain(scores, k)).all()


@pytest.mark.parametrize("period", [2, 4, 10, 20])
def test_rank__of_scores_that_come_round(period):
    # Groups of columns must not all belong to one class: then far more than are wanted would be sorted.
    scores = torch.rand(8, 400, generator=torch.Generator().manual_seed(0))
    scores[:, ::period] += 1
    assert (rank(scores, 19).numpy() == plain(scores, 19)).all()
    reached = (scores.numpy() >= ranking.certain(scores.numpy(), 19)).sum(1)
    assert (reached >= 19).all() and (reached < 100).all()


@pytest.mark.parametrize("k", [100, 900, 1_600])
def test_rank__of_a_sample_that_misleads(k):
    # All high scores stand where the sample is taken, or none: then the guess is far too high, or far too low.
    scores = torch.rand(4, 2_000, generator=torch.Generator().manual_seed(0))
    scores[:2, :: ranking.SAMPLED] += 2
    scores[2:, :: ranking.SAMPLED] -= 2
    assert (rank(scores, k).numpy() == plain(scores, k)).all()
