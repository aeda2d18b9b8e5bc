import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from polygrain.gsp import discriminant
from polygrain.gsp.discriminant import ClassSums

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 5, 300)
FEATURES = RANDOM.normal(size=(300, 6)) @ RANDOM.normal(size=(6, 6)) + 3 * RANDOM.normal(size=(5, 6))[LABELS] + 7


def scatter_of(features, labels, classes=5):
    scatter = ClassSums(classes, features.shape[1], torch.device("cpu"))
    for start in range(0, len(features), 64):
        scatter.add(*(torch.from_numpy(x[start : start + 64]) for x in (features, labels)))
    return scatter


def test_discriminants__equal_sklearns(monkeypatch):
    monkeypatch.setattr(discriminant, "RIDGE", 0.0)
    mean, axes = scatter_of(FEATURES, LABELS).discriminants(3)
    theirs = LinearDiscriminantAnalysis(n_components=3, solver="svd").fit(FEATURES, LABELS).transform(FEATURES)
    ours = (FEATURES - mean.numpy()) @ axes.numpy()
    assert np.allclose(ours * np.sign((theirs * ours).sum(0)), theirs, atol=1e-4)


def test_discriminants__no_more_than_classes_and_dimensions_allow():
    for classes in (5, 9):  # of nine, four were never met
        assert scatter_of(FEATURES, LABELS, classes).discriminants(512)[1].shape == (6, 4)


def test_discriminants__a_direction_without_variance_is_no_trouble():
    features = np.column_stack([FEATURES[:, :2], np.ones(300)])
    assert torch.isfinite(scatter_of(features, LABELS).discriminants(1)[1]).all()
