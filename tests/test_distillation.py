import numpy as np
import pytest
import torch

from polygrain.encoder.model import load
from polygrain.selection.criterion import embed_carefully
from polygrain.store import work
from polygrain.store.image_table import open_pixels, read_tables
from stages import distillation
from tests.helpers.keys import assert_key_follows
from tests.helpers.pretended_gpu import steps_counted
from tests.helpers.settings import NO_VIEWS, VIEWS, criterion, reference
from tests.helpers.small import TASKS, adapted, lists, write_encoder, write_images, write_model
from tests.helpers.whitened import whitened


def params(**changes):
    values = {
        "target": reference(mirrored=False),
        "neighbours": 0,
        "width": 8,
        "watch": "criterion",
        "watched": 12,
        "epochs": 2,
        "batch": 16,
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        "warmup": 0.0,
        "precision": "float32",
        "augmentation": NO_VIEWS.model_copy(update={"jitter": 0.1}),
    }
    return distillation.Params(**(values | changes))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    fused = adapted(encoder, ["k4", "k8"], 0, fusion="attention")
    return images, encoder, write_model(fused, folder / "fusion" / "average")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(world, output, name="encoder", fewest=4, **changes):
    images, encoder, fusion = world
    folders = images, encoder, encoder if name == "encoder" else fusion, output
    given = {"settings": criterion(fewest=fewest), "reference": reference(), "lists": lists(), "seed": 0}
    distillation.main(*folders, name=name, params=params(**changes), **given)
    work.clear()  # as the command does
    return load(output)


def read(world):
    """The pixels of all images, the rows of those for training, and these as a batch."""
    rows, pixels = read_tables(world[0], list(TASKS)).train, open_pixels(world[0], list(TASKS))
    return pixels, rows, torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("scales", "mirrored", "blocks"), [([1.0], False, 1), ([1.0, 1.5], True, 1), ([1.5, 2.0], False, 2)]
)
def test_make_targets__targets_are_the_half_whitened_look(world, scales, mirrored, blocks):
    pixels, rows, images = read(world)
    settings = params(target=reference(scales=scales, mirrored=mirrored, blocks=blocks))
    model = load(world[2]).at_side(32, False, blocks)
    looks = [model.at_side(round(32 * scale), mirrored)(images).numpy() for scale in scales]
    expected = whitened(np.concatenate(looks, 1), 8)
    targets = distillation.make_targets(model, pixels, rows, settings).numpy()
    np.testing.assert_allclose(targets @ targets.T, expected @ expected.T, atol=1e-3)


def test_make_targets__mixes_the_targets_of_neighbours_by_the_third_power_of_their_cosines(world):
    pixels, rows, _ = read(world)
    plain, mixed = (
        distillation.make_targets(load(world[2]), pixels, rows, params(neighbours=count)).numpy() for count in (0, 3)
    )
    for row, target in zip(plain, mixed, strict=True):
        cosines = plain @ row
        others = np.argsort(-cosines, kind="stable")[1:4]
        expected = row + sum(max(cosines[other], 0) ** 3 * plain[other] for other in others)
        np.testing.assert_allclose(target, expected / np.linalg.norm(expected), atol=1e-5)


def test_make_targets__one_look_stands_for_all_of_them_at_the_start(world):
    """As if the embedding at the own side were met at every side."""
    (pixels, rows, images), model = read(world), load(world[1])
    settings = params(target=reference(mirrored=False))
    x = embed_carefully(model, pixels, rows, settings.target, 16, "float32", "x").astype(np.float64)
    mean, values = x.mean(0), np.linalg.eigh(np.cov(x.T))
    projection = values[1][:, ::-1][:, :8] / values[0][::-1][:8] ** 0.25
    plain = model(images).double().numpy()
    by_hand = (np.concatenate([plain, plain], 1) / np.sqrt(2) - mean) @ projection
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    distillation.make_targets(model, pixels, rows, settings)
    result = model(images).numpy()
    np.testing.assert_allclose(result @ result.T, by_hand @ by_hand.T, atol=1e-3)


def test_main__refuses_a_model_that_has_a_reduction(world, tmp_path):
    images, encoder, fused = world
    model = load(encoder)
    model.reduce(torch.randn(5, 24), torch.randn(5))
    with pytest.raises(ValueError, match="reduction to 5 dimensions"):
        run((images, write_model(model, tmp_path / "reduced"), fused), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_main__an_encoder_gets_a_set_that_learns_and_stays_as_it_is_below(world, tmp_path):
    model, encoder = run(world, tmp_path / "out", epochs=8), load(world[1])
    rows = (tmp_path / "out/history.csv").read_text().splitlines()
    assert rows[0] == "epoch,loss,criterion" and len(rows) == 9
    losses = [float(row.split(",")[1]) for row in rows[1:]]
    assert losses[-1] < 0.8 * losses[0]
    assert model.config.adaptors.names == ["distilled"] and model.dim == 8
    below = model.without_adaptors().backbone.state_dict(prefix="backbone.")
    assert all(torch.equal(encoder.state_dict()[name], tensor) for name, tensor in below.items())


def test_main__a_fusion_goes_on_with_its_own_sets(world, tmp_path):
    model, taught = run(world, tmp_path / "out", "average"), load(world[2])
    assert model.config.adaptors == taught.config.adaptors
    for name, tensor in taught.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]) == (".adaptors." not in name), name


def test_main__two_runs_write_the_same_bytes_and_leave_no_checkpoint(world, tmp_path):
    for name in ("a", "b"):
        # Nine blocks are asked for, of which there are two.
        model = run(world, tmp_path / name, fewest=25, target=reference(mirrored=False, blocks=9))
    for file in ("weights.safetensors", "config.json", "history.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert model.config.blocks == 2 and model.reduction.in_features == 48
    assert not list((tmp_path / ".work").rglob("*.safetensors"))
    # No task can tell: the last epoch stands.
    assert (tmp_path / "a/history.csv").read_text().startswith("epoch,loss\n1,")


def test_main__its_key_follows_what_it_reads(world, tmp_path, monkeypatch):
    files = ["0/dots/table.parquet", "1/config.json", "2/config.json"]
    assert_key_follows(files, lambda given: run(given, tmp_path / "out", "average"), world, tmp_path, monkeypatch)


def test_train__no_step_waits_for_a_gpu(world, tmp_path):
    with steps_counted() as waits:
        run(world, tmp_path / "out", watch="none", epochs=1, batch=8, augmentation=VIEWS)
    assert len(waits) == 6 and len(set(waits)) == 1
