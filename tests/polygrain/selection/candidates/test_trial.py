from pathlib import Path

import numpy as np
import pytest

from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.fisher.closed_form import basis_of, closed_form, of_views
from polygrain.fisher.scatter import within_clusters
from polygrain.retrieval.whitening import apply
from polygrain.selection import criterion
from polygrain.selection.candidates.forms import Form
from polygrain.selection.candidates.trial import measure
from polygrain.store.image_table import open_pixels
from tests.helpers.small import TASKS, write_encoder
from tests.polygrain.selection.candidates.test_judges import world


def test_measure__the_layer_is_of_the_clustered_images_and_of_the_views_of_the_sample(tmp_path: Path) -> None:
    judge = world(tmp_path)
    encoder, pixels = load(write_encoder(tmp_path / "encoder")), open_pixels(tmp_path / "images", list(TASKS))
    measured = {one.form.layer: one for one in measure(judge, encoder, Form("encoder"), pixels)}
    assert list(measured) == ["none", "clusters"] and measured["clusters"].form.blocks == 2
    wide, given = encoder.without_reduction(2), judge.granularities
    vectors = embed(wide, pixels, judge.collection.train[given.rows], 10, "float32", "")
    views = criterion.embed_views(wide, pixels, judge.sample, judge.settings.criterion).stacked()
    basis = basis_of(vectors, given.tasks)
    scatters = [within_clusters(basis.turn(vectors), labels) for labels in given.labels.values()]
    layer = closed_form(basis, scatters, of_views(basis, views))
    expected, _ = judge.judge(criterion.Embedded.of(views).through(lambda one: apply(layer, one)))
    np.testing.assert_allclose(measured["clusters"].judged.score, expected.score)


@pytest.mark.parametrize(("sizes", "layers"), [((), True), ((2, 5), False)])
def test_measure__as_it_is_where_no_layer_is_wanted(tmp_path: Path, sizes: tuple[int, ...], layers: bool) -> None:
    judge = world(tmp_path, sizes=sizes)
    encoder, pixels = load(write_encoder(tmp_path / "encoder")), open_pixels(tmp_path / "images", list(TASKS))
    assert [one.form for one in measure(judge, encoder, Form("encoder"), pixels, layers)] == [Form("encoder")]
