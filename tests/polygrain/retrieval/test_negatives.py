import numpy as np
import pytest

from polygrain.retrieval.negatives import Negatives, even_keys


def scores(shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32).clip(-1, 1)


def plain(own, negatives):
    """Whether each of the R nearest is of the own class, by a sort of all scores."""
    r = len(own)
    order = np.argsort(-np.concatenate([own, negatives]), kind="stable")[:r]
    return order < r


def with_itself(own, itself):
    """A query's own column may hold anything."""
    return np.insert(own, itself, 1.0)[None].astype(np.float32)


def test_hits__equal_a_sort_of_all_scores():
    own, others = scores((6, 9)), scores((6, 40), 1)
    negatives = Negatives(np.full(6, -0.2, np.float32), np.full(6, 40))
    negatives.add_rows(others[:, :7], 0)
    negatives.add_columns(np.ascontiguousarray(others[:4, 7:].T), 0)
    negatives.add_columns(np.ascontiguousarray(others[4:, 7:].T), 4)
    assert negatives.count.tolist() == (others >= np.float32(-0.2)).sum(1).tolist()
    hits, certain = negatives.hits(np.insert(own, 0, 1, axis=1)[:1], 0, 0)
    assert certain.all() and (hits[0] == plain(own[0], others[0])).all()
    # Queries 2 to 5 are members 3 to 6 of a class of ten.
    class_scores = np.stack([np.insert(own[q], q + 1, 1.0) for q in range(2, 6)]).astype(np.float32)
    hits, certain = negatives.hits(class_scores, 3, 2)
    assert certain.all()
    for q in range(2, 6):
        assert (hits[q - 2] == plain(own[q], others[q])).all()


def test_hits__without_negatives_are_all():
    negatives = Negatives(np.full(2, -1.5, np.float32), np.zeros(2, np.int64))
    hits, certain = negatives.hits(scores((2, 5)), 3, 0)
    assert hits.shape == (2, 4) and hits.all() and certain.all()


@pytest.mark.parametrize(("negative", "certain"), [(0.5, False), (0.25, False), (0.1, True), (0.4, True)])
def test_hits__are_not_certain_where_a_negative_ties(negative, certain):
    # R = 2: a tie matters down to the place behind the last.
    negatives = Negatives(np.full(1, -1.5, np.float32), np.full(1, 4))
    negatives.add_rows(np.array([[negative, -0.5]], np.float32), 0)
    assert negatives.hits(with_itself([0.5, 0.25], 1), 1, 0)[1].tolist() == [certain]


def test_hits__take_minus_zero_for_zero():
    negatives = Negatives(np.full(1, -1.5, np.float32), np.full(1, 4))
    negatives.add_rows(np.array([[-0.0]], np.float32), 0)
    assert not negatives.hits(with_itself([0.0], 0), 0, 0)[1].any()


def test_hits__are_not_certain_below_a_bound_that_too_few_reach():
    negatives = Negatives(np.array([0.2, 0.3], np.float32), np.full(2, 4))
    negatives.add_rows(np.array([[0.4, 0.1], [0.4, 0.1]], np.float32), 0)
    own = np.concatenate([with_itself([0.25, 0.0], q) for q in range(2)])
    hits, certain = negatives.hits(own, 0, 0)
    # Of the first, 0.4 and 0.25 reach the bound; of the second, 0.4 alone, and 0.25 may not be the next.
    assert certain.tolist() == [True, False]
    assert hits[0].tolist() == [False, True]


def test_hits__are_not_certain_of_a_query_that_more_reached_than_were_allowed():
    negatives = Negatives(np.full(3, -1.5, np.float32), np.array([2, 1, 2]))
    negatives.scores.view(np.uint32)[:] = 0x7F800001  # a NaN that warns when it is added to
    negatives.add_rows(np.array([[0.4, 0.3], [0.4, 0.3], [0.4, 0.3]], np.float32), 0)
    negatives.add_columns(np.array([[0.35]], np.float32), 0)
    own = np.concatenate([with_itself([0.5, 0.2], q) for q in range(3)])
    hits, certain = negatives.hits(own, 0, 0)
    assert certain.tolist() == [False, False, True] and hits[2].tolist() == [True, False]


def test_even_keys__are_even_and_order_as_scores_do():
    values = np.array(
        [-1.5, -1.0, -1e-3, -1e-40, 0.0, 1e-40, 1e-3, 1.0, np.nextafter(np.float32(1), 2), 1.5], np.float32
    )
    found = even_keys(values)
    assert (np.diff(found.astype(np.int64)) >= 2).all() and (found % 2 == 0).all()
    assert even_keys(np.array([-0.0], np.float32)) == even_keys(np.array([0.0], np.float32))
