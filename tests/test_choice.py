import contextlib
import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from timm.layers import PatchEmbed
from torch.nn.modules.module import register_module_forward_hook

from polygrain.app.gallery import read as gallery_of
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load, save
from polygrain.retrieval import whitening
from polygrain.retrieval.smoothing_choice import SETTINGS
from polygrain.selection.criterion import draw_clear, embed_carefully
from polygrain.selection.seen import Seen
from polygrain.selection.teaching import learn, read_targets
from polygrain.store import arrays
from polygrain.store.collection import open_pixels, read_table, read_tables
from stages import choice, evaluation, gallery, resolution
from tests.helpers.settings import comparing
from tests.helpers.small import (
    TASKS,
    adapted,
    lists,
    repeat,
    run_features,
    set_split,
    write_encoder,
    write_features,
    write_images,
    write_model,
)
from tests.test_evaluation import plain_r_precision

FILES = ("weights.safetensors", "config.json", "README.md", "criterion.csv", "choice.json", "neighbours.parquet")


def params(**changes):
    return choice.Params(**comparing(**changes))


EVALUATION = evaluation.Params(whitened_dim=8, smoothed=[], random_draws=0)
QUICK = {"strengths": [], "layers": [], "blocks": [1], "mirrored": False}


def write_models(folder, std=0.1, side=48):
    """The folders of all models, as their stages leave them; the more `std`, the less is left of the encoder."""
    write_encoder(folder / "encoder")
    encoder = write_model(load(folder / "encoder").at_side(side, False), folder / "resolution")
    for seed, name in enumerate(("k4", "k8")):
        write_model(adapted(encoder, [name], seed, std), folder / "adaptor" / name)
    for seed, name in enumerate(("average", "augmentation", "neighbour")):
        fusion = "average" if name == "average" else "attention"
        write_model(adapted(encoder, ["k4", "k8"], seed, std, fusion), folder / "fusion" / name)
    taught, generator = adapted(encoder, ["distilled"], 5, std), torch.Generator().manual_seed(6)
    taught.reduce(torch.randn(6, 24, generator=generator), torch.randn(6, generator=generator))
    write_model(taught, folder / "distillation" / "encoder")
    return [folder / name for name in ("encoder", "resolution", "adaptor", "fusion", "distillation", "teacher")]


def see(images, models, folder, settings):
    """All folders that the stage reads, with what `resolution` saw and `features` stored."""
    encoder, start = load(models[0]), load(models[1])
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    sample, views, looks = draw_clear(collection, encoder, pixels, settings.criterion, 0), {}, None
    if len(sample.rows):
        tried = [encoder.config.side, start.config.side]
        views = resolution.see(encoder, pixels, sample, tried, settings.criterion, settings.blocks)
        looks = embed_carefully(start, pixels, sample.rows, settings.reference, 16, "float32", "")
    (folder / "views").mkdir(parents=True)
    Seen(sample, views, looks).write(folder / "views")
    run_features(folder / "features", images, models[1], max(settings.blocks))
    return [*models[:2], folder / "views", folder / "features", *models[2:]]


