from pathlib import Path

import pytest
import torch

from polygrain.encoder import model
from polygrain.mpcl import trainable
from stages import encoder as encoder_stage
from stages import mpcl_encoder
from tests.helpers.pretraining_world import VIEW, barlow, moco_v2, moco_v3
from tests.helpers.small import CONFIG, TASKS, lists, write_encoder, write_images


def params(**changes):
    values = {
        "images": None,
        "network": {"architecture": CONFIG.architecture, "kwargs": CONFIG.kwargs, "side": CONFIG.size},
        "epochs": 2,
        "batch": 8,
        "warmup": 0,
        "precision": "float32",
        "views": [VIEW, VIEW],
        "crop_ratio": 1,
        "epsilon": 0.5,
        "dropout": 0.1,
        "orthogonal": 1.0,
        "least_spread": 0.0,
        "moco_v2": moco_v2(),
        "moco_v3": moco_v3(),
        "barlow_twins": barlow(),
    }
    return mpcl_encoder.Params(**(values | changes))


def pretraining(**changes):
    values = {"framework": "moco_v3", "heads": 2, "projectors": "shared", "variant": "plain", "contrast": 0.01}
    return values | {"balance": "literal", "start": "random", "path": "requirements.lock"} | changes


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_images(tmp_path / "images")


def run(images, output, start=Path("requirements.lock"), begin="random", changes=None, **kind):
    known = lists(mpcl={"run": pretraining(start=begin, **kind)})
    given = params(**(changes or {}))
    mpcl_encoder.main(images, start, output, run="run", params=given, lists=known, seed=0)
    return output


def test_main__the_output_is_an_encoder_that_the_pipeline_takes(images, tmp_path):
    output = run(images, tmp_path / "out")
    network = model.load(output)
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 24)
    taken = encoder_stage.Params(
        source="folder",
        path=str(output),
        architecture=None,
        side=None,
        resize=32,
        crop=None,
        kwargs={},
        mean=None,
        std=None,
        interpolation=None,
    )
    encoder_stage.main(output, tmp_path / "encoder", params=taken)
    header, *rows = (output / "history.csv").read_text().splitlines()
    assert len(rows) == 2 and header.startswith("epoch,loss,contrast,spread,loss_1,loss_2,accuracy_1")
    start, trained = trainable.load(output / "start"), trainable.load(output)
    assert not torch.equal(start.backbone.blocks[0].attn.qkv.weight, trained.backbone.blocks[0].attn.qkv.weight)


def test_main__two_runs_write_the_same_bytes(images, tmp_path):
    outputs = [run(images, tmp_path / name) for name in ("a", "b")]
    for file in ("weights.safetensors", "start/weights.safetensors", "config.json", "history.csv"):
        first, second = (output / file for output in outputs)
        assert first.read_bytes() == second.read_bytes(), file


def test_main__fixed_patches_are_those_of_the_start_and_not_for_a_start_from_a_folder(images, tmp_path):
    output = run(images, tmp_path / "out")
    start, trained = (trainable.load(path).state_dict() for path in (output / "start", output))
    for name in ("backbone.pos_embed", "backbone.patch_embed.proj.weight"):
        assert torch.equal(start[name], trained[name])
    with pytest.raises(ValueError, match=r"fixed_patches would replace what .*given has learnt"):
        run(images, tmp_path / "other", write_encoder(tmp_path / "given"), begin="folder")


def test_main__starts_from_a_folder(images, tmp_path):
    folder = write_encoder(tmp_path / "given")
    output = run(images, tmp_path / "out", folder, begin="folder", framework="moco_v2")
    given, start, trained = (model.load(path).state_dict() for path in (folder, output / "start", output))
    assert all(torch.equal(given[name], tensor) for name, tensor in start.items())
    assert not torch.equal(given["backbone.blocks.0.attn.qkv.weight"], trained["backbone.blocks.0.attn.qkv.weight"])


@pytest.mark.parametrize("framework", ["moco_v2", "barlow_twins"])
def test_main__the_framework_is_a_value(images, tmp_path, framework):
    other = run(images, tmp_path / "a", framework=framework)
    assert (other / "history.csv").read_text() != (run(images, tmp_path / "b") / "history.csv").read_text()


def test_choose_rows__training_images_of_all_or_parts_of_some(images):
    count = len(mpcl_encoder.choose_rows(images, list(TASKS), None))
    assert count == 48
    whole = mpcl_encoder.choose_rows(images, list(TASKS), {"bars": "all"})
    assert whole.tolist() == list(range(48, 96))
    assert len(mpcl_encoder.choose_rows(images, list(TASKS), {"dots": "train", "bars": "all"})) == 24 + 48
    with pytest.raises(ValueError, match="names stars; known tasks: dots, bars"):
        mpcl_encoder.choose_rows(images, list(TASKS), {"stars": "all"})


def test_params__a_batch_that_does_not_divide_the_queue_is_refused():
    with pytest.raises(ValueError, match="16 keys, which a batch of 6 does not divide; 12 fits"):
        params(batch=6).framework("moco_v2")
    assert params(batch=6).framework("moco_v3").temperature == 0.2  # which has no queue


def test_params__one_image_per_batch_is_refused():
    with pytest.raises(ValueError, match="batch"):
        params(batch=1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [({"heads": 0}, "heads"), ({"framework": "simclr"}, "moco_v2"), ({"projectors": "separate"}, "shared")],
)
def test_lists__what_is_no_run_is_refused(kind, message):
    with pytest.raises(ValueError, match=message):
        lists(mpcl={"run": pretraining(**kind)})


def test_main__a_framework_without_its_section_is_refused(images, tmp_path):
    with pytest.raises(ValueError, match=r"asks for moco_v3, but mpcl_encoder\.moco_v3 is null"):
        run(images, tmp_path / "out", changes={"moco_v3": None})
    assert not (tmp_path / "out").exists()


def test_main__a_network_larger_than_the_images_is_refused(images, tmp_path):
    large = {"architecture": CONFIG.architecture, "kwargs": CONFIG.kwargs | {"img_size": 64}, "side": 64}
    with pytest.raises(ValueError, match="stored at 32 px, the encoder wants 64"):
        run(images, tmp_path / "out", changes={"network": large})


def test_main__a_pair_that_cannot_work_is_refused(images, tmp_path):
    cnn = {"architecture": "resnet10t", "kwargs": {}, "side": 32}
    with pytest.raises(ValueError, match="no patch embedding"):
        run(images, tmp_path / "out", changes={"network": cnn})
    output = run(images, tmp_path / "cnn", changes={"network": cnn}, framework="barlow_twins")
    assert trainable.load(output).dim == 512
