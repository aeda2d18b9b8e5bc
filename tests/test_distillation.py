import numpy as np
import pytest
import torch

from polygrain.encoder.model import load
from polygrain.selection.criterion import embed_carefully
from polygrain.store.collection import open_pixels, read_tables
from stages import distillation
from tests.helpers.settings import NO_VIEWS, criterion, reference
from tests.helpers.small import TASKS, adapted, lists, write_encoder, write_images, write_model
from tests.helpers.whitened import whitened


def params(**changes):
    values = {
        "target": reference(mirrored=False),
        "neighbours": 0,
        "width": 8,
        "epochs": 2,
        "batch": 16,
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        "warmup": 0.0,
        "precision": "float32",
        "augmentation": NO_VIEWS.model_copy(update={"jitter": 0.1}),
    }
    return distillation.Params(**(values | changes))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    fused = adapted(encoder, ["k4", "k8"], 0, fusion="attention")
    return images, encoder, write_model(fused, tmp_path / "fusion" / "average")


def run(world, output, name="encoder", fewest=4, **changes):
    images, encoder, fusion = world
    distillation.main(
        images,
        encoder,
        encoder if name == "encoder" else fusion,
        output,
        name=name,
        params=params(**changes),
        settings=criterion(fewest=fewest),
        reference=reference(),
        lists=lists(),
        seed=0,
    )
    return load(output)


def read(world):
    return read_tables(world[0], list(TASKS)), open_pixels(world[0], list(TASKS))


@pytest.mark.parametrize(
    ("scales", "mirrored", "blocks"), [([1.0], False, 1), ([1.0, 1.5], True, 1), ([1.5, 2.0], False, 2)]
)
def test_make_targets__targets_are_the_half_whitened_look(world, scales, mirrored, blocks):
    collection, pixels = read(world)
    settings = params(target=reference(scales=scales, mirrored=mirrored, blocks=blocks))
    model, looks = load(world[2]).seen(32, False, blocks), []
    for scale in scales:
        seen = model.seen(round(32 * scale), mirrored)
        looks.append(seen(torch.from_numpy(pixels[collection.train]).permute(0, 3, 1, 2)).numpy())
    expected = whitened(np.concatenate(looks, 1), 8)
    targets = distillation.make_targets(model, pixels, collection.train, settings).numpy()
    np.testing.assert_allclose(targets @ targets.T, expected @ expected.T, atol=1e-3)


def test_make_targets__mixes_the_targets_of_neighbours_by_the_third_power_of_their_cosines(world):
    collection, pixels = read(world)
    plain, mixed = (
        distillation.make_targets(load(world[2]), pixels, collection.train, params(neighbours=count)).numpy()
        for count in (0, 3)
    )
    for row, target in zip(plain, mixed, strict=True):
        cosines = plain @ row
        others = np.argsort(-cosines, kind="stable")[1:4]
        expected = row + sum(max(cosines[other], 0) ** 3 * plain[other] for other in others)
        np.testing.assert_allclose(target, expected / np.linalg.norm(expected), atol=1e-5)


def test_make_targets__one_look_stands_for_all_of_them_at_the_start(world):
    """As if the embedding at the own side were met at every side."""
    collection, pixels = read(world)
    model = load(world[1])
    rows, settings = collection.train, params(target=reference(mirrored=False))
    x = embed_carefully(model, pixels, rows, settings.target, 16, "float32", "x").astype(np.float64)
    mean, values = x.mean(0), np.linalg.eigh(np.cov(x.T))
    projection = values[1][:, ::-1][:, :8] / values[0][::-1][:8] ** 0.25
    plain = model(torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2)).double().numpy()
    by_hand = (np.concatenate([plain, plain], 1) / np.sqrt(2) - mean) @ projection
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    distillation.make_targets(model, pixels, rows, settings)
    found = model(torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(found @ found.T, by_hand @ by_hand.T, atol=1e-3)


def test_main__refuses_a_model_that_has_a_reduction(world, tmp_path):
    images, encoder, fused = world
    model = load(encoder)
    model.reduce(torch.randn(5, 24), torch.randn(5))
    with pytest.raises(ValueError, match="reduction to 5 dimensions"):
        run((images, write_model(model, tmp_path / "reduced"), fused), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("asked", "blocks"), [(2, 2), (9, 2)])
def test_main__gives_of_as_many_blocks_what_it_is_taught_of(world, tmp_path, asked, blocks):
    taught = run(world, tmp_path / "out", target=reference(mirrored=False, blocks=asked), epochs=1)
    assert taught.config.blocks == blocks and taught.reduction.in_features == 24 * blocks


def test_main__an_encoder_gets_a_set_that_learns_and_stays_as_it_is_below(world, tmp_path):
    model, encoder = run(world, tmp_path / "out", epochs=12), load(world[1])
    rows = (tmp_path / "out" / "history.csv").read_text().splitlines()
    assert rows[0] == "epoch,loss,criterion" and len(rows) == 13
    losses = [float(row.split(",")[1]) for row in rows[1:]]
    assert losses[-1] < 0.7 * losses[0]
    assert model.config.adaptors.names == ["distilled"] and model.dim == 8
    below = model.plain().backbone.state_dict(prefix="backbone.")
    assert all(torch.equal(encoder.state_dict()[name], tensor) for name, tensor in below.items())


def test_main__a_fusion_goes_on_with_its_own_sets(world, tmp_path):
    model, taught = run(world, tmp_path / "out", "average"), load(world[2])
    assert model.config.adaptors == taught.config.adaptors
    for name, tensor in taught.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]) == (".adaptors." not in name), name


def test_main__two_runs_write_the_same_bytes_and_leave_no_checkpoint(world, tmp_path):
    for name in ("a", "b"):
        run(world, tmp_path / name, fewest=25)
    for file in ("weights.safetensors", "config.json", "history.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert not list((tmp_path / ".work").rglob("*.safetensors"))
    # No task can tell: the last epoch stands.
    assert (tmp_path / "a" / "history.csv").read_text().startswith("epoch,loss\n1,")
