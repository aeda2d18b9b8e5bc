import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from polygrain import Collection
from polygrain.collection.postprocessing import strength
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.strength import SETTINGS
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.fisher.closed_form import basis_of, closed_form, of_views
from polygrain.fisher.scatter import within_clusters
from polygrain.retrieval.whitening import apply
from polygrain.selection.candidates.forms import Form
from polygrain.selection.candidates.search import Evaluator, measure
from polygrain.selection.criterion import embed_views, neighbours
from polygrain.store.image_table import open_pixels, read_table, read_tables
from stages import choice, evaluation, gallery, resolution
from tests.helpers.choosing import EVALUATION, QUICK, counted, params, see, write_models
from tests.helpers.small import (
    TASKS,
    cluster,
    lists,
    repeat,
    run_features,
    set_split,
    write_encoder,
    write_features,
    write_images,
)
from tests.test_evaluation import plain_r_precision

FILES = ("weights.safetensors", "config.json", "README.md", "criterion.csv", "choice.json", "neighbours.parquet")


def run(images, models, output, **changes):
    """What choice.json holds, and the rows of criterion.csv."""
    settings = params(**changes)
    reads = see(images, models, output.with_name(f"{output.name}_seen"), settings)
    message = choice.main(reads, output, params=settings, smoothing=SETTINGS, lists=lists())
    assert {path.name for path in output.iterdir()} >= {*FILES, "without_training"}
    rows = list(csv.DictReader((output / "criterion.csv").read_text().splitlines()))
    content = json.loads((output / "choice.json").read_text())
    assert content["name"] in message and str(len(rows)) in message
    return content, rows


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def chosen(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recommended")
    images = write_images(folder / "images")
    return images, folder / "out", *run(images, models, folder / "out")


def test_main__lists_all_candidates_the_best_first(chosen):
    _, _, content, rows = chosen
    values = [float(row["criterion"]) for row in rows]
    assert values == sorted(values, reverse=True) and all(0 <= value <= 1 for value in values)
    assert [row["name"] for row in rows if row["recommended"] == "1"] == [content["name"]]
    for row in rows:
        assert float(row["criterion"]) == pytest.approx(np.mean([float(row[task]) for task in TASKS]), abs=1e-5)
        assert float(row["cost"]) == float(row["scale"]) ** 2
        assert row["scale"] == ("1.0" if row["name"] == "encoder" else "1.5")
    models = {"k4", "k8", "average", "augmentation", "neighbour", "encoder"}
    assert {row["model"] for row in rows if row["layer"] == "none"} == models
    assert {row["scale"] for row in rows if row["model"] == "encoder"} == {"1.0", "1.5"}
    assert {row["model"] for row in rows if row["layer"] == "clusters"} == {row["model"] for row in rows}
    assert {(row["blocks"], row["dim"]) for row in rows if row["layer"] == "clusters"} == {("2", "48")}


def test_main__says_what_was_chosen_with_intervals(chosen):
    _, output, content, rows = chosen
    by_name = {row["name"]: row for row in rows}
    assert content["images"] == 24 and content["uncertain"] == [] and list(content["criterion"]) == ["mean", *TASKS]
    for column, values in content["criterion"].items():
        for key, name in (("encoder", "encoder"), ("recommended", content["name"])):
            mean, low, high = values[key]
            expected = by_name[name]["criterion" if column == "mean" else column]
            assert mean == pytest.approx(float(expected), abs=1e-5) and low <= mean <= high
        assert values["difference"][0] == pytest.approx(values["recommended"][0] - values["encoder"][0])
    card = (output / "README.md").read_text()
    assert content["name"] in card and all(line in card for line in content["why"])


def test_main__hands_out_the_chosen_form_and_the_encoder_at_its_best(chosen):
    _, output, _, rows = chosen
    best = next(row for row in rows if row["model"] == "encoder" and row["scale"] == "1.5")  # the best stands first
    (taken,) = [row for row in rows if row["recommended"] == "1"]
    for row, folder in ((taken, output), (best, output / "without_training")):
        model = load(folder)
        assert model.config.side == round(32 * float(row["scale"]))
        assert model.dim == int(row["dim"] or 24)
    assert load(output / "without_training").config.adaptors is None


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
        assert len(row["recommended"]) == 3 and row["row"] not in row["recommended"]


def is_the_encoder(output, models):
    model, encoder = load(output), load(models[0])
    same = all(torch.equal(tensor, encoder.state_dict()[name]) for name, tensor in model.state_dict().items())
    return same and model.config == encoder.config


@pytest.mark.slow
def test_main__hands_out_the_encoder_where_all_others_are_worse(tmp_path):
    images, spoilt = write_images(tmp_path / "images"), write_models(tmp_path, std=30.0, side=32)
    content, rows = run(images, spoilt, tmp_path / "out", **QUICK)
    assert content["name"] == "encoder" and rows[0]["name"] == "encoder" and len(rows) > 5
    assert is_the_encoder(tmp_path / "out", spoilt)


@pytest.fixture(scope="module")
def read_by_all(chosen, models, tmp_path_factory):
    return see(chosen[0], models, tmp_path_factory.mktemp("seen"), params())


BUILT = [(name, layer) for name in ("resolution", "fusion/neighbour") for layer in ("none", "clusters")]


@pytest.mark.parametrize(("name", "layer"), [*BUILT, ("reduced", "own")])
def test_build__makes_the_layer_of_all_clusters(chosen, models, read_by_all, name, layer):
    folder = models[0].parent / name
    settings = params(layer=layer if layer == "clusters" else "none")
    world = choice.World.of(read_by_all, lists(), settings)
    evaluator = Evaluator(settings, world.collection, world.seen, world.granularities, world.stored)
    candidates = {one.form.layer: one for one in measure(evaluator, load(folder), Form("x"), world.pixels)}
    model, blocks = choice.build(folder, candidates[layer], world, settings), 2 if layer == "clusters" else 1
    by_hand, learnt = load(folder), load(folder).reduction
    by_hand.reduction, by_hand.config = torch.nn.Identity(), by_hand.config.model_copy(update={"reduced": None})
    rows = world.collection.train
    images = torch.from_numpy(world.pixels[rows]).permute(0, 3, 1, 2)
    wide = by_hand.at_side(by_hand.config.side, False, blocks)
    expected = wide(images)
    if layer == "own":
        expected = torch.nn.functional.normalize(learnt(expected), dim=1)
    elif layer != "none":
        vectors = expected.numpy()
        basis = basis_of(vectors, world.collection.tasks[rows])
        turned = basis.turn(vectors)
        scatters = [within_clusters(turned, labels) for labels in world.granularities.labels.values()]
        views = embed_views(wide, world.pixels, world.seen.sample, settings.criterion).stacked()
        fitted = closed_form(basis, scatters, of_views(basis, views))
        expected = torch.from_numpy(apply(fitted, vectors))
        expected = torch.nn.functional.pad(expected, (0, 48 - expected.shape[1]))  # the width in front
    torch.testing.assert_close(model(images), expected, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("dim", [5, 60])
@pytest.mark.parametrize("name", ["resolution", "reduced"])
def test_build__has_the_length_that_was_judged(chosen, models, read_by_all, name, dim):
    settings = params(dim=dim)
    world = choice.World.of(read_by_all, lists(), settings)
    evaluator = Evaluator(settings, world.collection, world.seen, world.granularities, world.stored)
    folder, sample = models[0].parent / name, world.seen.sample
    for one in measure(evaluator, load(folder), Form("x"), world.pixels):
        model = choice.build(folder, one, world, settings)
        vectors = embed(model, world.pixels, sample.rows, 16, "float32", "")
        assert vectors.shape[1] == dim
        for task, found in neighbours(vectors, sample, 3).items():
            np.testing.assert_array_equal(found, one.neighbours[task])


@pytest.mark.slow
def test_main__each_task_is_compared_by_its_own_mean_wherever_it_is_searched(models, tmp_path, monkeypatch):
    """The answers of gallery and evaluation are those of vectors less the mean of the searched images."""
    monkeypatch.chdir(tmp_path)
    images = write_images(tmp_path / "images")
    for name, value in {"FEWEST_SMOOTHED": 12, "DEPTH": 5, "ERRORS": 99}.items():
        monkeypatch.setattr(strength, name, value)
    smoothing = SETTINGS.model_copy(update={"neighbours": 4, "strengths": [0.9]})
    settings = params()
    reads = see(images, models, tmp_path / "seen", settings)
    choice.main(reads, tmp_path / "choice", params=settings, smoothing=smoothing, lists=lists())
    model, says = load(tmp_path / "choice"), Comparisons.read(tmp_path / "choice")
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    vectors = embed(model, pixels, np.arange(len(collection.tasks)), 16, "float32", "")
    dots = collection.tasks == "dots"
    searched = np.flatnonzero(dots & (~collection.is_query | collection.is_train))
    np.testing.assert_allclose(says.of("dots").mean, vectors[searched].mean(0), atol=1e-3)
    assert says.of("dots").smoothing.strength == 0.9 and len(says.default.mean) == model.dim

    places = images / "dots", tmp_path / "choice", reads.features / "dots", tmp_path / "gallery"
    gallery.main(*places, task="dots", params=gallery.Params(smoothing=smoothing))
    plain = Collection.open(tmp_path / "gallery/embeddings.parquet")
    expected = unit_rows(vectors[dots] - vectors[searched].mean(0))
    np.testing.assert_allclose(plain.plain, expected, atol=5e-3)
    np.testing.assert_allclose(plain.comparison.query(vectors[dots]), expected, atol=5e-3)

    measuring = {"model": "recommended", "alike": {}, "smoothing": smoothing, "lists": lists(), "params": EVALUATION}
    evaluation.main(images, tmp_path / "choice", reads.features, tmp_path / "measured", **measuring)
    measured = json.loads((tmp_path / "measured/metrics.json").read_text())
    for task, values in measured.items():
        own = np.flatnonzero((collection.tasks == task) & collection.is_test)
        part = unit_rows(vectors[own] - vectors[own].mean(0))
        assert values["r_precision"] == pytest.approx(plain_r_precision(part, collection.labels[own]).mean(), abs=0.02)


@pytest.mark.slow
def test_comparisons__the_rows_of_other_models_are_centred_as_the_chosen_one(models, tmp_path):
    """So the report does not credit the layer with what centring gave: of 30 searched images both have a mean."""
    images, settings = write_images(tmp_path / "images", per_class=7), params(**QUICK)
    for task in TASKS:
        asks = read_table(images / task)["is_query"].to_pylist()
        set_split(images / task, ["test" if ask or row >= 21 else "train" for row, ask in enumerate(asks)])
    world = choice.World.of(see(images, models, tmp_path / "seen", settings), lists(), settings)
    assert (~world.collection.is_query).sum() == 2 * 30
    measured, given = {}, {"alike": {}, "smoothing": SETTINGS, "lists": lists(), "params": EVALUATION}
    for name in ("encoder", "recommended"):
        folder, output = write_encoder(tmp_path / name), tmp_path / "measured" / name
        if name == "recommended":
            choice.comparisons(load(folder), world, settings, SETTINGS).write(folder)
        evaluation.main(images, folder, tmp_path / "seen/features", output, model=name, **given)
        measured[name] = {file.stem: json.loads(file.read_text()) for file in output.glob("*.json")}
    assert measured["encoder"]["centred"] == measured["recommended"]["metrics"] != measured["encoder"]["metrics"]
    assert measured["encoder"]["collection_centred"] == measured["recommended"]["collection"]


@pytest.mark.slow
def test_main__a_task_that_cannot_tell_leaves_the_choice_to_the_others(models, tmp_path):
    images = write_images(tmp_path / "images")
    repeat(images, "dots", 48)
    repeat(images, "bars", 2)  # duplicates do not stop it
    content, rows = run(images, models, tmp_path / "out", **QUICK)
    assert content["uncertain"] == ["dots"] and list(content["criterion"]) == ["mean", "bars"]
    assert len(rows) > 5 and "dots" not in rows[0] and "dots" in content["why"][-1]
    assert torch.isfinite(load(tmp_path / "out")(torch.rand(2, 3, 32, 32))).all()


def few(images, task):
    """Leaves a task one training image."""
    set_split(images / task, ["train", *["test"] * (len(read_table(images / task)) - 1)])


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [few, lambda images, task: repeat(images, task, 48)], ids=["few", "alike"])
def test_main__where_no_task_can_tell_the_encoder_is_handed_out(models, tmp_path, spoil):
    images = write_images(tmp_path / "images")
    for task in TASKS:
        spoil(images, task)
    content, rows = run(images, models, tmp_path / "out", **QUICK)
    assert content["name"] == "encoder" and len(rows) == 1 and content["criterion"] == {} and content["images"] == 0
    assert content["uncertain"] == list(TASKS)
    assert is_the_encoder(tmp_path / "out", models)


@pytest.mark.slow
@pytest.mark.parametrize("side", [32, 48])
def test_main__without_training_no_network_runs_once_features_exist(tmp_path, side):
    """The row `encoder` alone passes it, where its side is another; scores are those of embeddings by the network."""
    images, encoder, settings = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder"), params()
    settings = settings.model_copy(update={"errors": 0.0})
    seen = {"settings": settings.criterion, "reference": settings.reference, "taken": settings.blocks}
    listed = lists(granularities={"size4": "pseudo_labels/size4"}, adaptors={}, fusions={}, models={})
    sides = resolution.Params(scales=[1.5], cost=(side / 32) ** 2, errors=100)
    folders = [tmp_path / name for name in ("resolution", "views", "features")]
    resolution.main(images, encoder, *folders[:2], params=sides, lists=listed, seed=0, **seen)
    with counted() as passes:
        run_features(folders[2], images, folders[0], dtype="float32")
    assert passes
    folders += [*cluster(tmp_path, images, folders[2], listed), *map(tmp_path.joinpath, "ab")]
    chosen, given = tmp_path / "choice", {"smoothing": SETTINGS, "lists": listed}
    scores = {}
    with counted() as passes:
        choice.main(choice.Reads(images, encoder, *folders), chosen, params=settings, **given)
        places = images / "dots", chosen, folders[2] / "dots", tmp_path / "gallery"
        gallery.main(*places, task="dots", params=gallery.Params(smoothing=SETTINGS))
        for name in ("choice/without_training", "choice", "encoder"):
            assert passes == [] and load(folders[0]).config.side == side
            output = tmp_path / "evaluation" / name
            evaluation.main(
                images, tmp_path / name, folders[2], output, model=name, params=EVALUATION, alike={}, **given
            )
            scores[name] = json.loads((output / "metrics.json").read_text())
    assert bool(passes) == (side != 32)
    for name, of_known in scores.items():
        unknown, output = write_features(tmp_path / f"unknown/{name}", images), tmp_path / "passed" / name
        evaluation.main(images, tmp_path / name, unknown, output, model=name, params=EVALUATION, alike={}, **given)
        for task, values in json.loads((output / "metrics.json").read_text()).items():
            assert of_known[task]["r_precision"] == pytest.approx(values["r_precision"], abs=5e-4)
