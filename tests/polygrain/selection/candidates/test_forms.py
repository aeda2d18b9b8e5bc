import numpy as np
import pytest
import torch

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import load, save
from polygrain.retrieval.whitening import Affine
from polygrain.selection.candidates.forms import Form, with_last_layers
from polygrain.selection.criterion import Embedded
from tests.helpers.small import adapted, write_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("world") / "encoder")


@pytest.fixture
def fused(encoder):
    """An attention over two sets, and a reduction that it learnt with."""
    model, generator = adapted(encoder, ["k4", "k8"], 0, fusion="attention"), torch.Generator().manual_seed(3)
    model.reduce(torch.randn(6, 24, generator=generator), torch.randn(6, generator=generator))
    return model


def images(count, seed=0):
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def embedded_by(model):
    plain, *four = (model(images(30, seed)).numpy() for seed in range(5))
    return Embedded(plain, [(four[0], four[1]), (four[2], four[3])])


def views_of(embedded):
    """Embeddings in the order of `embedded_by`."""
    return [embedded.plain, *(view for pair in embedded.pairs for view in pair)]


def layer(width, dim=5):
    rng = np.random.default_rng(0)
    return Affine(rng.normal(size=width).astype(np.float32), rng.normal(size=(width, dim)).astype(np.float32))


def test_name__describes_the_form_in_a_few_words():
    assert Form("encoder").name == "encoder"
    form = Form("k4", scale=1.5, blocks=3, layer="clusters", dim=8)
    assert form.name.startswith("k4, ") and form.cost == 2.25 and form.name.endswith("layer of 8 from clusters")
    assert Form("reduced", layer="own", dim=8).name == "reduced, with its own last layer"


def test_with_last_layers__none_of_the_last_block_its_own_and_the_fitted_of_all_blocks(fused):
    embedded, alone = (embedded_by(fused.without_reduction(count)) for count in (2, 1))
    fitted, base = layer(48), Form("x", blocks=2)
    forms = list(with_last_layers(base, fused.reduction, embedded, 24, lambda: fitted, embedded.plain))
    found = [(form.layer, form.dim, form.blocks, layer) for form, _, layer in forms]
    assert found == [("none", None, 1, None), ("own", 6, 1, None), ("clusters", 5, 2, fitted)]
    for form, result, _ in forms:
        for both, last, changed in zip(views_of(embedded), views_of(alone), views_of(result), strict=True):
            expected = last
            if form.layer == "own":
                expected = unit_rows(last @ fused.reduction.weight.numpy().T + fused.reduction.bias.numpy())
            elif form.layer == "clusters":
                expected = unit_rows((both - fitted.mean) @ fitted.projection)
            np.testing.assert_allclose(changed, expected, atol=1e-4)


def test_with_last_layers__none_where_none_is_fitted(fused):
    embedded = embedded_by(fused.without_reduction())
    forms = with_last_layers(Form("x"), torch.nn.Identity(), embedded, 24, lambda: None, embedded.plain)
    assert [form for form, _, _ in forms] == [Form("x")]


@pytest.mark.parametrize("kind", ["none", "own", "clusters"])
def test_with_last_layers__the_saved_model_gives_the_embeddings_of_the_comparison(tmp_path, fused, kind):
    base, fitted = Form("x", 1.5), layer(24)
    embedded = embedded_by(fused.without_reduction())
    forms = with_last_layers(base, fused.reduction, embedded, 24, lambda: fitted, embedded.plain)
    result = {form.layer: result for form, result, _ in forms}[kind]
    model = fused.without_reduction()
    if kind == "own":
        model.reduce(fused.reduction.weight, fused.reduction.bias)
    elif kind == "clusters":
        model.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
    assert_saved_model_agrees(model, result, tmp_path)


def test_with_last_layers__what_a_model_learnt_of_two_blocks_is_its_own_layer(encoder, tmp_path):
    taught, generator = adapted(encoder, ["k4"], 0).at_side(32, False, 2), torch.Generator().manual_seed(3)
    taught.reduce(torch.randn(6, 48, generator=generator), torch.randn(6, generator=generator))
    embedded = embedded_by(taught.without_reduction(2))
    forms = with_last_layers(Form("x", blocks=2), taught.reduction, embedded, 24, lambda: None, embedded.plain)
    form, result = {form.layer: (form, result) for form, result, _ in forms}["own"]
    assert form.blocks == 2
    assert_saved_model_agrees(taught, result, tmp_path)


def assert_saved_model_agrees(model, result, folder):
    save(model, folder)
    again = load(folder)
    for seed, expected in enumerate(views_of(result)):
        np.testing.assert_allclose(again(images(30, seed)).numpy(), expected, atol=2e-5)
