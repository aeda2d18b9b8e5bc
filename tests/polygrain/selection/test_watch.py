import pytest
import torch

from polygrain.encoder.model import load
from polygrain.selection.criterion import draw, mean_over_tasks, neighbours, refer, score, see
from polygrain.selection.watch import watcher
from polygrain.store.collection import open_pixels, read_tables
from tests.helpers.settings import criterion, reference
from tests.helpers.small import TASKS, adapted, write_encoder, write_images


@pytest.fixture
def world(tmp_path):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    return load(encoder), adapted(encoder, ["k4"], 0), pixels, collection


def test_watcher__gives_the_criterion_of_the_model_as_it_is(world):
    encoder, model, pixels, collection = world
    watch = watcher(encoder, model, pixels, collection, criterion(), reference(), 0)
    first = watch()
    assert watch() == first
    sample = draw(collection, 12, 4, 0)
    known = neighbours(refer(encoder, pixels, sample, reference(), criterion()), sample, 3)
    seen = see(model, pixels, sample, criterion())
    found = score(seen, neighbours(seen.plain, sample, 3), known, sample)[0]
    assert first == pytest.approx(mean_over_tasks(found, sample)) and 0 < first < 1
    with torch.no_grad():
        for layer in model.adaptors:
            layer.up.mul_(30)
    assert watch() != first


def test_watcher__leaves_the_model_ready_to_train(world):
    encoder, model, pixels, collection = world
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    watcher(encoder, model, pixels, collection, criterion(), reference(), 0)()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.adaptors[0].requires_grad_(True)
    model(torch.rand(2, 3, 32, 32)).sum().backward()
    assert model.adaptors[0].up.grad is not None


def test_watcher__none_where_no_task_can_tell(world):
    assert watcher(*world, criterion(fewest=25), reference(), 0) is None
