import numpy as np
import pytest
import torch
from pydantic import ValidationError

from polygrain.gsp.folds.classes import ClassBatches, Protocol, folds


def make_protocol(kind, count, repeats):
    return Protocol(kind=kind, folds=count, repeats=repeats, chosen_by="map_at_r")


LABELS = np.repeat(np.array([3, 5, 6, 9, 11, 12, 20], dtype=np.int64), 2)


def test_folds__every_class_validates_once_and_never_in_its_own_training():
    made = folds(LABELS, make_protocol("fair", 3, 1))
    assert len(made) == 3
    assert sorted(np.concatenate([fold.validation for fold in made])) == [3, 5, 6, 9, 11, 12, 20]
    for fold in made:
        assert sorted([*fold.train, *fold.validation]) == [3, 5, 6, 9, 11, 12, 20]
    assert made[0].validation.tolist() == [12, 20] and made[-1].validation.tolist() == [3, 5, 6]


def test_folds__tuning_runs_the_first_fold_and_conventional_holds_out_none():
    (tuning,) = folds(LABELS, make_protocol("tuning", 3, 2))
    (conventional,) = folds(LABELS, make_protocol("conventional", 1, 3))
    assert tuning.validation.tolist() == [12, 20]
    assert len(conventional.train) == 7 and len(conventional.validation) == 0


def test_folds__raise_for_fewer_classes_than_the_folds_need():
    with pytest.raises(ValueError, match="at most 3 folds"):
        folds(LABELS, make_protocol("fair", 4, 1))


@pytest.mark.parametrize(("kind", "count"), [("conventional", 4), ("fair", 1), ("tuning", 1)])
def test_protocol__refuses_a_number_of_folds_that_does_not_fit(kind, count):
    with pytest.raises(ValidationError, match="folds"):
        make_protocol(kind, count, 1)


NAMES = ["a", "b", "c", "d"]
FEW = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3], dtype=np.int64)


def test_draw__gives_m_images_of_each_of_some_classes():
    batches = ClassBatches(FEW, 3, 2, NAMES)
    generator = torch.Generator().manual_seed(0)
    drawn = set()
    for _ in range(50):
        rows = batches.draw(generator)
        classes, counts = np.unique(FEW[rows.numpy()], return_counts=True)
        assert len(classes) == 3 and (counts == 2).all() and len(set(rows.tolist())) == 6
        drawn |= set(rows.tolist())
    assert drawn == set(range(len(FEW)))


def test_draw__repeats_images_only_where_a_class_has_too_few():
    rows = ClassBatches(FEW, 4, 4, NAMES).draw(torch.Generator().manual_seed(0)).tolist()
    for label, distinct in ((0, 3), (1, 2), (2, 4), (3, 2)):
        of_class = [row for row in rows if FEW[row] == label]
        assert len(of_class) == 4 and len(set(of_class)) == distinct


def test_init__raises_for_too_few_classes_and_for_pairs_of_one_image():
    with pytest.raises(ValueError, match="batch_classes"):
        ClassBatches(FEW, 5, 2, NAMES)
    with pytest.raises(ValueError, match=r"\(d\)"):
        ClassBatches(FEW[:-1], 2, 2, NAMES)
    ClassBatches(FEW[:-1], 2, 1, NAMES)  # proxies need no pair
