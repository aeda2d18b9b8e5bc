import numpy as np
import pytest
import torch

from stages.core.class_batches import ClassBatches

NAMES = ["a", "b", "c", "d"]
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3], dtype=np.int64)


def test_draw__gives_m_images_of_each_of_some_classes():
    batches = ClassBatches(LABELS, 3, 2, NAMES)
    generator = torch.Generator().manual_seed(0)
    met = set()
    for _ in range(50):
        rows = batches.draw(generator)
        classes, counts = np.unique(LABELS[rows.numpy()], return_counts=True)
        assert len(classes) == 3 and (counts == 2).all() and len(set(rows.tolist())) == 6
        met |= set(rows.tolist())
    assert met == set(range(len(LABELS)))


def test_draw__repeats_images_only_where_a_class_has_too_few():
    rows = ClassBatches(LABELS, 4, 4, NAMES).draw(torch.Generator().manual_seed(0)).tolist()
    for label, distinct in ((0, 3), (1, 2), (2, 4), (3, 2)):
        mine = [row for row in rows if LABELS[row] == label]
        assert len(mine) == 4 and len(set(mine)) == distinct


def test_draw__depends_on_the_generator_alone():
    a, b = (ClassBatches(LABELS, 2, 2, NAMES).draw(torch.Generator().manual_seed(7)) for _ in range(2))
    assert a.tolist() == b.tolist()


def test_init__raises_when_there_are_too_few_classes():
    with pytest.raises(ValueError, match="a batch of 5 classes cannot be drawn from 4 training classes: lower"):
        ClassBatches(LABELS, 5, 2, NAMES)


def test_init__raises_for_a_class_of_one_image_and_names_it():
    with pytest.raises(ValueError, match=r"1 classes have a single image \(d\), which has no pair"):
        ClassBatches(LABELS[:-1], 2, 2, NAMES)
    ClassBatches(LABELS[:-1], 2, 1, NAMES)  # proxies need no pair
