import pytest
import torch

from polygrain.encoder.model import load
from polygrain.grappa.classification import ClassifierSettings, build_optimizer, class_means, train
from polygrain.store import arrays
from tests.helpers.settings import classifier
from tests.helpers.small import write_encoder, write_images

SETTINGS = ClassifierSettings(**classifier(epochs=6, learning_rate=0.001))


def test_class_means__of_each_class():
    x = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    assert torch.equal(class_means(x, torch.tensor([0, 0, 1])), torch.tensor([[2.0, 1.0], [5.0, 5.0]]))


DECAYING = ClassifierSettings(**classifier(learning_rate=0.001, weight_decay=0.001))


@pytest.mark.parametrize("decays", [True, False])
def test_build_optimizer__a_classifier_decays_where_it_has_no_start_to_lose(decays):
    trained = torch.nn.ModuleDict(
        {"adaptors": torch.nn.Linear(2, 2), "classifier": torch.nn.ParameterList([torch.ones(3, 2)])}
    )
    optimizer = build_optimizer(trained, DECAYING, decays)
    others, of_classifier = optimizer.param_groups
    assert [group["weight_decay"] for group in (others, of_classifier)] == [0.001, 0.001 if decays else 0.0]
    assert of_classifier["params"] == [trained["classifier"][0]] and len(others["params"]) == 2


def test_train__a_whole_encoder_learns_and_only_what_is_given_changes(tmp_path):
    pixels = arrays.open(write_images(tmp_path / "images") / "dots" / "pixels.zarr")
    rows, labels = torch.arange(24), torch.arange(24) // 8
    encoder = load(write_encoder(tmp_path / "encoder"))
    model = load(tmp_path / "encoder")
    start = torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    history = train(model, model.backbone.blocks[1], start, pixels, rows, labels, SETTINGS, 0, tmp_path / "a")
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    model.cpu()
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]) == (not name.startswith("backbone.blocks.1.")), name
