"""TLL's loss, gradient, training and recall against numbers that the authors' code computed.

`tll_adaptation.npz` is of VieVie31/visual-similarity at 15d735576850162e529446b09b925170bfb6262e (`Adaptation` with 64
rows, `calc_loss`, the step of `training_step` with Adam's defaults, `AsymmetricRecall`): 60 pairs of noisy views of
shared numbers from `torch.Generator().manual_seed(0)`, original and flipped ones; for sigma 1 and 15 the loss and the
gradient at the start, the losses of 20 steps, the weights after them and their recall.
"""

import numpy as np
import pytest
import torch

from polygrain.tll.adaptation.descriptors import Sides
from polygrain.tll.adaptation.training import Training, activate, gradient, train
from tests.helpers.pairs import plain_recall
from tests.helpers.project import ROOT

ORACLE = np.load(ROOT / "tests/oracles/tll_adaptation.npz", allow_pickle=False)
VIEWS = np.stack([ORACLE["originals"], ORACLE["flipped"]], 1)  # side view pair dim
CASES = pytest.mark.parametrize("case", [0, 1], ids=["sigma 1", "sigma 15"])
SIDES = Sides(*(torch.from_numpy(side)[None] for side in VIEWS))


@CASES
def test_gradient__is_that_of_the_authors_code(case):
    start = torch.from_numpy(ORACLE["start"])[None]
    loss, found = gradient(start, SIDES, float(ORACLE["sigma"][case]))
    assert loss.item() == pytest.approx(ORACLE["first_loss"][case], rel=1e-6)
    expected = torch.from_numpy(ORACLE["first_gradient"][case])
    assert (found[0] - expected).abs().max() <= 1e-6 * expected.abs().max() + 1e-9


@CASES
def test_train__ends_where_the_authors_code_ends(case, tmp_path):
    steps = ORACLE["losses"].shape[1]
    state = Training(torch.from_numpy(ORACLE["start"].copy())[None], steps, steps, 5)
    test = Sides(*(side[:, :1] for side in SIDES))
    train(state, SIDES, test, float(ORACLE["sigma"][case]), 0.001, tmp_path / "work")
    assert np.allclose(state.losses[:, 0], ORACLE["losses"][case], rtol=1e-5)
    assert np.allclose(state.weights[0].detach(), ORACLE["weights"][case], atol=1e-5)
    units = [activate(side[0, 0], state.weights[0].detach()) for side in SIDES]
    recall = plain_recall(units[0] @ units[1].T, ORACLE["ks"].tolist())
    assert np.allclose(recall, ORACLE["recall"][case])
