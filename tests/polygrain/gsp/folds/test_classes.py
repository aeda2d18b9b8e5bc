import numpy as np
import pytest
import torch
from pydantic import ValidationError

from polygrain.gsp.folds.classes import ClassBatches, Protocol, folds

LABELS = np.repeat(np.array([3, 5, 6, 9, 11, 12, 20], dtype=np.int64), 2)
NAMES = ["a", "b", "c", "d"]
FEW = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3], dtype=np.int64)


def make_folds(kind, count):
    return folds(LABELS, Protocol(kind=kind, folds=count, chosen_by="map_at_r"))


def test_folds__every_class_validates_once_and_never_in_its_own_training():
    made = make_folds("fair", 3)
    assert [fold.validation.tolist() for fold in made] == [[12, 20], [9, 11], [3, 5, 6]]
    assert all(sorted([*fold.train, *fold.validation]) == [3, 5, 6, 9, 11, 12, 20] for fold in made)


def test_folds__tuning_runs_the_first_fold_and_conventional_holds_out_none():
    (tuning,) = make_folds("tuning", 3)
    (conventional,) = make_folds("conventional", 1)
    assert tuning.validation.tolist() == [12, 20]
    assert len(conventional.train) == 7 and len(conventional.validation) == 0


def test_folds__refuse_a_number_that_does_not_fit():
    with pytest.raises(ValueError, match="at most 3 folds"):
        make_folds("fair", 4)
    for kind, count in (("conventional", 4), ("fair", 1)):
        with pytest.raises(ValidationError, match="folds"):
            make_folds(kind, count)


def test_draw__gives_m_different_images_of_each_of_some_classes():
    batches, generator, drawn = ClassBatches(FEW, 3, 2, NAMES), torch.Generator().manual_seed(0), set()
    for _ in range(50):
        rows = batches.draw(generator).tolist()
        classes, counts = np.unique(FEW[rows], return_counts=True)
        assert len(classes) == 3 and (counts == 2).all() and len(set(rows)) == 6
        drawn |= set(rows)
    assert drawn == set(range(len(FEW)))


def test_draw__repeats_images_only_where_a_class_has_too_few():
    rows = ClassBatches(FEW, 4, 4, NAMES).draw(torch.Generator().manual_seed(0)).tolist()
    of_class = [[row for row in rows if FEW[row] == label] for label in range(4)]
    assert [(len(each), len(set(each))) for each in of_class] == [(4, 3), (4, 2), (4, 4), (4, 2)]


def test_init__raises_for_too_few_classes_and_for_pairs_of_one_image():
    with pytest.raises(ValueError, match="batch_classes"):
        ClassBatches(FEW, 5, 2, NAMES)
    with pytest.raises(ValueError, match=r"\(d\)"):
        ClassBatches(FEW[:-1], 2, 2, NAMES)
    ClassBatches(FEW[:-1], 2, 1, NAMES)  # proxies need no pair
