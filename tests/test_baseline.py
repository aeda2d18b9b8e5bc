import numpy as np
import pytest
import scipy.linalg
import torch

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.config import Attention
from polygrain.encoder.model import load
from polygrain.fisher.scatter import within_clusters
from polygrain.grappa import barlow_twins
from polygrain.store import arrays, work
from polygrain.store.tables import read_csv
from stages import baseline
from tests.helpers.keys import assert_key_follows
from tests.helpers.settings import pairs
from tests.helpers.small import lists, write_encoder, write_features, write_images

FILES = ("weights.safetensors", "config.json", "history.csv")


def params(up_std=0.02, scale=0.1):
    one = barlow_twins.Pairs(**pairs(scale=scale))
    return baseline.Params(width=4, up_std=up_std, one_set=one, many_sets=pairs(), closed_form=None)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    features = write_features(folder / "features", images, dim=24)
    for k in (4, 8):
        (folder / f"labels/k{k}").mkdir(parents=True)
        arrays.write(folder / f"labels/k{k}/labels.zarr", np.arange(48) % k)
    return images, encoder, features, folder / "labels"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(world, output, kind, attention=None, **changes):
    attention = attention or Attention()
    baseline.main(*world, output, kind=kind, params=params(**changes), attention=attention, lists=lists(), seed=0)
    work.clear()  # as the command does
    return load(output)


def losses(folder):
    return [float(row["loss"]) for row in read_csv(folder / "history.csv")]


def assert_same_bytes(first, second):
    for file in FILES:
        assert (first / file).read_bytes() == (second / file).read_bytes()
    assert not list((first.parent / ".work").rglob("*.safetensors"))


@pytest.mark.parametrize(("kind", "names"), [("one_set", 1), ("many_sets", 2)])
def test_main__random_sets_train_and_the_encoder_does_not(world, tmp_path, kind, names):
    attention = Attention(class_token=False, scaled=False)
    model, encoder = run(world, tmp_path / "out", kind, attention), load(world[1])
    assert len(model.config.adaptors.names) == names  # as many as there are granularities
    for name, tensor in model.without_adaptors().state_dict().items():
        assert torch.equal(tensor, encoder.state_dict()[name]), name
    assert all(layer.up.abs().sum() > 0 for layer in model.adaptors)
    assert len(losses(tmp_path / "out")) == 2
    if names > 1:
        assert model.config.adaptors.attention == attention
        assert all(layer.key.weight.abs().sum() > 0 for layer in model.adaptors)
    run(world, tmp_path / "again", kind, attention)
    assert_same_bytes(tmp_path / "out", tmp_path / "again")


def test_main__closed_form_is_linear_on_the_encoder_and_has_no_epochs(world, tmp_path):
    model, encoder = run(world, tmp_path / "out", "closed_form"), load(world[1])
    images = torch.rand(3, 3, 32, 32)
    expected = encoder(images) @ model.reduction.weight.T + model.reduction.bias
    torch.testing.assert_close(model(images), torch.nn.functional.normalize(expected, dim=1))
    assert losses(tmp_path / "out") == []
    run(world, tmp_path / "again", "closed_form")
    assert_same_bytes(tmp_path / "out", tmp_path / "again")


def test_project__is_fishers_discriminant_of_the_mean_scatter(world):
    """The twin has its matrices from loops, and shrinks as far as the layer did: the axes must be the same."""
    rng = np.random.default_rng(0)
    features = unit_rows((rng.normal(size=(60, 24)) + 1).astype(np.float32))
    labels = {"k5": np.arange(60) % 5, "k20": np.arange(60) % 20}
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    within, shares = np.zeros((24, 24)), []
    for of_one in labels.values():
        scatter = np.zeros((24, 24))
        for label in set(of_one):
            own = centred[of_one == label]
            scatter += (own - own.mean(0)).T @ (own - own.mean(0))
        within += scatter / (60 - len(set(of_one))) / 2
        shares.append(within_clusters(centred, of_one).shrinkage)
    share, trace = np.mean(shares), np.trace(within) / 24
    ratios, axes = scipy.linalg.eigh(centred.T @ centred / 60, (1 - share) * within + share * trace * np.eye(24))
    kept = ratios > 1 + 1e-6
    between = (ratios[kept] - 1) / (1 + 0.05 * (ratios[kept] - 1))
    expected = axes[:, kept] * np.sqrt(between / (1 + between) / (1 + 0.05 * (ratios[kept] - 1)))
    model = load(world[1])
    baseline.project(model, features, labels)
    found, bias = (part.numpy()[: kept.sum()][::-1] for part in (model.reduction.weight, model.reduction.bias))
    np.testing.assert_allclose(np.abs(found), np.abs(expected.T), atol=2e-3 * np.abs(expected).max())
    np.testing.assert_allclose(features.mean(0) @ found.T, -bias, rtol=1e-3, atol=1e-4)


def test_project__refuses_images_that_are_all_equal(world):
    with pytest.raises(ValueError, match="the same features"):
        baseline.project(load(world[1]), np.ones((6, 24), np.float32) / 24**0.5, {"k2": np.arange(6) % 2})


def test_fits__random_sets_are_as_many_as_there_are_adaptors():
    given = lists(adaptors={}, models={}, fusions={}, baselines={"many_sets": "features"})
    with pytest.raises(ValueError, match="baselines lists 'many_sets', which needs adaptors"):
        params().fits(given)
    params().fits(given.model_copy(update={"baselines": {"one_set": "features"}}))


def test_main__its_key_follows_what_it_reads(world, tmp_path, monkeypatch):
    files = ["0/dots/table.parquet", "1/config.json"]
    assert_key_follows(files, lambda given: run(given, tmp_path / "out", "one_set"), world, tmp_path, monkeypatch)
