import pytest
import torch

from polygrain.encoder.model import load
from polygrain.selection.criterion import draw, embed_reference, embed_views, mean_over_tasks, neighbours, score
from polygrain.selection.watch import watcher
from polygrain.store.image_table import open_pixels, read_tables
from tests.helpers.settings import criterion, reference, watching
from tests.helpers.small import TASKS, adapted, write_encoder, write_images


def test_watcher__gives_the_criterion_of_the_model_as_it_is_and_leaves_it_ready_to_train(tmp_path):
    images, folder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    collection, pixels = read_tables(images, list(TASKS)), open_pixels(images, list(TASKS))
    encoder, model = load(folder), adapted(folder, ["k4"], 0)
    world = encoder, model, pixels, collection
    assert watcher(*world, criterion(fewest=25), reference(), watching(), 0) is None
    assert watcher(*world, criterion(), reference(), watching("none"), 0) is None

    watch = watcher(*world, criterion(), reference(), watching(), 0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = watch()
    assert watch() == first
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    sample = draw(collection, 12, 4, 0)
    expected = neighbours(embed_reference(encoder, pixels, sample, reference()), sample, 3)
    embedded = embed_views(model, pixels, sample, criterion())
    values = score(embedded, neighbours(embedded.plain, sample, 3), expected, sample)[0]
    assert first == pytest.approx(mean_over_tasks(values, sample)) and 0 < first < 1

    model.adaptors[0].requires_grad_(True)
    model(torch.rand(2, 3, 32, 32)).sum().backward()
    assert model.adaptors[0].up.grad is not None
    with torch.no_grad():
        for layer in model.adaptors:
            layer.up.mul_(30)
    assert watch() != first
