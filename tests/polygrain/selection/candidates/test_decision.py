import math

import numpy as np
import pytest

from polygrain.selection.candidates.decision import Judged, decide, falls, interval, noise, standard_error
from polygrain.selection.criterion import Sample, mean_over_tasks


def sample_of(*sizes):
    names = np.array([f"task{i}" for i, size in enumerate(sizes) for _ in range(size)], dtype=object)
    return Sample(np.arange(sum(sizes)), names)


def drawn(count, seed):
    """Scores with many ties; agreement without, for the last bit would decide."""
    generator = np.random.default_rng(seed)
    return Judged(generator.integers(0, 5, count) / 4, generator.random(count))


def plain_error(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def test_noise__is_the_spread_of_the_mean_over_images_drawn_anew():
    values, generator = np.random.default_rng(0).normal(size=150), np.random.default_rng(1)
    means = [
        (generator.choice(values[:50], 50).mean() + generator.choice(values[50:], 100).mean()) / 2 for _ in range(4000)
    ]
    error = noise(values, sample_of(50, 100))
    assert error == pytest.approx(np.std(means), rel=0.05)
    assert error == pytest.approx(math.hypot(plain_error(values[:50]), plain_error(values[50:])) / 2)
    assert standard_error(np.array([0.3])) == math.inf and standard_error(np.array([0.3, 0.3])) == 0


def test_falls__names_the_tasks_below_the_encoder_by_more_than_noise():
    sample, encoder = sample_of(4, 4, 4), Judged(np.full(12, 0.5), np.zeros(12))
    lower = Judged(np.array([0, 0, 0, 0.25, 0.25, 0.5, 0.5, 0.5, 1, 1, 1, 1]), np.zeros(12))
    assert falls(lower, encoder, sample, 2.0) == ["task0"]
    assert falls(lower, encoder, sample, 0.5) == ["task0", "task1"]
    assert falls(encoder, encoder, sample, 0.0) == []


def plain_choice(candidates, sizes, errors, guard):
    """`decide` by sorting: who falls nowhere, the best of them, who is as good, the gentlest of those."""
    ends = np.cumsum(sizes)
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def mean(values):
        return sum(sum(values[own]) / len(values[own]) for own in parts) / len(parts)

    def is_allowed(name):
        lost = candidates["encoder"].score - candidates[name].score
        return name == "encoder" or all(lost[own].mean() <= guard * plain_error(lost[own]) for own in parts)

    def is_near(name):
        lost = candidates[best].score - candidates[name].score
        return mean(lost) <= errors * math.hypot(*(plain_error(lost[own]) for own in parts)) / len(parts)

    allowed = [name for name in candidates if is_allowed(name)]
    best = sorted(allowed, key=lambda name: -mean(candidates[name].score))[0]
    near = [name for name in allowed if is_near(name)]
    return sorted(near, key=lambda name: -mean(candidates[name].agreement))[0]


@pytest.mark.parametrize("errors", [0.0, 1.0, 2.0])
def test_decide__equals_the_rule_written_out(errors):
    sizes, chosen = (12, 7), set()
    for seed in range(40):
        candidates = {f"c{i}": drawn(19, 100 * seed + i) for i in range(5)} | {"encoder": drawn(19, 100 * seed + 99)}
        decision = decide(candidates, "encoder", sample_of(*sizes), errors, 1.5)
        assert decision.chosen == plain_choice(candidates, sizes, errors, 1.5)
        assert decision.falls == {
            name: falls(one, candidates["encoder"], sample_of(*sizes), 1.5) for name, one in candidates.items()
        }
        allowed = [name for name, tasks in decision.falls.items() if not tasks]
        assert decision.best == max(
            allowed, key=lambda name: mean_over_tasks(candidates[name].score, sample_of(*sizes))
        )
        chosen.add(decision.chosen)
    assert len(chosen) > 3
    one = {name: drawn(1, i) for i, name in enumerate(["encoder", "a"])}  # a task of one image
    assert decide(one, "encoder", sample_of(1), errors, 1.5).chosen in one


def test_decide__the_encoder_where_all_others_fall():
    good = Judged(np.tile([1.0, 0.5], 20), np.zeros(40))
    half = Judged(np.concatenate([np.ones(20), np.zeros(20)]), np.ones(40))
    candidates = {"encoder": good, "half": half, "none": Judged(np.zeros(40), np.ones(40))}
    decision = decide(candidates, "encoder", sample_of(20, 20), 1.0, 1.0)
    assert decision.chosen == decision.best == "encoder"
    assert decision.falls == {"encoder": [], "half": ["task1"], "none": ["task0", "task1"]}


def test_interval__equals_a_plain_bootstrap():
    parts = np.split(np.random.default_rng(0).random(30), [10])
    mean, low, high = interval(parts, draws=4000)
    generator = np.random.default_rng(5)
    means = sorted(
        sum(sum(part[generator.integers(len(part))] for _ in part) / len(part) for part in parts) / 2
        for _ in range(4000)
    )
    assert mean == pytest.approx(sum(part.mean() for part in parts) / 2)
    assert (low, high) == pytest.approx((means[100], means[3900]), abs=0.01)
    assert interval([np.array([0.9])]) == (0.9, 0.9, 0.9) and all(map(math.isnan, interval([])))
