import numpy as np
import pytest
from pydantic import ValidationError

from stages.core.class_folds import Protocol, folds

LABELS = np.repeat(np.array([3, 5, 6, 9, 11, 12, 20], dtype=np.int64), 2)


def test_folds__every_class_validates_once_and_never_in_its_own_training():
    made = folds(LABELS, Protocol(kind="fair", folds=3, repeats=1))
    assert len(made) == 3
    assert sorted(np.concatenate([fold.validation for fold in made])) == [3, 5, 6, 9, 11, 12, 20]
    for fold in made:
        assert sorted([*fold.train, *fold.validation]) == [3, 5, 6, 9, 11, 12, 20]
    assert made[0].validation.tolist() == [12, 20] and made[-1].validation.tolist() == [3, 5, 6]


def test_folds__tuning_runs_the_first_fold_only():
    whole = folds(LABELS, Protocol(kind="fair", folds=3, repeats=2))
    (only,) = folds(LABELS, Protocol(kind="tuning", folds=3, repeats=2))
    assert only.validation.tolist() == whole[0].validation.tolist()


def test_folds__conventional_trains_on_all_and_holds_out_none():
    (only,) = folds(LABELS, Protocol(kind="conventional", folds=1, repeats=3))
    assert len(only.train) == 7 and len(only.validation) == 0


def test_folds__raise_for_fewer_classes_than_the_folds_need():
    with pytest.raises(ValueError, match=r"7 training classes in 4 folds leave 1 in one; .* at most 3 folds"):
        folds(LABELS, Protocol(kind="fair", folds=4, repeats=1))


@pytest.mark.parametrize(("kind", "count"), [("conventional", 4), ("fair", 1), ("tuning", 1)])
def test_protocol__refuses_a_number_of_folds_that_does_not_fit(kind, count):
    with pytest.raises(ValidationError, match=f"folds is {count} for {kind}"):
        Protocol(kind=kind, folds=count, repeats=1)
