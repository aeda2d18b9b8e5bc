import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.retrieval import whitening
from polygrain.selection.criterion import Sample
from polygrain.store.collection import open_pixels, read_tables
from stages import choice
from tests.helpers.settings import criterion, reference
from tests.helpers.small import TASKS, adapted, lists, repeat, write_encoder, write_images, write_model

FILES = ("weights.safetensors", "config.json", "README.md", "criterion.csv", "choice.json", "neighbours.parquet")
BESIDE = ("untrained",)


def params(**changes):
    values = {
        "criterion": criterion(),
        "reference": reference(),
        "first_strength": 0.75,
        "strengths": [0.5, 1.0],
        "finalists": 1,
        "layers": ["half"],
        "dims": [8, 99],
        "fitted": 1000,
        "blocks": [1, 2],
        "mirrored": True,
        "errors": 1.0,
        "guard": 1.0,
    }
    return choice.Params(**(values | changes))


def write_models(folder, std=0.1, side=48):
    """The folders of all models, as their stages leave them; the more `std`, the less is left of the encoder."""
    write_encoder(folder / "encoder")
    encoder = write_model(load(folder / "encoder").seen(side, False), folder / "resolution")
    for seed, name in enumerate(("k4", "k8")):
        write_model(adapted(encoder, [name], seed, std), folder / "adaptor" / name)
    for seed, name in enumerate(("average", "augmentation", "neighbour")):
        fusion = "average" if name == "average" else "attention"
        write_model(adapted(encoder, ["k4", "k8"], seed, std, fusion), folder / "fusion" / name)
    taught, generator = adapted(encoder, ["distilled"], 5, std), torch.Generator().manual_seed(6)
    taught.reduce(torch.randn(6, 24, generator=generator), torch.randn(6, generator=generator))
    write_model(taught, folder / "distillation" / "encoder")
    return [folder / name for name in ("encoder", "resolution", "adaptor", "fusion", "distillation")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


def run(images, models, output, cost=4.5, **changes):
    said = choice.main(images, *models, output, params=params(**changes), cost=cost, lists=lists(), seed=0)
    assert sorted(path.name for path in output.iterdir()) == sorted([*FILES, *BESIDE])
    rows = list(csv.DictReader((output / "criterion.csv").read_text().splitlines()))
    assert said == f"{json.loads((output / 'choice.json').read_text())['name']}, of {len(rows)} candidates"
    return json.loads((output / "choice.json").read_text()), rows


@pytest.fixture(scope="module")
def chosen(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    images = write_images(folder / "images")
    return images, folder / "out", *run(images, models, folder / "out")


def test_main__lists_all_candidates_the_best_first(chosen):
    _, _, said, rows = chosen
    values = [float(row["criterion"]) for row in rows]
    assert values == sorted(values, reverse=True) and all(0 <= value <= 1 for value in values)
    assert len({row["name"] for row in rows}) == len(rows)
    assert [row["name"] for row in rows if row["chosen"] == "1"] == [said["name"]]
    for row in rows:
        assert float(row["criterion"]) == pytest.approx(np.mean([float(row[task]) for task in TASKS]), abs=1e-5)
        assert float(row["cost"]) == float(row["scale"]) ** 2 * (1 + int(row["mirrored"])) <= 4.5
        assert row["scale"] == ("1.0" if row["name"] == "encoder" else "1.5")
    first = {row["model"] for row in rows if row["strength"] == "0.75" and row["layer"] == "none"}
    assert first == {"k4", "k8", "average", "augmentation", "neighbour", "distilled_encoder"}
    assert len({row["model"] for row in rows if row["strength"] == "0.5"}) == 1
    assert {(row["scale"], row["mirrored"]) for row in rows if row["model"] == "encoder"} == {
        ("1.0", "0"),
        ("1.5", "0"),
        ("1.5", "1"),
    }
    assert {row["dim"] for row in rows if row["layer"] == "half"} == {"8", "24", "47"}
    assert {row["model"] for row in rows if row["layer"] == "own"} == {"distilled_encoder"}


def test_main__says_what_was_chosen_with_intervals(chosen):
    _, output, said, rows = chosen
    by_name = {row["name"]: row for row in rows}
    assert said["images"] == 48 and said["uncertain"] == [] and list(said["criterion"]) == ["mean", *TASKS]
    for column, found in said["criterion"].items():
        for key, name in (("encoder", "encoder"), ("chosen", said["name"])):
            mean, low, high = found[key]
            expected = by_name[name]["criterion" if column == "mean" else column]
            assert mean == pytest.approx(float(expected), abs=1e-5) and low <= mean <= high
        assert found["difference"][0] == pytest.approx(found["chosen"][0] - found["encoder"][0])
    card = (output / "README.md").read_text()
    assert said["name"] in card and all(line in card for line in said["why"])
    assert any(f"{len(rows)} candidates" in line for line in said["why"])
    assert any("at 1.5 times its side" in line for line in said["why"])


def test_main__hands_out_the_chosen_form(chosen):
    _, output, said, rows = chosen
    model, (row,) = load(output), [row for row in rows if row["chosen"] == "1"]
    assert model.config.side == round(32 * float(row["scale"])) and model.config.mirrored == bool(int(row["mirrored"]))
    assert model.dim == (int(row["dim"]) if row["dim"] else 24)
    if said["form"]["model"] == "encoder":
        assert model.config.adaptors is None


def test_main__hands_out_the_encoder_at_its_best(chosen):
    _, output, _, rows = chosen
    best = next(row for row in rows if row["model"] == "encoder" and row["scale"] == "1.5")  # the best stands first
    rival = load(output / "untrained")
    assert rival.config.adaptors is None and rival.dim == (int(best["dim"]) if best["dim"] else 24)
    assert rival.config.side == round(32 * float(best["scale"])) and rival.config.mirrored == bool(
        int(best["mirrored"])
    )


def test_main__the_neighbours_are_those_of_plain_search(chosen, models):
    images, output, _, _ = chosen
    table = pq.read_table(output / "neighbours.parquet").to_pylist()
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    own = [row["row"] for row in table if row["task"] == "bars"]
    assert len(table) == 48 and sorted(own) == collection.rows[collection.train][24:].tolist()
    places = np.flatnonzero(collection.tasks == "bars")[own]
    embeddings = load(models[0])(torch.from_numpy(pixels[places]).permute(0, 3, 1, 2)).numpy()
    for i, row in enumerate(row for row in table if row["task"] == "bars"):
        others = sorted((j for j in range(24) if j != i), key=lambda j: -(embeddings[i] @ embeddings[j]))
        assert row["encoder"] == [own[j] for j in others[:3]]
        assert len(row["chosen"]) == 3 and row["row"] not in row["chosen"]


def test_main__two_runs_write_the_same_bytes(chosen, models, tmp_path):
    run(chosen[0], models, tmp_path / "again")
    for file in (path.relative_to(chosen[1]) for path in chosen[1].rglob("*") if path.is_file()):
        assert (chosen[1] / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file


def is_the_encoder(output, models):
    own, encoder = load(output), load(models[0])
    assert own.config == encoder.config
    return all(torch.equal(tensor, encoder.state_dict()[name]) for name, tensor in own.state_dict().items())


def test_main__hands_out_the_encoder_where_all_others_are_worse(tmp_path):
    images, spoilt = write_images(tmp_path / "images"), write_models(tmp_path, std=30.0, side=32)
    said, rows = run(images, spoilt, tmp_path / "out", layers=[], strengths=[], mirrored=False)
    assert said["name"] == "encoder" and rows[0]["name"] == "encoder" and len(rows) > 5
    assert is_the_encoder(tmp_path / "out", spoilt)


def test_main__mirrors_only_what_the_budget_allows(chosen, models, tmp_path):
    _, rows = run(chosen[0], models, tmp_path / "out", cost=4.4)
    assert {row["mirrored"] for row in rows} == {"0"} and {row["cost"] for row in rows} == {"1", "2.25"}


def test_main__at_a_smaller_side_the_rival_sees_it_too(chosen, models, tmp_path):
    smaller = [models[0], *write_models(tmp_path / "models", side=16)[1:]]
    said, rows = run(chosen[0], smaller, tmp_path / "out", cost=1.0)
    assert {row["scale"] for row in rows} == {"1.0", "0.5"} and load(tmp_path / "out/untrained").config.side == 16
    assert any("at 0.5 times its side" in line for line in said["why"])


def test_main__at_the_encoders_own_side_it_is_measured_once(chosen, models, tmp_path):
    same = [models[0], models[0], *write_models(tmp_path / "models", side=32)[2:]]
    _, rows = run(chosen[0], same, tmp_path / "out", cost=1.0)
    assert {row["cost"] for row in rows} == {"1"}
    assert [row["layer"] for row in rows if row["model"] == "encoder"].count("none") == 1


def test_draw_fitted__all_or_so_many_of_them():
    train = np.arange(3, 30)
    np.testing.assert_array_equal(choice.draw_fitted(train, 27, 0), train)
    drawn = choice.draw_fitted(train, 9, 0)
    assert len(set(drawn)) == 9 and set(drawn) <= set(train) and (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(drawn, choice.draw_fitted(train, 9, 0))
    assert set(drawn) != set(choice.draw_fitted(train, 9, 1))


def test_measure__whitenings_are_fitted_to_the_images_drawn_for_that(chosen, models):
    collection, pixels = read_tables(chosen[0], list(TASKS)), open_pixels(chosen[0], list(TASKS))
    sample = choice.criterion.draw(collection, 6, 2, 0)
    fitted = np.sort(np.random.default_rng(0).choice(collection.train, 20, replace=False))
    assert 0 < np.isin(sample.rows, fitted).sum() < len(sample.rows)
    encoder = load(models[1])
    none = {task: np.zeros((len(own), 3), int) for task, own in sample.parts().items()}
    trial = choice.Trial(sample, none, fitted)
    choice.measure(trial, encoder, choice.ENCODER, pixels, params(blocks=[1]))
    known = embed(encoder, pixels, fitted, 10, "float32", "")
    by_hand = whitening.apply(whitening.fit(known, 8, "half"), embed(encoder, pixels, sample.rows, 10, "float32", ""))
    wanted = choice.criterion.neighbours(by_hand, sample, params().criterion.neighbours)
    found = trial.nearest["encoder, half-whitened to 8"]
    for task, places in wanted.items():
        np.testing.assert_array_equal(found[task], places)


def test_agreed__forms_travel_whole():
    forms = [choice.Form("k4", 0.7, 1.5, True, "half", 8, 4.5, 2), choice.ENCODER]
    assert choice.agreed(forms) == forms


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"layer": "half", "dim": 8},
        {"layer": "full", "dim": 99},
        {"layer": "own"},
        {"layer": "half", "dim": 32, "blocks": 2},
    ],
)
def test_build__scales_the_adaptors_and_fits_the_whitening_to_all_training_images(chosen, models, form):
    name = "distillation/encoder" if form.get("layer") == "own" else "fusion/neighbour"
    collection, pixels = read_tables(chosen[0], list(TASKS)), open_pixels(chosen[0], list(TASKS))
    wanted = choice.Form("x", 0.5, mirrored=True, **form)
    folder = models[0].parent / name
    found = choice.build(folder, wanted, pixels, collection, params())
    by_hand, own = load(folder), load(folder).reduction
    for layer in by_hand.adaptors:
        layer.up.mul_(0.5)
        layer.up_bias.mul_(0.5)
        if by_hand.config.adaptors.fusion == "attention":
            layer.key.weight.mul_(2)
    bare = {"reduced": None, "blocks": wanted.blocks}
    by_hand.reduction, by_hand.config = torch.nn.Identity(), by_hand.config.model_copy(update=bare)
    images = torch.from_numpy(pixels[collection.train]).permute(0, 3, 1, 2)
    expected = by_hand.seen(48, True)(images)
    if form.get("layer") == "own":
        expected = torch.nn.functional.normalize(own(expected), dim=1)
    elif form:
        fitted = whitening.apply(whitening.fit(expected, min(form["dim"], 24 * wanted.blocks), form["layer"]), expected)
        expected = torch.from_numpy(fitted)
    torch.testing.assert_close(found(images), expected, atol=1e-3, rtol=1e-3)


def keep_train(images, task, count):
    """Leaves a task so many training images."""
    file = images / task / "table.parquet"
    table = pq.read_table(file)
    split = ["train" if i < count else "test" for i in range(len(table))]
    place = table.schema.get_field_index("split")
    pq.write_table(table.set_column(place, table.schema.field(place), [split]), file)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_main__tasks_of_too_few_images_cannot_tell(models, tmp_path, count):
    images = write_images(tmp_path / "images")
    for task in TASKS:
        keep_train(images, task, count)
    said, rows = run(images, models, tmp_path / "out")
    assert said["name"] == "encoder" and len(rows) == 1 and said["criterion"] == {} and said["images"] == 0
    assert said["uncertain"] == (list(TASKS) if count else [])
    assert "No task can tell" in said["why"][0] and said["why"][0] in (tmp_path / "out" / "README.md").read_text()
    assert is_the_encoder(tmp_path / "out", models)
    assert len(pq.read_table(tmp_path / "out" / "neighbours.parquet")) == 0


@pytest.mark.parametrize("fewest", [2, 24])
def test_main__images_all_alike_cannot_tell(models, tmp_path, fewest):
    images = write_images(tmp_path / "images")
    for task in TASKS:
        repeat(images, task, 48)
    said, _ = run(images, models, tmp_path / "out", criterion=criterion(fewest=fewest))
    assert said["uncertain"] == list(TASKS) and said["criterion"] == {} and is_the_encoder(tmp_path / "out", models)
    assert any("images all alike" in line and "dots, bars" in line for line in said["why"])


def test_main__a_task_that_cannot_tell_leaves_the_choice_to_the_others(models, tmp_path):
    images = write_images(tmp_path / "images")
    repeat(images, "dots", 48)
    said, rows = run(images, models, tmp_path / "out")
    assert said["uncertain"] == ["dots"] and list(said["criterion"]) == ["mean", "bars"] and said["images"] == 24
    assert len(rows) > 5 and "dots" not in rows[0] and "dots" in said["why"][-1]


def test_main__a_task_of_two_images_among_them(models, tmp_path):
    images = write_images(tmp_path / "images")
    keep_train(images, "dots", 2)
    said, _ = run(images, models, tmp_path / "out", criterion=criterion(fewest=2))
    assert said["uncertain"] == ["dots"]


@pytest.mark.parametrize("times", [2, 24])
def test_main__duplicates_do_not_stop_it(models, tmp_path, times):
    images = write_images(tmp_path / "images")
    for task in TASKS:
        repeat(images, task, times)
    said, _ = run(images, models, tmp_path / "out")
    assert np.isfinite(load(tmp_path / "out")(torch.rand(2, 3, 32, 32)).numpy()).all()
    assert (said["criterion"] == {}) == (len(said["uncertain"]) == 2)


def test_untold__a_summary_of_nothing_measured():
    sample = Sample(np.empty(0, np.int64), np.empty(0, dtype=object))
    said = choice.summary(choice.untold(sample), "encoder", ["x"], ["dots"])
    assert said["criterion"] == {} and json.loads(json.dumps(said, allow_nan=False))["name"] == "encoder"
