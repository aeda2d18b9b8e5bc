from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.retrieval import whitening
from polygrain.selection.candidates.forms import Form
from polygrain.selection.candidates.judges import Embeddings, Settings, Views
from polygrain.selection.candidates.trial import ENCODER, judge_layers, measure
from polygrain.selection.criterion import Embedded, Sample, draw, neighbours
from polygrain.store.collection import open_pixels, read_tables
from tests.helpers.settings import comparing, criterion
from tests.helpers.small import TASKS, write_encoder, write_images


def test_measure__whitenings_are_fitted_to_the_images_drawn_for_that(tmp_path: Path) -> None:
    images, encoder = write_images(tmp_path / "images"), load(write_encoder(tmp_path / "encoder"))
    settings = Settings(**comparing(blocks=[1]))
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    sample = draw(collection, 6, 2, 0)
    fitted = np.sort(np.random.default_rng(0).choice(collection.train, 20, replace=False))
    assert 0 < np.isin(sample.rows, fitted).sum() < len(sample.rows)
    reference = {task: np.zeros((len(own), 3), int) for task, own in sample.parts().items()}
    judge = Views(sample, fitted, settings.criterion, reference)
    measured = {one.form.name: one for one in measure(judge, encoder, ENCODER, pixels, settings)}
    whitener = whitening.fit(embed(encoder, pixels, fitted, 10, "float32", ""), 8, "half")
    by_hand = whitening.apply(whitener, embed(encoder, pixels, sample.rows, 10, "float32", ""))
    expected = neighbours(by_hand, sample, settings.criterion.neighbours)
    for task, hits in measured["encoder, half-whitened to 8"].neighbours.items():
        np.testing.assert_array_equal(hits, expected[task])


def test_judge_layers__stored_embeddings_are_judged_without_a_network() -> None:
    """What the reference knows of all images, and finds again by all views, gets all that there is."""
    vectors = unit_rows(np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32))
    sample = Sample(np.arange(20), np.repeat(["a", "b"], 10))
    judge = Views(sample, np.arange(60), criterion(), neighbours(vectors[:20], sample, 3))
    stored = Embeddings(Embedded(vectors[:20], [(vectors[:20], vectors[:20])] * 2), vectors, vectors[20:], [8, 8])
    settings = Settings(**comparing(blocks=[1, 2], dims=[4], layers=["half"]))
    judged = {one.form: one.judged for one in judge_layers(judge, stored, nn.Identity(), Form("x"), settings)}
    assert [(form.layer, form.dim, form.blocks) for form in judged] == [
        ("none", None, 1),
        ("half", 4, 1),
        ("half", 4, 2),
    ]
    assert all(0.8 <= one.score.mean() < 1 for one in judged.values())  # views agree, half of the numbers are left
    whole = judge_layers(judge, replace(stored, widths=[16]), nn.Identity(), Form("x"), settings)
    assert next(whole).judged.score.tolist() == [1] * 20
