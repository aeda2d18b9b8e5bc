import pytest
import torch

from polygrain.encoder import model
from polygrain.mpcl import trainable
from polygrain.store import work
from stages import mpcl_encoder
from tests.helpers.keys import assert_key_follows
from tests.helpers.pretraining_world import VIEW, barlow, moco_v2, moco_v3
from tests.helpers.small import CONFIG, lists, write_images


def params(**changes):
    values = {
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
    return values | {"balance": "literal"} | changes


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("world") / "images")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(images, output, changes=None, **kind):
    given, given_lists = params(**(changes or {})), lists(mpcl={"run": pretraining(**kind)})
    mpcl_encoder.main(images, output, run="run", params=given, lists=given_lists, seed=0)
    work.clear()  # as the command does
    return output


def test_main__writes_an_encoder_its_start_and_its_history_and_twice_the_same(images, tmp_path):
    output, again = run(images, tmp_path / "out"), run(images, tmp_path / "again")
    assert model.load(output)(torch.rand(2, 3, 32, 32)).shape == (2, 24)
    header, *rows = (output / "history.csv").read_text().splitlines()
    assert len(rows) == 2 and header.startswith("epoch,loss,contrast,spread,loss_1,loss_2,accuracy_1")
    start, trained = (trainable.load(path).state_dict() for path in (output / "start", output))
    fixed = {name: torch.equal(tensor, trained[name]) for name, tensor in start.items()}
    assert fixed["backbone.pos_embed"] and fixed["backbone.patch_embed.proj.weight"]
    assert not fixed["backbone.blocks.0.attn.qkv.weight"]
    for file in ("weights.safetensors", "start/weights.safetensors", "config.json", "history.csv"):
        assert (output / file).read_bytes() == (again / file).read_bytes(), file


CNN = {"architecture": "resnet10t", "kwargs": {}, "side": 32}
LARGE = {"architecture": CONFIG.architecture, "kwargs": CONFIG.kwargs | {"img_size": 64}, "side": 64}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moco_v3": None}, "moco_v3 is null"),
        ({"network": LARGE}, "stored at 32 px"),
        ({"network": CNN}, "no patch embedding"),
    ],
)
def test_main__what_cannot_work_is_refused(images, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run(images, tmp_path / "out", changes=changes)
    assert not (tmp_path / "out").exists()


def test_main__its_key_follows_what_it_reads(images, tmp_path, monkeypatch):
    assert_key_follows(
        ["0/dots/table.parquet"], lambda given: run(given[0], tmp_path / "out"), [images], tmp_path, monkeypatch
    )
