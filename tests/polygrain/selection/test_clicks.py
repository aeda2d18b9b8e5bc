import numpy as np
import pytest

from polygrain.selection.clicks import DEPTHS, FALL, MOST, RIGHT, SHOWN, Clicks

QUERIES, ROWS = 40, 200


def rankings(seed: int = 0) -> np.ndarray:
    """Of five settings; the rows below 20 are relevant to every query, and the fourth setting finds most of them."""
    generator, ranked = np.random.default_rng(seed), []
    for found in (2, 4, 6, 14, 3):
        scores = generator.random((QUERIES, ROWS))
        scores[:, :found] += 1
        ranked.append(np.argsort(-scores, axis=1)[:, :100])
    return np.array(ranked)


def vote_of(question, is_relevant) -> str:
    first, second = (sum(map(is_relevant, rows)) for rows in (question.first, question.second))
    return "0" if first == second else "1" if first > second else "2"


def clicked(test: Clicks) -> tuple[str, int]:
    votes = ""
    while (question := test.after(votes).question) is not None:
        votes += vote_of(question, lambda row: row < 20)
    return votes, test.after(votes).best


def test_clicks__find_the_setting_that_finds_most() -> None:
    for chosen in (0, 3, 4):
        votes, best = clicked(Clicks(rankings(), chosen))
        assert best == 3 and 0 < len(votes) <= MOST
    # Who never prefers one keeps what is chosen, and is asked no more often than that.
    test = Clicks(rankings(), 1)
    assert test.after("0" * MOST).question is None and test.after("0" * MOST).best == 1


def test_clicks__questions_and_weights_equal_a_loop() -> None:
    ranked = rankings()
    test, weights, votes = Clicks(ranked, 2), [FALL ** abs(i - 2) for i in range(5)], "1202110"
    for i, vote in enumerate(votes):
        question = test.after(votes[:i]).question
        top = [set(rows[question.query, : question.depth].tolist()) for rows in ranked]
        assert 0 < len(question.first) == len(question.second) <= SHOWN and question.depth in DEPTHS
        # Some setting found all of a group and none of the other.
        for group, other in ((question.first, question.second), (question.second, question.first)):
            assert any(set(group) <= rows and not set(other) & rows for rows in top)
        for number, rows in enumerate(top):
            more = len(rows & set(question.first)) - len(rows & set(question.second))
            agrees = more * {"0": 0, "1": 1, "2": -1}[vote]
            weights[number] *= RIGHT if agrees > 0 else 1 - RIGHT if agrees < 0 else 0.5
        np.testing.assert_allclose(test.after(votes[: i + 1]).weights, np.array(weights) / sum(weights))
    queries = [one.query for one, _ in test.after(votes).asked]
    assert len(set(queries)) == len(votes)


def test_clicks__end_where_nothing_differs_and_refuse_other_votes() -> None:
    same = np.repeat(rankings()[:1], 3, 0)
    assert Clicks(same, 1).after("").question is None and Clicks(same, 1).after("").best == 1
    for votes, given in ((same, "1"), (rankings(), "3")):
        with pytest.raises(ValueError, match="votes"):
            Clicks(votes, 0).after(given)