def run(images, models, output, cost=4.5, **changes):
    """What choice.json holds, and the rows of criterion.csv."""
    settings = params(**changes)
    folders = see(images, models, output.with_name(f"{output.name}_seen"), settings)
    message = choice.main(
        images, *folders, output, params=settings, cost=cost, smoothing=SETTINGS, lists=lists(), seed=0
    )
    assert {path.name for path in output.iterdir()} >= {*FILES, "untrained"}
    rows = list(csv.DictReader((output / "criterion.csv").read_text().splitlines()))
    content = json.loads((output / "choice.json").read_text())
    assert content["name"] in message and str(len(rows)) in message
    return content, rows


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def chosen(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    images = write_images(folder / "images")
    return images, folder / "out", *run(images, models, folder / "out")


def test_main__lists_all_candidates_the_best_first(chosen):
    _, _, content, rows = chosen
    values = [float(row["criterion"]) for row in rows]
    assert values == sorted(values, reverse=True) and all(0 <= value <= 1 for value in values)
    assert [row["name"] for row in rows if row["chosen"] == "1"] == [content["name"]]
    for row in rows:
        assert float(row["criterion"]) == pytest.approx(np.mean([float(row[task]) for task in TASKS]), abs=1e-5)
        assert float(row["cost"]) == float(row["scale"]) ** 2 * (1 + int(row["mirrored"])) <= 4.5
        assert row["scale"] == ("1.0" if row["name"] == "encoder" else "1.5")
    first = {row["model"] for row in rows if row["strength"] == "0.75" and row["layer"] == "none"}
    assert first == {"k4", "k8", "average", "augmentation", "neighbour", "distilled_encoder"}
    assert len({row["model"] for row in rows if row["strength"] == "0.5"}) == 1
    looks = {(row["scale"], row["mirrored"]) for row in rows if row["model"] == "encoder"}
    assert looks == {("1.0", "0"), ("1.5", "0"), ("1.5", "1")}
    assert {row["dim"] for row in rows if row["layer"] == "half"} == {"8", "24", "47"}
    assert {row["model"] for row in rows if row["layer"] == "own"} == {"distilled_encoder"}


def test_main__says_what_was_chosen_with_intervals(chosen):
    _, output, content, rows = chosen
    by_name = {row["name"]: row for row in rows}
    assert content["images"] == 24 and content["uncertain"] == [] and list(content["criterion"]) == ["mean", *TASKS]
    for column, values in content["criterion"].items():
        for key, name in (("encoder", "encoder"), ("chosen", content["name"])):
            mean, low, high = values[key]
            expected = by_name[name]["criterion" if column == "mean" else column]
            assert mean == pytest.approx(float(expected), abs=1e-5) and low <= mean <= high
        assert values["difference"][0] == pytest.approx(values["chosen"][0] - values["encoder"][0])
    card = (output / "README.md").read_text()
    assert content["name"] in card and all(line in card for line in content["why"])


def test_main__hands_out_the_chosen_form_and_the_encoder_at_its_best(chosen):
    _, output, _, rows = chosen
    best = next(row for row in rows if row["model"] == "encoder" and row["scale"] == "1.5")  # the best stands first
    (taken,) = [row for row in rows if row["chosen"] == "1"]
    for row, folder in ((taken, output), (best, output / "untrained")):
        model = load(folder)
        assert (model.config.side, model.config.mirrored) == (round(32 * float(row["scale"])), row["mirrored"] == "1")
        assert model.dim == int(row["dim"] or 24)
    assert load(output / "untrained").config.adaptors is None


def test_main__the_neighbours_are_those_of_plain_search(chosen, models):
    images, output, _, _ = chosen
    table = [row for row in pq.read_table(output / "neighbours.parquet").to_pylist() if row["task"] == "bars"]
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    own = [row["row"] for row in table]
    places = np.flatnonzero(collection.tasks == "bars")[own]
    embeddings = load(models[0])(torch.from_numpy(pixels[places]).permute(0, 3, 1, 2)).numpy()
    for i, row in enumerate(table):
        others = sorted((j for j in range(len(table)) if j != i), key=lambda j: -(embeddings[i] @ embeddings[j]))
        assert row["encoder"] == [own[j] for j in others[:3]]
        assert len(row["chosen"]) == 3 and row["row"] not in row["chosen"]


def is_the_encoder(output, models):
    model, encoder = load(output), load(models[0])
    same = all(torch.equal(tensor, encoder.state_dict()[name]) for name, tensor in model.state_dict().items())
    return same and model.config == encoder.config


def test_main__hands_out_the_encoder_where_all_others_are_worse(tmp_path):
    images, spoilt = write_images(tmp_path / "images"), write_models(tmp_path, std=30.0, side=32)
    content, rows = run(images, spoilt, tmp_path / "out", **QUICK)
    assert content["name"] == "encoder" and rows[0]["name"] == "encoder" and len(rows) > 5
    assert is_the_encoder(tmp_path / "out", spoilt)


@pytest.mark.parametrize(("side", "cost", "costs"), [(48, 4.4, {"1", "2.25"}), (16, 1.0, {"1", "0.25"})])
def test_main__every_side_and_no_more_than_the_budget(chosen, models, tmp_path, side, cost, costs):
    """At the encoder's own side it is measured once."""
    folders = list(models)
    if side != 48:
        folders[1] = write_model(load(models[0]).at_side(side, False), tmp_path / "resolution")
    _, rows = run(chosen[0], folders, tmp_path / "out", cost, **QUICK | {"mirrored": side != 16})
    assert {row["cost"] for row in rows} == costs
    assert len([row for row in rows if row["model"] == "encoder"]) == len(costs)
    assert load(tmp_path / "out/untrained").config.side == side


@pytest.mark.parametrize(
    "form", [{}, {"layer": "full", "dim": 99}, {"layer": "own"}, {"layer": "half", "dim": 32, "blocks": 2}]
)
def test_build__scales_the_adaptors_and_fits_the_whitening_to_all_training_images(chosen, models, form):
    folder = models[0].parent / ("distillation/encoder" if form.get("layer") == "own" else "fusion/neighbour")
    collection, pixels = read_tables(chosen[0], list(TASKS)), open_pixels(chosen[0], list(TASKS))
    form = choice.Form("x", 0.5, mirrored=True, **form)
    model = choice.build(folder, form, pixels, collection, params(), 0).model
    by_hand, learnt = load(folder), load(folder).reduction
    for layer in by_hand.adaptors:
        layer.up.mul_(0.5)
        layer.up_bias.mul_(0.5)
        if by_hand.config.adaptors.fusion == "attention":
            layer.key.weight.mul_(2)
    bare = {"reduced": None, "blocks": form.blocks}
    by_hand.reduction, by_hand.config = torch.nn.Identity(), by_hand.config.model_copy(update=bare)
    images = torch.from_numpy(pixels[collection.train]).permute(0, 3, 1, 2)
    expected = by_hand.at_side(48, True)(images)
    if form.layer == "own":
        expected = torch.nn.functional.normalize(learnt(expected), dim=1)
    elif form.layer != "none":
        whitener = whitening.fit(expected, min(form.dim, 24 * form.blocks), form.layer)
        expected = torch.from_numpy(whitening.apply(whitener, expected))
    torch.testing.assert_close(model(images), expected, atol=1e-3, rtol=1e-3)


def test_main__each_task_uses_its_grain_wherever_it_is_searched(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = write_images(tmp_path / "images")
    grained = {"layers": ["turned", "half"], "axes": [2, 3, 9], "middle": 3, "images": 100}
    content, _ = run(images, models, tmp_path / "choice", grain=grained, alike={"dots": 8}, **QUICK)
    model = load(tmp_path / "choice")
    assert model.config.reduced == 9 and model.config.grains == content["grains"]["axes"]
    assert model.config.grains["bars"] == 3 and model.config.grains["dots"] in (2, 3, 9)
    assert content["form"]["layer"] == content["grains"]["layer"] and content["form"]["dim"] == 9
    assert len(content["grains"]["agreement"]["dots"]) == 6 and "bars" not in content["grains"]["agreement"]
    # What is shown of it is what it finds, as it is handed out.
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    rows = [row for row in pq.read_table(tmp_path / "choice/neighbours.parquet").to_pylist() if row["task"] == "bars"]
    own = [row["row"] for row in rows]
    found = embed(model, pixels, np.flatnonzero(collection.tasks == "bars")[own], 16, "float32", "")
    found = unit_rows(found[:, :3])
    for i, row in enumerate(rows):
        others = sorted((j for j in range(len(rows)) if j != i), key=lambda j: -(found[i] @ found[j]))
        assert row["chosen"] == [own[j] for j in others[:3]]

    axes = model.config.grains | {"dots": 2}
    model.config = model.config.model_copy(update={"grains": axes})
    save(model, tmp_path / "choice")

    features, collection = run_features(tmp_path / "features", images, models[1], 1), read_tables(images, list(TASKS))
    given = {"alike": {}, "smoothing": SETTINGS, "lists": lists(), "params": EVALUATION}
    evaluation.main(images, tmp_path / "choice", features, tmp_path / "measured", model="chosen", **given)
    assert json.loads((tmp_path / "measured/shared.json").read_text()) == {}
    measured = json.loads((tmp_path / "measured/metrics.json").read_text())
    vectors = embed(model, open_pixels(images, list(TASKS)), np.arange(len(collection.tasks)), 16, "float32", "")
    for task, values in measured.items():
        own = np.flatnonzero((collection.tasks == task) & collection.is_test)
        part = unit_rows(vectors[own][:, : axes[task]])
        assert values["r_precision"] == pytest.approx(plain_r_precision(part, collection.labels[own]).mean(), abs=0.02)

    folders = images / "dots", tmp_path / "choice", tmp_path / "features/dots"
    settings = gallery.Params(smoothing=SETTINGS.model_copy(update={"fewest": 6, "strengths": [0.9]}))
    gallery.main(*folders, tmp_path / "gallery", task="dots", source="dots", params=settings, alike={"dots": 8})
    file = tmp_path / "gallery/embeddings.parquet"
    plain = gallery_of(file, smooth=False)
    dots = np.flatnonzero(collection.tasks == "dots")
    np.testing.assert_allclose(plain.vectors(np.arange(48)), unit_rows(vectors[dots][:, :2]), atol=5e-3)
    assert gallery_of(file, False, 5).vectors([0]).shape == (1, 5) and gallery_of(file).vectors([0]).shape == (1, 9)
    np.testing.assert_allclose(plain.asked(vectors[:2]), unit_rows(vectors[:2, :2]))
    with pytest.raises(ValueError, match="has 9"):
        gallery_of(file, False, 10)


def test_main__the_encoder_gets_its_grains_at_its_own_side_too(tmp_path):
    images, models = write_images(tmp_path / "images"), write_models(tmp_path, std=30.0, side=32)
    grained = {"layers": ["turned", "half"], "axes": [2, 3, 9], "middle": 3, "images": 100}
    content, rows = run(images, models, tmp_path / "choice", grain=grained, **QUICK)
    assert [row["name"] for row in rows if row["chosen"] == "1"] == ["encoder"] != [content["name"]]
    assert load(tmp_path / "choice").config.grains == dict.fromkeys(TASKS, 3)
    assert load(tmp_path / "choice/untrained").config.grains == dict.fromkeys(TASKS, 3)


def test_main__a_task_that_cannot_tell_leaves_the_choice_to_the_others(models, tmp_path):
    images = write_images(tmp_path / "images")
    repeat(images, "dots", 48)
    repeat(images, "bars", 2)  # duplicates do not stop it
    content, rows = run(images, models, tmp_path / "out", **QUICK)
    assert content["uncertain"] == ["dots"] and list(content["criterion"]) == ["mean", "bars"]
    assert len(rows) > 5 and "dots" not in rows[0] and "dots" in content["why"][-1]
    assert torch.isfinite(load(tmp_path / "out")(torch.rand(2, 3, 32, 32))).all()


@pytest.fixture(scope="module")
def taught(models, tmp_path_factory):
    """A choice with teachers that know better: the classes."""
    folder = tmp_path_factory.mktemp("taught")
    images = write_images(folder / "images", classes=4, per_class=30)
    collection, generator = read_tables(images, list(TASKS)), np.random.default_rng(0)
    labels = collection.labels[collection.train] + 2 * (collection.tasks[collection.train] == TASKS[0])
    for name in ("own", "large"):
        known = np.eye(8)[labels] + 0.05 * generator.normal(size=(len(labels), 8))
        (folder / "teacher" / name).mkdir(parents=True)
        arrays.write(folder / "teacher" / name / "embeddings.zarr", unit_rows(known.astype(np.float32)))
    listed = lists(teachers={name: {"path": "data/resolution"} for name in ("own", "large")})
    folders, output = [*models[:-1], folder / "teacher"], folder / "out"
    settings = params(**QUICK | {"layers": ["half"], "blocks": [1, 2]})
    given = {"params": settings, "cost": 4.5, "smoothing": SETTINGS, "lists": listed, "seed": 0}
    choice.main(images, *see(images, folders, folder, settings), output, **given)
    return images, folders, output, list(csv.DictReader((output / "criterion.csv").read_text().splitlines()))


def test_main__last_layers_learn_from_teachers(taught):
    _, _, output, rows = taught
    names = {row["name"] for row in rows if row["model"] == "encoder" and row["layer"] == "taught"}
    whose = ("own", "own, smoothed", "all teachers", "all teachers, smoothed")
    assert names == {f"encoder, at 1.5 times the side, its last 2 blocks, taught by {who}" for who in whose}
    (chosen,) = [row for row in rows if row["chosen"] == "1"]
    assert chosen["layer"] == "taught"
    assert "taught" not in {row["layer"] for row in rows if row["model"] == "encoder" and row["scale"] == "1.0"}
    best = next(row for row in rows if row["model"] == "encoder" and row["layer"] != "taught")
    assert load(output / "untrained").dim == int(best["dim"] or 24)


def test_main__what_is_handed_out_has_learnt_from_all_training_images(taught):
    images, folders, output, rows = taught
    (chosen,) = [row for row in rows if row["chosen"] == "1"]
    form = json.loads((output / "choice.json").read_text())["form"]
    targets = read_targets(folders[-1], ["own", "large"])[form["lesson"][0]]
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    model, start = load(output), choice.shape(load(folders[1]), choice.Form("encoder", blocks=2))
    if chosen["model"] == "encoder" and form["lesson"][1] == 0:
        inputs = embed(start, pixels, collection.train, 16, "float32", "")
        np.testing.assert_allclose(model.reduction.weight, learn(inputs, targets)[0], atol=1e-3)
    given = embed(model, pixels, collection.train, 16, "float32", "")
    assert (given * targets).sum(1).mean() > 0.9


def few(images, task):
    """Leaves a task one training image."""
    set_split(images / task, ["train", *["test"] * (len(read_table(images / task)) - 1)])


@pytest.mark.parametrize("spoil", [few, lambda images, task: repeat(images, task, 48)], ids=["few", "alike"])
def test_main__where_no_task_can_tell_the_encoder_is_handed_out(models, tmp_path, spoil):
    images = write_images(tmp_path / "images")
    for task in TASKS:
        spoil(images, task)
    content, rows = run(images, models, tmp_path / "out", **QUICK)
    assert content["name"] == "encoder" and len(rows) == 1 and content["criterion"] == {} and content["images"] == 0
    assert content["uncertain"] == list(TASKS)
    assert is_the_encoder(tmp_path / "out", models)
    assert len(pq.read_table(tmp_path / "out" / "neighbours.parquet")) == 0


@contextlib.contextmanager
def counted():
    """The passes of a network's first layer within the block, an entry for each."""
    passes = []

    def count(module, *_):
        if isinstance(module, PatchEmbed):
            passes.append(module)

    hook = register_module_forward_hook(count)
    yield passes
    hook.remove()


@pytest.mark.parametrize("side", [32, 48])
def test_main__without_training_no_network_runs_once_features_exist(tmp_path, side):
    """The row `encoder` alone passes it, where its side is another; scores are those of embeddings by the network."""
    images, encoder, settings = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder"), params()
    settings = settings.model_copy(update={"mirrored": False, "errors": 0.0})
    seen = {"settings": settings.criterion, "reference": settings.reference, "taken": settings.blocks}
    listed = lists(granularities={}, fusions={}, distillations={}, models={})
    sides = resolution.Params(scales=[1.5], cost=(side / 32) ** 2, errors=100)
    folders = [tmp_path / name for name in ("resolution", "views", "features", "adaptor", "fusion", "distillation")]
    resolution.main(images, encoder, *folders[:2], params=sides, lists=listed, seed=0, **seen)
    with counted() as passes:
        run_features(folders[2], images, folders[0])
    assert passes
    chosen, given = tmp_path / "choice", {"smoothing": SETTINGS, "lists": listed}
    scores = {}
    with counted() as passes:
        choice.main(images, encoder, *folders, tmp_path, chosen, params=settings, cost=1.0, seed=0, **given)
        gallery.main(
            images / "dots",
            chosen,
            folders[2] / "dots",
            tmp_path / "gallery",
            task="dots",
            source="dots",
            params=gallery.Params(smoothing=SETTINGS),
            alike={},
        )
        for name in ("choice/untrained", "choice", "encoder"):
            assert passes == [] and load(folders[0]).config.side == side
            output = tmp_path / "evaluation" / name
            evaluation.main(
                images, tmp_path / name, folders[2], output, model=name, params=EVALUATION, alike={}, **given
            )
            scores[name] = json.loads((output / "metrics.json").read_text())
    assert bool(passes) == (side != 32)
    for name, known in scores.items():
        unknown, output = write_features(tmp_path / f"unknown/{name}", images), tmp_path / "passed" / name
        evaluation.main(images, tmp_path / name, unknown, output, model=name, params=EVALUATION, alike={}, **given)
        for task, values in json.loads((output / "metrics.json").read_text()).items():
            assert known[task]["r_precision"] == pytest.approx(values["r_precision"], abs=5e-4)


FOREIGN = {
    "features": (r"at 32 px, 1 blocks; .* at 48 px, .* run `dvc repro features`", 3),
    "views": (r"saw images at 32 px; 48 px is expected: run `dvc repro resolution`", 2),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_main__refuses_what_was_stored_of_another_side(chosen, models, tmp_path, kind):
    settings = params(**QUICK)
    folders = see(chosen[0], models, tmp_path, settings)
    own = see(chosen[0], [models[0], models[0], *models[2:]], tmp_path / "own", settings)
    message, place = FOREIGN[kind]
    folders[place] = own[place]
    given = {"params": settings, "cost": 4.5, "smoothing": SETTINGS, "lists": lists(), "seed": 0}
    with pytest.raises(ValueError, match=message):
        choice.main(chosen[0], *folders, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()
