import numpy as np
import pytest
import torch

from polygrain.tll.adaptation.recall import asymmetric_recall, better_ranks, recall_of

# Truth on the diagonal. Ranks left to right: 1, 3, 2, 2; right to left: 2, 1, 3, 2; so the better ones: 1, 1, 2, 2.
HAND = np.array(
    [
        [0.9, 0.1, 0.8, 0.2],
        [0.7, 0.5, 0.6, 0.3],
        [0.2, 0.3, 0.4, 0.6],
        [1.0, 0.2, 0.1, 0.5],
    ]
)


def plain_ranks(similarity: np.ndarray) -> list[int]:
    """By sorting, as the published code does, without ties."""
    ranks = []
    for i in range(len(similarity)):
        forth = np.argsort(-similarity[i]).tolist().index(i)
        back = np.argsort(-similarity[:, i]).tolist().index(i)
        ranks.append(1 + min(forth, back))
    return ranks


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_asymmetric_recall__by_hand(kind):
    np.testing.assert_allclose(asymmetric_recall(kind(HAND), [1, 2, 3]), [0.5, 1.0, 1.0])


def test_asymmetric_recall__equals_sorting():
    similarity = np.random.default_rng(0).normal(size=(60, 60)) + 1.5 * np.eye(60)
    ranks = np.array(plain_ranks(similarity))
    found = asymmetric_recall(similarity, range(1, 61))
    np.testing.assert_allclose(found, [(ranks <= k).mean() for k in range(1, 61)])
    assert found[-1] == 1.0 and (np.diff(found) >= 0).all()


def test_asymmetric_recall__alike_is_not_found():
    assert asymmetric_recall(np.ones((5, 5)), [1, 4, 5]).tolist() == [0.0, 0.0, 1.0]
    assert asymmetric_recall(np.eye(5), [1]).tolist() == [1.0]


@pytest.mark.parametrize(
    ("similarity", "ks", "message"),
    [
        (np.zeros((2, 3)), [1], r"a square left x right matrix is needed, met the shape \(2, 3\)"),
        (np.zeros((0, 0)), [1], r"met the shape \(0, 0\)"),
        (np.full((2, 2), np.nan), [1], "not finite"),
        (np.eye(2), [1, 0], "k is 0; recall at k needs k = 1 or more"),
    ],
)
def test_asymmetric_recall__raise(similarity, ks, message):
    with pytest.raises(ValueError, match=message):
        asymmetric_recall(similarity, ks)


@pytest.mark.parametrize("block_bytes", [1, 1000, 2**20])
def test_better_ranks__equal_those_of_the_whole_matrix(block_bytes):
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(3, 40, 6, generator=generator)
    right = left + torch.randn(3, 40, 6, generator=generator)
    found = better_ranks(left, right, block_bytes)
    for run in range(3):
        assert found[run].tolist() == plain_ranks((left[run] @ right[run].T).numpy())
    np.testing.assert_allclose(recall_of(found, [1, 3])[0], asymmetric_recall((left[0] @ right[0].T), [1, 3]))


def test_better_ranks__count_equals_against():
    rows = torch.eye(4)[None, [0, 0, 2, 3]]
    assert better_ranks(rows, rows).tolist() == [[2, 2, 1, 1]]
