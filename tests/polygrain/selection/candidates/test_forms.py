import numpy as np
import pytest
import torch

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import load, save
from polygrain.retrieval import whitening
from polygrain.selection.candidates.forms import Form, behind, finish, shape
from polygrain.selection.criterion import Seen
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


def seen_by(model):
    plain, *four = (model(images(30, seed)).numpy() for seed in range(5))
    return Seen(plain, [(four[0], four[1]), (four[2], four[3])])


def all_of(seen):
    """Embeddings in the order of `seen_by`."""
    return [seen.plain, *(view for pair in seen.pairs for view in pair)]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (Form("encoder"), "encoder"),
        (Form("k256", 0.7, layer="half", dim=128), "k256 x 0.7, half-whitened to 128"),
        (Form("average", layer="full", dim=8), "average, whitened to 8"),
        (Form("distilled", scale=1.5, layer="own", dim=8), "distilled, at 1.5 times the side, with its own last layer"),
        (Form("k4", 0.5, mirrored=True), "k4 x 0.5, with its mirror image"),
        (Form("k4", blocks=3, layer="half", dim=8), "k4, its last 3 blocks, half-whitened to 8"),
    ],
)
def test_name__says_the_form_in_a_few_words(form, name):
    assert form.name == name


def test_shape__scales_a_copy_without_the_last_layer(fused):
    before = fused(images(4))
    shaped = shape(fused, Form("x", 0.5, mirrored=True))
    by_hand = shape(fused, Form("x"))
    by_hand.scale(0.5)
    torch.testing.assert_close(shaped(images(4)), by_hand.seen(32, True)(images(4)))
    assert shaped.config.reduced is None and shaped.config.side == shaped.config.size == 32
    assert torch.equal(fused(images(4)), before)


def test_shape__in_full_it_is_the_model_up_to_the_last_layer(fused):
    shaped = shape(fused, Form("x"))
    expected = shaped(images(4)) @ fused.reduction.weight.T + fused.reduction.bias
    torch.testing.assert_close(fused(images(4)), torch.nn.functional.normalize(expected, dim=1))


def test_behind__whitens_all_five_by_the_plain_embeddings(fused):
    seen = seen_by(shape(fused, Form("x")))
    known = shape(fused, Form("x"))(images(40, 9)).numpy()
    found = dict(behind(Form("x"), fused.reduction, seen, known, [24], [5, 99], ["half", "full"]))
    assert [(form.layer, form.dim) for form in found] == [
        ("none", None),
        ("own", 6),
        *((layer, dim) for dim in (5, 24) for layer in ("half", "full")),
    ]
    for form, parts in found.items():
        for x, changed in zip(all_of(seen), all_of(parts), strict=True):
            if form.layer == "own":
                x = unit_rows(x @ fused.reduction.weight.numpy().T + fused.reduction.bias.numpy())
            elif form.layer != "none":
                x = whitening.apply(whitening.fit(known, form.dim, form.layer), x)
            np.testing.assert_allclose(changed, x, atol=1e-4)


def test_behind__no_whitening_where_all_are_alike_or_alone():
    for count in (1, 7):
        alike = np.repeat(np.full((1, 4), 0.5, np.float32), count, 0)
        seen = Seen(alike, [(alike, alike)] * 2)
        found = list(behind(Form("x"), torch.nn.Identity(), seen, alike, [2, 2], [2, 8], ["half", "full"], [1, 2]))
        assert [form for form, _ in found] == [Form("x")]


def test_behind__more_blocks_are_whitened_side_by_side(fused):
    wide = shape(fused, Form("x", blocks=2))
    seen, alone = seen_by(wide), seen_by(shape(fused, Form("x")))
    found = dict(behind(Form("x"), fused.reduction, seen, seen.plain, wide.widths, [5], ["half"], [1, 2, 9]))
    assert [(form.layer, form.blocks) for form in found] == [("none", 1), ("own", 1), ("half", 1), ("half", 2)]
    for form, parts in found.items():
        if form.layer != "own":
            before = seen if form.blocks == 2 else alone
            fitted = whitening.fit(before.plain, 5, "half")
            for x, changed in zip(all_of(before), all_of(parts), strict=True):
                wanted = whitening.apply(fitted, x) if form.layer == "half" else x
                np.testing.assert_allclose(changed, wanted, atol=1e-4)


def test_behind__what_a_model_learnt_of_two_blocks_is_its_own_layer(encoder, tmp_path):
    taught, generator = adapted(encoder, ["k4"], 0).seen(32, False, 2), torch.Generator().manual_seed(3)
    taught.reduce(torch.randn(6, 48, generator=generator), torch.randn(6, generator=generator))
    wide = shape(taught, Form("x", blocks=2))
    seen = seen_by(wide)
    forms = behind(Form("x"), taught.reduction, seen, seen.plain, wide.widths, [5], ["half"])
    found = {form.layer: (form, parts) for form, parts in forms}
    form, parts = found["own"]
    assert (form.blocks, form.dim) == (2, 6) and found["half"][0].blocks == 1
    np.testing.assert_allclose(parts.plain, taught(images(30, 0)).numpy(), atol=1e-5)
    model = shape(taught, form)
    finish(model, taught.reduction, form, seen.plain)
    save(model, tmp_path)
    torch.testing.assert_close(load(tmp_path)(images(4)), taught(images(4)))


@pytest.mark.parametrize("layer", ["none", "own", "half", "full"])
@pytest.mark.parametrize(("strength", "scale", "mirrored"), [(1.0, 1.0, False), (0.5, 1.5, True)])
def test_finish__the_saved_model_gives_the_embeddings_of_the_trial(tmp_path, fused, layer, strength, scale, mirrored):
    """Where the whitening is fitted to the same images."""
    form = Form("x", strength, scale, mirrored)
    seen = seen_by(shape(fused, form))
    every = behind(form, fused.reduction, seen, seen.plain, [24], [5], ["half", "full"])
    chosen, parts = {each.layer: (each, parts) for each, parts in every}[layer]
    model = shape(fused, chosen)
    finish(model, fused.reduction, chosen, seen.plain)
    save(model, tmp_path)
    again = load(tmp_path)
    for seed, expected in enumerate(all_of(parts)):
        np.testing.assert_allclose(again(images(30, seed)).numpy(), expected, atol=2e-5)
    assert again.dim == {"none": 24, "own": 6, "half": 5, "full": 5}[layer]
