import numpy as np
import torch

from polygrain.retrieval.ranking_metrics import measure


def test_measure__gives_the_numbers_worked_by_hand():
    hits = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    # The first finds 2 of its 3 in time, at 1 and 3: (1 + 2/3) / 3. Of the second, 1 of 2, second: 1/2 / 2.
    expected = [[2 / 3, 1 / 2, 0, np.nan], [5 / 9, 1 / 4, 0, np.nan], [1, 0, 0, np.nan]]
    np.testing.assert_allclose(measure(hits, torch.tensor([3, 2, 1, 0])), expected, rtol=1e-15)


def test_measure__does_not_depend_on_what_comes_beyond():
    hits = torch.rand(20, 300, generator=torch.Generator().manual_seed(0)) < 0.5
    relevant = torch.full((20,), 170)
    found = measure(hits, relevant)
    for depth in (170, 171, 200):
        assert (measure(hits[:, :depth], relevant) == found).all()
    assert (measure(hits[3:4], relevant[3:4]) == found[:, 3:4]).all()
