import numpy as np
import pytest
import torch

from polygrain.retrieval import index as module
from polygrain.retrieval.index import Index, duplicates


def draw(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    x[n // 2] = x[1]
    x[n - 1] = x[1]
    return torch.nn.functional.normalize(x, dim=1)


def plain(x, k):
    """One sum at a time, so that equal rows have equal scores."""
    scores = np.array([[sum((a * b).tolist()) for b in x.double().numpy()] for a in x.double().numpy()])
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def ask(gallery, n, k):
    return torch.cat([gallery.ranked(rows, k) for rows in torch.arange(n).split(gallery.step)]).numpy()


@pytest.mark.parametrize("cells", [1, 1000, 70 * 70])
@pytest.mark.parametrize("k", [1, 5, 69])
def test_ranked__does_not_depend_on_how(cells, k, monkeypatch):
    monkeypatch.setattr(module, "CELLS", cells)
    monkeypatch.setattr(module, "ROWS", 1)
    x = draw(70, 9)
    gallery = Index(x)
    assert (ask(gallery, 70, k) == plain(x, k)).all()


def test_ranked__uses_a_shortlist_for_shallow_rankings_only(monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(module, "SHALLOW", 3 / 200)
    monkeypatch.setattr(module, "CELLS", 10_000)
    monkeypatch.setattr(module, "ROWS", 1)
    x = draw(200, 40)
    gallery, depths = Index(x), []
    kept = gallery.shortlist.nearest
    monkeypatch.setattr(gallery.shortlist, "nearest", lambda rows, k: depths.append(k) or kept(rows, k))
    for k in (2, 3, 4):
        assert (ask(gallery, 200, k) == plain(x, k)).all()
    assert set(depths) == {2, 3}


def test_ranked__goes_on_without_a_shortlist_that_would_be_long(monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)
    x = draw(300, 4).abs()
    gallery = Index(torch.nn.functional.normalize(x * torch.tensor([1, 1e-4, 1e-4, 1e-4]), dim=1))
    assert gallery.shortlist.nearest(torch.arange(4), 1) is None
    assert gallery.ranked(torch.arange(4), 1).shape == (4, 1)


def test_duplicates__name_the_first_of_equal_rows():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    assert duplicates(x).tolist() == [[2, 3, 5], [0, 1, 1]]
    assert duplicates(x[:2]).shape == (2, 0)


@pytest.mark.parametrize(("n", "step"), [(100, 100), (40_000, 419), (1_000_000, 256), (10_000_000, 26)])
def test_step__is_of_many_rows_while_memory_lasts(n, step):
    gallery = Index(torch.zeros(1).expand(n, 1))
    assert gallery.step == step and step * n <= max(module.MOST, n)


@pytest.mark.parametrize("shallow", [0.0, 1.0])
def test_ranked__holds_the_scores_of_a_step_at_most(shallow, monkeypatch):
    """Twice the images, and the memory for scores stays: it is not that of all pairs."""
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(module, "SHALLOW", shallow)
    monkeypatch.setattr(module, "CELLS", 2_000)
    monkeypatch.setattr(module, "MOST", 10_000)
    for n in (200, 400):
        gallery = Index(draw(n, 40))
        ask(gallery, n, 3)
        assert gallery.buffer.numel() + gallery.shortlist.buffer.numel() <= 2 * (10_000 + 64 * gallery.step)
