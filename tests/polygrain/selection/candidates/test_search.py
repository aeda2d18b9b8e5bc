import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.fisher.closed_form import basis_of, closed_form, of_views
from polygrain.fisher.granularities import Granularities
from polygrain.fisher.scatter import within_clusters
from polygrain.retrieval.whitening import apply
from polygrain.selection import criterion
from polygrain.selection.candidates.forms import Form
from polygrain.selection.candidates.search import Evaluator, Scores, Settings, decide, falls, measure
from polygrain.selection.criterion import Embedded, Sample, half_whitened, mean_over_tasks
from polygrain.selection.seen import Seen
from polygrain.store.image_table import open_pixels, read_tables
from tests.helpers.settings import comparing
from tests.helpers.small import TASKS, write_encoder, write_images
from tests.polygrain.selection.test_criterion import plain_error, sample_of


def world(folder: Path, looks: bool = True, sizes: Sequence[int] = (2, 5)) -> Evaluator:
    """All but three of the training images are clustered, at random."""
    collection = read_tables(write_images(folder / "images"), list(TASKS))
    sample, rng = Sample(collection.train[::4], collection.tasks[collection.train[::4]]), np.random.default_rng(0)
    rows = np.delete(np.arange(len(collection.train)), [1, 5, 30])
    labels = {f"size{size}": np.arange(len(rows)) % (len(rows) // size) for size in sizes}
    given = Granularities(rows, collection.tasks[collection.train[rows]], labels)
    seen = Seen(sample, {}, unit_rows(rng.normal(size=(len(sample.rows), 9)).astype(np.float32)))
    return Evaluator(Settings(**comparing()), collection, seen if looks else Seen(sample), given)


def test_evaluate__finds_what_the_reference_has_and_its_own_views(tmp_path: Path) -> None:
    evaluator = world(tmp_path)
    looks = half_whitened(evaluator.seen.looks, evaluator.settings.reference.dim)
    same, hits = evaluator.evaluate(Embedded(looks, [(looks, looks)] * 2))
    assert same.score.tolist() == same.agreement.tolist() == [1] * len(looks) and list(hits) == list(TASKS)
    other, _ = evaluator.evaluate(Embedded(looks[::-1].copy(), [(looks, looks)] * 2))
    np.testing.assert_allclose(other.score, 0.8 + 0.2 * other.agreement)
    assert other.agreement.mean() < 0.9


def test_reference__without_looks_it_says_what_to_run_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dvc repro resolution"):
        _ = world(tmp_path, looks=False).reference


def test_measure__the_layer_is_of_the_clustered_images_and_of_the_views_of_the_sample(tmp_path: Path) -> None:
    evaluator = world(tmp_path)
    encoder, pixels = load(write_encoder(tmp_path / "encoder")), open_pixels(tmp_path / "images", list(TASKS))
    measured = {one.form.layer: one for one in measure(evaluator, encoder, Form("encoder"), pixels)}
    assert list(measured) == ["none", "clusters"] and measured["clusters"].form.blocks == 2
    wide, given = encoder.without_reduction(2), evaluator.granularities
    vectors = embed(wide, pixels, evaluator.collection.train[given.rows], 10, "float32", "")
    views = criterion.embed_views(wide, pixels, evaluator.sample, evaluator.settings.criterion).stacked()
    basis = basis_of(vectors, given.tasks)
    scatters = [within_clusters(basis.turn(vectors), labels) for labels in given.labels.values()]
    layer = closed_form(basis, scatters, of_views(basis, views))
    expected, _ = evaluator.evaluate(criterion.Embedded.of(views).through(lambda one: apply(layer, one)))
    np.testing.assert_allclose(measured["clusters"].scores.score, expected.score)


@pytest.mark.parametrize(("sizes", "layers"), [((), True), ((2, 5), False)])
def test_measure__as_it_is_where_no_layer_is_wanted(tmp_path: Path, sizes: tuple[int, ...], layers: bool) -> None:
    evaluator = world(tmp_path, sizes=sizes)
    encoder, pixels = load(write_encoder(tmp_path / "encoder")), open_pixels(tmp_path / "images", list(TASKS))
    assert [one.form for one in measure(evaluator, encoder, Form("encoder"), pixels, layers)] == [Form("encoder")]


def drawn(count, seed):
    """Scores with many ties; agreement without, for the last bit would decide."""
    generator = np.random.default_rng(seed)
    return Scores(generator.integers(0, 5, count) / 4, generator.random(count))


def test_falls__names_the_tasks_below_the_encoder_by_more_than_noise():
    sample, encoder = sample_of((4, 4, 4)), Scores(np.full(12, 0.5), np.zeros(12))
    lower = Scores(np.array([0, 0, 0, 0.25, 0.25, 0.5, 0.5, 0.5, 1, 1, 1, 1]), np.zeros(12))
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
        decision = decide(candidates, "encoder", sample_of(sizes), errors, 1.5)
        assert decision.chosen == plain_choice(candidates, sizes, errors, 1.5)
        assert decision.falls == {
            name: falls(one, candidates["encoder"], sample_of(sizes), 1.5) for name, one in candidates.items()
        }
        allowed = [name for name, tasks in decision.falls.items() if not tasks]
        assert decision.best == max(allowed, key=lambda name: mean_over_tasks(candidates[name].score, sample_of(sizes)))
        chosen.add(decision.chosen)
    assert len(chosen) > 3
    one = {name: drawn(1, i) for i, name in enumerate(["encoder", "a"])}  # a task of one image
    assert decide(one, "encoder", sample_of([1]), errors, 1.5).chosen in one


def test_decide__the_encoder_where_all_others_fall():
    good = Scores(np.tile([1.0, 0.5], 20), np.zeros(40))
    half = Scores(np.concatenate([np.ones(20), np.zeros(20)]), np.ones(40))
    candidates = {"encoder": good, "half": half, "none": Scores(np.zeros(40), np.ones(40))}
    decision = decide(candidates, "encoder", sample_of((20, 20)), 1.0, 1.0)
    assert decision.chosen == decision.best == "encoder"
    assert decision.falls == {"encoder": [], "half": ["task1"], "none": ["task0", "task1"]}
