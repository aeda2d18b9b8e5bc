import numpy as np
import pytest
import torch

from polygrain.config.items.mpcl import Pretraining
from polygrain.mpcl.pretraining import run
from polygrain.mpcl.pretraining.objective import columns
from polygrain.store import arrays
from tests.helpers.pretended_gpu import steps_counted
from tests.helpers.pretraining_world import SGD, VIEW, barlow, moco_v2, moco_v3, network
from tests.helpers.settings import VIEWS
from tests.helpers.small import CONFIG
from tests.helpers.torchrun import torchrun
from tests.test_mpcl_encoder import pretraining


def plan(**changes):
    values = {"epochs": 2, "batch": 8, "warmup": 0.0, "least_spread": 0.0, "views": [VIEW, VIEW], "crop_ratio": 1.0}
    return run.Plan(**values | {"epsilon": 0.5, "dropout": 0.1, "orthogonal": 1.0} | changes)


@pytest.fixture
def pixels(tmp_path):
    arrays.write(tmp_path / "pixels.zarr", np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8))
    return arrays.open(tmp_path / "pixels.zarr")


def pretrain(pixels, work, params, config=CONFIG, seed=0, **changes):
    known = {key: changes.pop(key) for key in list(changes) if key in run.Plan.model_fields}
    encoder, chosen = network(config), Pretraining(**pretraining(**changes))
    return encoder, run.pretrain(encoder, pixels, np.arange(20), chosen, params, plan(**known), seed, work)


@pytest.mark.parametrize("params", [moco_v2(), moco_v3(), barlow()])
def test_pretrain__no_step_waits_for_a_gpu(pixels, tmp_path, params):
    with steps_counted() as waits:
        pretrain(pixels, tmp_path / "work", params, epochs=1, batch=4, views=[VIEWS, VIEWS])
    assert len(waits) == 5 and len(set(waits)) == 1


def stop_at(step, monkeypatch):
    """Interrupts the step of this number, from 1."""
    original, steps = run.combine, iter(range(1, 1000))

    def combine(*given):
        if next(steps) == step:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(run, "combine", combine)


@pytest.mark.parametrize(("params", "variant"), [(moco_v2(), "dropout"), (moco_v3(), "plain"), (barlow(), "plain")])
def test_pretrain__trains_the_encoder_and_a_killed_run_ends_with_the_same_bytes(
    pixels, tmp_path, monkeypatch, params, variant
):
    start = network().state_dict()
    whole, history = pretrain(pixels, tmp_path / "a", params, variant=variant)
    whole.cpu()
    assert [row["epoch"] for row in history] == [1, 2]
    assert all(np.isfinite(row[name]) for row in history for name in columns(2))
    assert any(not torch.equal(tensor, start[name]) for name, tensor in whole.state_dict().items() if "weight" in name)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(4, patch)  # in the second epoch of two steps each
        pretrain(pixels, tmp_path / "b", params, variant=variant)
    resumed, again = pretrain(pixels, tmp_path / "b", params, variant=variant)
    assert again == history
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.cpu().state_dict()[name], tensor), name


@pytest.mark.parametrize(
    ("params", "changes", "processes", "message"),
    [
        (moco_v2(queue=32), {"batch": 32}, "1", "20 images do not fill"),
        (moco_v3(), {}, "3", "divide among 3"),
        (moco_v2(), {"least_spread": 1.0}, "1", "collapsed in epoch 1"),
        (moco_v2(optimizer=SGD.model_copy(update={"learning_rate": 1e30})), {"epochs": 4}, "1", "nan|collapsed"),
    ],
)
def test_pretrain__refuses_what_cannot_work(pixels, tmp_path, monkeypatch, params, changes, processes, message):
    monkeypatch.setenv("WORLD_SIZE", processes)
    with pytest.raises(ValueError, match=message):
        pretrain(pixels, tmp_path / "work", params, **changes)


PROGRAM = """
import sys
from pathlib import Path

import torch

from polygrain.compute import processes
from polygrain.store import arrays
from tests.helpers import pretraining_world as world
from tests.polygrain.mpcl.pretraining.test_run import pretrain

folder = Path(sys.argv[1])
pixels = arrays.open(folder / "pixels.zarr")
for name, params, sizes in (
    ("v2", world.moco_v2(), {"balance": "neutral"}),
    ("v3", world.moco_v3(), {}),
    ("twins", world.barlow(), {}),
    ("resnet", world.moco_v2(norm_splits=4), {"config": world.RESNET}),
):
    encoder, history = pretrain(pixels, folder / name, params, **sizes)
    weights = torch.cat([p.detach().flatten() for p in encoder.parameters()])
    mean = weights / processes.count()
    processes.add_up([mean])
    assert torch.allclose(weights, mean, atol=1e-7) and all(row["loss"] == row["loss"] for row in history), name
    # Taken up again from the checkpoint of its first process.
    assert pretrain(pixels, folder / name, params, **sizes)[1] == history, name
"""


@pytest.mark.slow
def test_pretrain__two_processes_train_one_encoder(pixels, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    torchrun(2, tmp_path / "program.py", tmp_path)
