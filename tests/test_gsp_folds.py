import json

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import load_file

from polygrain.gsp.folds import embedder
from polygrain.retrieval.metrics import score
from polygrain.store import arrays
from stages import gsp_folds
from stages.gsp_folds import Params, main, setting_of
from tests.helpers.small import SIZE, lists, write_encoder, write_images

FAIR = {"kind": "fair", "folds": 2, "repeats": 1, "chosen_by": "map_at_r"}
VALUES = {
    "side": SIZE,
    "resize": None,
    "backbone": {
        "weights": "encoder",
        "path": "x",
        "architecture": None,
        "arguments": {},
        "mean": None,
        "std": None,
        "depth": None,
        "is_trained": False,
    },
    "hidden": 0,
    "embedding": 8,
    "protocol": FAIR,
    "stopping": {"every": 2, "patience": 2, "least_gain": 0.0, "plateau": None, "factor": 0.5, "longest": 4},
    "losses": {
        "c2": {
            "batch_classes": 2,
            "per_class": 3,
            "rate": 1.0,
            "proxy_rate": 1.0,
            "warmup": 0,
            "values": {"positive_margin": 0.0, "negative_margin": 0.5, "normalise": True},
        },
        "proxy_nca_pp": {
            "batch_classes": 3,
            "per_class": 1,
            "rate": 1.0,
            "proxy_rate": 10.0,
            "warmup": 1,
            "values": {"temperature": 0.11},
        },
    },
    "poolings": {"gap": {}, "gsp": {"prototypes": 4, "mu": 0.5, "epsilon": 5.0}},
    "ridge": 0.05,
    "scale": 9.5,
    "optimizer": "adam",
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "precision": "float32",
    "augmentation": None,
    "crop_ratio": 1,
    "batch": 16,
    "pictures": 2,
}
SHAKE = {
    "smallest_crop": 0.8,
    "turn": 0.0,
    "flip": 0.5,
    "stroke": 0.0,
    "jitter": 0.0,
    "tint": 0.0,
    "grey": 0.0,
    "blur": 0.0,
}
LIBC = {"batch_classes": 2, "per_class": 3, "rate": 1.0, "proxy_rate": 1.0, "warmup": 0}
LIBC["values"] = {"steps": 1, "heads": 2, "temperature": 0.2, "smoothing": 0.1, "dropout": 0.1}
RESNET = VALUES["backbone"] | {"weights": "random", "architecture": "test_resnet", "depth": 3, "is_trained": True}


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    return write_images(root / "images", classes=8) / "dots", write_encoder(root / "encoder")


def run(world, output, loss="c2", pooling="gsp", zero_shot=0.0, values=None, shape="crop", **changes):
    spec = {"images": "images/dots", "loss": loss, "pooling": pooling, "zero_shot": zero_shot, "values": values or {}}
    params = Params(**(VALUES | changes))
    main(*world, output, run="one", params=params, lists=lists(gsp_runs={"one": spec}), seed=0, shape=shape)
    return output


