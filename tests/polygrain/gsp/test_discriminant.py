import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from polygrain.gsp import discriminant
from polygrain.gsp.discriminant import Scatter

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 5, 300)
FEATURES = RANDOM.normal(size=(300, 6)) @ RANDOM.normal(size=(6, 6)) + 3 * RANDOM.normal(size=(5, 6))[LABELS] + 7


def gathered(classes: int = 5, step: int = 64) -> Scatter:
    scatter = Scatter(classes, 6, torch.device("cpu"))
    for start in range(0, 300, step):
        scatter.add(*(torch.from_numpy(x[start : start + step]) for x in (FEATURES, LABELS)))
    return scatter


def test_discriminants__equal_sklearns(monkeypatch):
    monkeypatch.setattr(discriminant, "RIDGE", 0.0)
    mean, axes = gathered().discriminants(3)
    theirs = LinearDiscriminantAnalysis(n_components=3, solver="svd").fit(FEATURES, LABELS)
    ours = (FEATURES - mean.numpy()) @ axes.numpy()
    result = theirs.transform(FEATURES)
    signs = np.sign((result * ours).sum(0))
    assert np.allclose(ours * signs, result, atol=1e-4)


def test_discriminants__no_more_than_classes_and_dimensions_allow():
    assert gathered().discriminants(512)[1].shape == (6, 4)
    assert gathered(classes=9).discriminants(512)[1].shape == (6, 4)  # four classes were never met


def test_discriminants__a_direction_without_variance_is_no_trouble():
    scatter = Scatter(2, 3, torch.device("cpu"))
    features = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    features[:, 2] = 1
    scatter.add(features, torch.arange(20) % 2)
    assert torch.isfinite(scatter.discriminants(1)[1]).all()


def test_discriminants__want_two_classes():
    scatter = Scatter(3, 6, torch.device("cpu"))
    scatter.add(torch.ones(4, 6), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="two"):
        scatter.discriminants(2)
