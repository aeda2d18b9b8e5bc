from pathlib import Path

import numpy as np

from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.retrieval import whitening
from polygrain.selection.candidates.trial import ENCODER, Settings, Trial, measure, thinned
from polygrain.selection.criterion import Sample, draw, group, neighbours
from polygrain.store.collection import open_pixels, read_tables
from tests.helpers.settings import comparing
from tests.helpers.small import TASKS, write_encoder, write_images


def test_measure__whitenings_are_fitted_to_the_images_drawn_for_that(tmp_path: Path) -> None:
    images, encoder = write_images(tmp_path / "images"), load(write_encoder(tmp_path / "encoder"))
    settings = Settings(**comparing(blocks=[1]))
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    sample = draw(group(collection, encoder, pixels, settings.criterion, 0), 6, 2, 0)
    fitted = np.sort(np.random.default_rng(0).choice(collection.train, 20, replace=False))
    assert 0 < np.isin(sample.rows, fitted).sum() < len(sample.rows)
    trial = Trial(sample, fitted, {task: np.zeros((len(own), 3), int) for task, own in sample.parts().items()})
    measure(trial, encoder, ENCODER, pixels, settings)
    whitener = whitening.fit(embed(encoder, pixels, fitted, 10, "float32", ""), 8, "half")
    by_hand = whitening.apply(whitener, embed(encoder, pixels, sample.rows, 10, "float32", ""))
    expected = neighbours(by_hand, sample, settings.criterion.neighbours)
    for task, hits in trial.candidates["encoder, half-whitened to 8"].neighbours.items():
        np.testing.assert_array_equal(hits, expected[task])


def test_thinned__an_image_of_the_smallest_task_has_a_neighbour(tmp_path: Path) -> None:
    collection = read_tables(write_images(tmp_path / "images", 2, 4), list(TASKS))
    first = collection.train[collection.tasks[collection.train] == TASKS[0]][:2]
    few = thinned(Sample(first, collection.tasks[first]), collection)
    assert neighbours(np.eye(2, dtype=np.float32), few, 5)[TASKS[0]].tolist() == [[1], [0]]