def bytes_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_main__writes_every_fold_and_says_what_was_trained(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = run(world, tmp_path / "out", zero_shot=0.2)
    config = json.loads((output / "config.json").read_text())
    assert config["folds"] == [[0, 1], [2, 3]] and config["rows"] == list(range(32, 64))
    assert sorted(path.name for path in output.iterdir() if path.is_dir()) == ["0-0", "1-0"]
    vectors = arrays.open(output / "1-0/embeddings.zarr")[:]
    assert vectors.shape == (32, 8) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert arrays.open(output / "1-0/attributes.zarr").shape == (32, 4)
    assert (output / "history.csv").read_text().startswith("fold,repeat,step,loss,map_at_r,rate\n0,0,2,")
    assert not list((tmp_path / ".work").glob("gsp_folds/*"))


def test_main__libc_trains_with_its_batch_and_hands_out_the_embedding_alone(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    poolings = {"gsp_gmp": VALUES["poolings"]["gsp"]}
    changes = {"losses": {"libc": LIBC}, "poolings": poolings, "optimizer": "radam"}
    made = [run(world, tmp_path / name, "libc", "gsp_gmp", 0.1, **changes) for name in ("first", "second")]
    assert bytes_of(made[0]) == bytes_of(made[1])  # dropout draws the same
    weights = load_file(made[0] / "0-0/weights.safetensors")
    assert weights["loss.refined_classifier.weight"].shape == weights["loss.classifier.weight"].shape == (2, 8)
    assert arrays.open(made[0] / "0-0/embeddings.zarr").shape == (32, 8)
    other = run(world, tmp_path / "adam", "libc", "gsp_gmp", 0.1, **(changes | {"optimizer": "adam"}))
    assert bytes_of(other) != bytes_of(made[0])


def test_params__heads_must_divide_the_embedding():
    values = LIBC | {"values": LIBC["values"] | {"heads": 3}}
    with pytest.raises(ValidationError, match=r"losses.libc.values.heads is 3; it must divide embedding, 8"):
        Params(**(VALUES | {"losses": {"libc": values}}))


def test_main__whole_images_are_seen_in_proportion(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = {
        "crop": run(world, tmp_path / "crop"),
        "whole": run(world, tmp_path / "whole", shape="squash"),
        "middle": run(world, tmp_path / "middle", shape="squash", resize=2 * SIZE),
    }
    pixels = {name: load_file(output / "pictures.safetensors")["pixels"] for name, output in outputs.items()}
    assert np.array_equal(pixels["crop"], pixels["whole"])  # these are squares
    assert np.ptp(pixels["middle"].astype(float), (1, 2)).max() > 0
    vectors = {name: arrays.open(output / "0-0/embeddings.zarr")[:] for name, output in outputs.items()}
    assert np.allclose(vectors["crop"], vectors["whole"], atol=1e-3)
    assert not np.allclose(vectors["crop"], vectors["middle"], atol=1e-2)


def test_params__resize_must_hold_the_input():
    with pytest.raises(ValidationError, match=f"resize 8 is smaller than side {SIZE}; it must be {SIZE} or more"):
        Params(**(VALUES | {"resize": 8}))


def test_main__two_runs_give_the_same_bytes_also_after_a_kill(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = bytes_of(run(world, tmp_path / "first"))
    real, left = embedder.Embedder.loss_of, [5]

    def dies(self, *batch):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(self, *batch)

    monkeypatch.setattr(embedder.Embedder, "loss_of", dies)
    with pytest.raises(Killed):
        run(world, tmp_path / "second")
    assert not (tmp_path / "second").exists()
    left[0] = 4  # what is left of the second fold: the first one is not trained again
    assert bytes_of(run(world, tmp_path / "second")) == expected


def test_main__a_backbone_that_trains_is_saved_and_every_fold_starts_afresh(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    losses = {"proxy_nca_pp": VALUES["losses"]["proxy_nca_pp"] | {"batch_classes": 2}}
    changes = {"backbone": RESNET, "augmentation": SHAKE, "crop_ratio": 1.3333, "losses": losses}
    output = run(world, tmp_path / "out", "proxy_nca_pp", "gap", **changes)
    first, second = (load_file(output / f"{i}-0/weights.safetensors") for i in range(2))
    start = {name: tensor for name, tensor in first.items() if name.startswith("backbone.")}
    assert start and any(np.abs(tensor - second[name]).max() > 0 for name, tensor in start.items())
    assert not (output / "0-0/attributes.zarr").exists()


def test_main__tuning_evaluates_the_held_out_training_classes(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = run(world, tmp_path / "out", protocol=FAIR | {"kind": "tuning", "repeats": 2})
    config = json.loads((output / "config.json").read_text())
    assert config["rows"] == list(range(16, 32)) and (output / "0-1").is_dir() and not (output / "1-0").exists()


def test_main__conventional_trains_on_all_training_classes_and_stops_by_the_score_it_names(
    world, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    protocol = {"kind": "conventional", "folds": 1, "repeats": 1, "chosen_by": "recall_at_1"}
    output = run(world, tmp_path / "out", protocol=protocol)
    assert json.loads((output / "config.json").read_text())["folds"] == [[0, 1, 2, 3]]
    header, *lines = (output / "history.csv").read_text().splitlines()
    assert header == "fold,repeat,step,loss,recall_at_1,rate"
    best = max(float(line.split(",")[4]) for line in lines)
    vectors = arrays.open(output / "0-0/embeddings.zarr")[:]
    met = score(vectors, np.repeat(np.arange(4, 8), 8), np.array(["test"] * 32))
    assert met["recall_at_1"] == pytest.approx(best, abs=1e-6)


def test_main__a_loss_has_a_rate_of_its_own(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slow = VALUES["losses"]["c2"] | {"rate": 0.5}
    made = [
        run(world, tmp_path / "own", losses={"c2": slow}),
        run(world, tmp_path / "same", learning_rate=0.005),
        run(world, tmp_path / "other"),
    ]
    own, same, other = (arrays.open(output / "0-0/embeddings.zarr")[:] for output in made)
    assert np.array_equal(own, same) and not np.array_equal(own, other)


def test_setting_of__tells_runs_of_one_loss_and_pooling_apart():
    values = {"images": "images/dots", "loss": "c2", "pooling": "gsp", "zero_shot": 0.0, "values": {"mu": 1.0}}
    setting = setting_of(lists(gsp_runs={"one": values}).gsp_runs["one"], Params(**VALUES))
    assert setting["values"] == {"prototypes": 4, "mu": 1.0, "epsilon": 5.0} and setting["network"] == "the encoder"
    assert (setting["protocol"], setting["embedding"], setting["folds"]) == ("fair", 8, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "c7"}, r"no gsp_folds.losses.c7; known: c2, proxy_nca_pp"),
        ({"pooling": "mean"}, r"no gsp_folds.poolings.mean; known: gap, gsp"),
        ({"pooling": "gap", "zero_shot": 0.1}, "gap has no attributes for a zero-shot loss"),
        ({"values": {"mu": 1.5}}, r"mu is 1.5; the share of features to keep must be above 0 and at most 1"),
        ({"values": {"epsilon": 0.0}}, r"epsilon is 0.0; it must be above 0"),
        ({"values": {"colour": 1}}, r"pooling 'gsp' takes prototypes, mu, epsilon"),
        ({"protocol": FAIR | {"folds": 4}}, "4 training classes in 4 folds leave 1 in one"),
        ({"loss": "proxy_nca_pp"}, "a batch of 3 classes cannot be drawn from 2 training classes"),
    ],
)
def test_main__raises_and_says_what_is_allowed(world, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run(world, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_params__refuse_unknown_keys():
    with pytest.raises(ValidationError, match="learning_rte"):
        Params(**(VALUES | {"learning_rte": 1}))
    assert gsp_folds.Params(**VALUES).embedding == 8
