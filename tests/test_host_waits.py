"""No step of a training makes the host wait for a GPU, which would have nothing to do meanwhile."""

import numpy as np
import pytest
from torch.optim.optimizer import register_optimizer_step_post_hook

from polygrain.mpcl.pretraining import run
from polygrain.store import arrays
from stages import fusion
from tests import test_adaptor, test_distillation, test_fusion
from tests.helpers.pretended_gpu import pretended_gpu
from tests.helpers.pretraining_world import barlow, moco_v2, moco_v3, network
from tests.helpers.settings import VIEWS
from tests.helpers.small import adapted, lists, write_encoder, write_images, write_model
from tests.polygrain.mpcl.pretraining import test_run


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    rng = np.random.default_rng(0)
    for name in ("labels", "graph", "adaptor"):
        (folder / name).mkdir()
    arrays.write(folder / "labels/labels.zarr", np.repeat(np.arange(6), 8))
    arrays.write(folder / "labels/centroids.zarr", rng.normal(size=(6, 24)).astype(np.float32))
    arrays.write(folder / "graph/neighbours.zarr", rng.integers(0, 48, (48, 5)))
    for seed, name in enumerate(test_fusion.NAMES):
        write_model(adapted(encoder, [name], seed, 0.3), folder / "adaptor" / name)
    return folder, images, encoder


def learn_labels(world, output):
    folder, images, encoder = world
    changes = {"watch": "none", "epochs": 1, "batch": 8, "augmentation": VIEWS}
    test_adaptor.run((images, encoder, folder / "labels"), output, **changes)


def distil(world, output):
    changes = {"watch": "none", "epochs": 1, "batch": 8, "augmentation": VIEWS}
    test_distillation.run((world[1], world[2], None), output, **changes)


def fuse(how):
    def learn(world, output):
        (folder, images, _), params = world, test_fusion.params(epochs=1, batch=8)
        chosen = getattr(params, how).model_copy(update={"augmentation": VIEWS})
        given = {"params": params.model_copy(update={how: chosen}), "lists": lists(), "seed": 0}
        fusion.main(images, folder / "adaptor", folder / "graph", output, pairs=how, **given)

    return learn


def pretrain(params):
    def learn(world, output):
        pixels, plan = arrays.open(world[1] / "dots/pixels.zarr"), test_run.plan(epochs=1, views=(VIEWS, VIEWS))
        run.pretrain(network(), pixels, np.arange(48), test_run.heads(), params, plan, 0, output)

    return learn


TRAININGS = {
    "adaptor": learn_labels,
    "distillation": distil,
    **{f"fusion {how}": fuse(how) for how in ("augmentation", "neighbour", "supervised")},
    **{f"mpcl {name}": pretrain(make()) for name, make in [("v2", moco_v2), ("v3", moco_v3), ("barlow", barlow)]},
}


@pytest.mark.parametrize("training", TRAININGS)
def test_step__waits_for_nothing(world, tmp_path, monkeypatch, training):
    monkeypatch.chdir(tmp_path)
    with pretended_gpu() as waits:
        counts = []
        hook = register_optimizer_step_post_hook(lambda *_: counts.append(dict(waits)))
        try:
            TRAININGS[training](world, tmp_path / "out")
        finally:
            hook.remove()
    assert len(counts) > 4 and all(count == counts[0] for count in counts)
