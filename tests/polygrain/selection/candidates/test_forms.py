import numpy as np
import pytest
import torch

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import load, save
from polygrain.retrieval import whitening
from polygrain.selection.candidates.forms import Form, add_last_layer, shape, with_last_layers
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


def test_name__describes_the_form_in_a_few_words():
    assert Form("encoder").name == "encoder"
    form = Form("k4", 0.7, scale=1.5, mirrored=True, blocks=3, layer="half", dim=8)
    assert form.name.startswith("k4 x 0.7, ") and form.name.endswith("half-whitened to 8")
    assert Form("distilled", layer="own", dim=8).name == "distilled, with its own last layer"


def test_shape__scales_a_copy_without_the_last_layer(fused):
    before = fused(images(4))
    plain = shape(fused, Form("x"))
    expected = plain(images(4)) @ fused.reduction.weight.T + fused.reduction.bias
    torch.testing.assert_close(before, torch.nn.functional.normalize(expected, dim=1))
    shaped = shape(fused, Form("x", 0.5, mirrored=True))
    plain.scale(0.5)
    torch.testing.assert_close(shaped(images(4)), plain.at_side(32, True)(images(4)))
    assert shaped.config.reduced is None and torch.equal(fused(images(4)), before)


def test_with_last_layers__whitens_every_view_by_the_plain_embeddings(fused):
    wide = shape(fused, Form("x", blocks=2))
    embedded, alone = embedded_by(wide), embedded_by(shape(fused, Form("x")))
    fitted = wide(images(60, 9)).numpy()
    forms = dict(
        with_last_layers(
            Form("x"), fused.reduction, embedded, fitted, wide.widths, [5, 24], ["half", "full"], [1, 2, 9]
        )
    )
    whitened = [(layer, dim, blocks) for blocks in (1, 2) for dim in (5, 24) for layer in ("half", "full")]
    assert [(form.layer, form.dim, form.blocks) for form in forms] == [("none", None, 1), ("own", 6, 1), *whitened]
    for form, result in forms.items():
        for both, last, changed in zip(views_of(embedded), views_of(alone), views_of(result), strict=True):
            expected = both if form.blocks == 2 else last
            if form.layer == "own":
                expected = unit_rows(last @ fused.reduction.weight.numpy().T + fused.reduction.bias.numpy())
            elif form.layer != "none":
                known = fitted if form.blocks == 2 else unit_rows(fitted[:, :24])
                expected = whitening.apply(whitening.fit(known, form.dim, form.layer), expected)
            np.testing.assert_allclose(changed, expected, atol=1e-4)


@pytest.mark.parametrize("count", [1, 7])
def test_with_last_layers__no_whitening_of_images_all_alike(count):
    alike = np.repeat(np.full((1, 4), 0.5, np.float32), count, 0)
    embedded = Embedded(alike, [(alike, alike)] * 2)
    settings = [2, 2], [2, 8], ["half", "full"], [1, 2]
    forms = with_last_layers(Form("x"), torch.nn.Identity(), embedded, alike, *settings)
    assert [form for form, _ in forms] == [Form("x")]


@pytest.mark.parametrize("layer", ["none", "own", "half", "full"])
def test_add_last_layer__the_saved_model_gives_the_embeddings_of_the_comparison(tmp_path, fused, layer):
    """Where the whitening is fitted to the same images."""
    base = Form("x", 0.5, 1.5, True)
    embedded = embedded_by(shape(fused, base))
    forms = with_last_layers(base, fused.reduction, embedded, embedded.plain, [24], [5], ["half", "full"])
    assert_saved_model_agrees(forms, fused, layer, embedded, tmp_path, {"none": 24, "own": 6}.get(layer, 5))


def test_add_last_layer__what_a_model_learnt_of_two_blocks_is_its_own_layer(encoder, tmp_path):
    taught, generator = adapted(encoder, ["k4"], 0).at_side(32, False, 2), torch.Generator().manual_seed(3)
    taught.reduce(torch.randn(6, 48, generator=generator), torch.randn(6, generator=generator))
    wide = shape(taught, Form("x", blocks=2))
    embedded = embedded_by(wide)
    forms = with_last_layers(Form("x"), taught.reduction, embedded, embedded.plain, wide.widths, [5], [])
    model = assert_saved_model_agrees(forms, taught, "own", embedded, tmp_path, 6)
    torch.testing.assert_close(model(images(4)), taught(images(4)))


def assert_saved_model_agrees(forms, start, layer, embedded, folder, dim):
    form, result = {form.layer: (form, result) for form, result in forms}[layer]
    model = shape(start, form)
    add_last_layer(model, start.reduction, form, embedded.plain, {})
    save(model, folder)
    again = load(folder)
    for seed, expected in enumerate(views_of(result)):
        np.testing.assert_allclose(again(images(30, seed)).numpy(), expected, atol=2e-5)
    assert again.dim == dim
    return again
