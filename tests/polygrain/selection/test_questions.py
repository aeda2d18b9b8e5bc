"""The criterion that sees the collection."""

import numpy as np

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.smoothing import Smoothing, mixed_with_nearest, smooth_as
from polygrain.retrieval.smoothing_choice import SETTINGS, choose
from polygrain.selection.questions import Questions, ask

RNG = np.random.default_rng(0)
FEW = SETTINGS.model_copy(update={"neighbours": 4, "depth": 6, "fewest": 20, "queries": 8, "strengths": [0.9]})
TASKS = np.array(["a", "b"] * 5 + ["a"] * 30 + ["b"] * 15 + ["c"] * 4)


def clustered(spread=0.3):
    count = len(TASKS)
    centres = RNG.normal(size=(4, 12))
    return unit_rows((centres[RNG.integers(4, size=count)] + spread * RNG.normal(size=(count, 12))).astype(np.float32))


def by_hand(vectors, task, smoothing, depth):
    """The nearest rows for each row that asks, by sorting all cosines."""
    own = [i for i in range(10, len(TASKS)) if TASKS[i] == task]
    searched, result = vectors[own], []
    if smoothing:
        searched = smooth_as(searched, smoothing)
    for i in [i for i in range(10) if TASKS[i] == task]:
        query = vectors[[i]]
        if smoothing:
            query = mixed_with_nearest(query, searched, smoothing)
        result.append(set(np.argsort(-(searched @ query[0]), kind="stable")[:depth].tolist()))
    return result


def test_ask__teachers_answer_from_their_smoothed_collection():
    targets = clustered()
    questions = ask(targets, TASKS, 10, FEW, 0)
    for task, depth in (("a", 6), ("b", 3)):
        smoothing = choose(targets[10:][TASKS[10:] == task], FEW, 0).smoothing
        assert questions.smoothings[task] == smoothing
        answers = by_hand(targets, task, smoothing, depth)
        assert [set(ranks.tolist()) for ranks in questions.expected[task]] == answers


def test_judge__is_the_share_of_the_teachers_answers_plain_and_smoothed():
    targets, vectors = clustered(), clustered()
    smoothings = {"a": Smoothing(0.9, 4, 2), "b": Smoothing(0.5, 3)}
    expected = {task: by_hand(targets, task, one, 5) for task, one in smoothings.items()}
    ranks = {task: np.array([sorted(row) for row in rows]) for task, rows in expected.items()}
    score, smoothed = Questions(TASKS, 10, smoothings, ranks).judge(vectors)
    for i in range(10):
        task, place = TASKS[i], i // 2
        shares = [
            len(by_hand(vectors, task, one, 5)[place] & expected[task][place]) / 5 for one in (None, smoothings[task])
        ]
        assert np.isclose(score[i], np.mean(shares)) and np.isclose(smoothed[i], shares[1])
        assert np.isclose(Questions(TASKS, 10, smoothings, ranks, ["plain"]).judge(vectors)[0][i], shares[0])


def test_judge__the_teacher_itself_agrees_best_and_noise_least():
    targets = clustered()
    questions = ask(targets, TASKS, 10, FEW, 0)
    own, near, noise = (
        questions.judge(vectors)[1].mean()
        for vectors in (targets, unit_rows(targets + 0.6 * clustered()), clustered(spread=9))
    )
    assert own == 1 and own > near > noise


def test_ask__a_task_with_few_rows_asks_nothing():
    tasks = np.array(["a", "c", *TASKS[2:]])
    questions = ask(clustered(), tasks, 2, FEW, 0)
    assert list(questions.expected) == ["a"]
    assert questions.judge(clustered())[0][1] == 0
