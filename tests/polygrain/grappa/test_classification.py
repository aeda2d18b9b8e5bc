import torch

from polygrain.encoder.model import load
from polygrain.grappa.classification import ClassifierSettings, build_optimizer, class_means, train
from polygrain.losses.norm_softmax import norm_softmax
from polygrain.store import arrays
from tests.helpers.settings import classifier
from tests.helpers.small import write_encoder, write_images

SETTINGS = ClassifierSettings(**classifier(epochs=6, learning_rate=0.001))


def test_class_means__of_each_class():
    x = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    assert torch.equal(class_means(x, torch.tensor([0, 0, 1])), torch.tensor([[2.0, 1.0], [5.0, 5.0]]))


DECAYING = ClassifierSettings(**classifier(learning_rate=0.001, weight_decay=0.001))


def after_one_epoch(embeddings, decay):
    """The share of rows told apart by a classifier that began at them, after an epoch of Adam in pairs."""
    classifier = torch.nn.ParameterList([torch.nn.Parameter(embeddings.clone())])
    optimizer = build_optimizer(torch.nn.ModuleDict({"classifier": classifier}), DECAYING)
    optimizer.param_groups[1]["weight_decay"] += decay
    for rows in torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(1)).split(2):
        loss, _ = norm_softmax(embeddings[rows], classifier[0], rows, 23.0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return norm_softmax(embeddings, classifier[0].detach(), torch.arange(len(embeddings)), 23.0)[1].item()


def test_build_optimizer__decay_does_not_erase_where_a_fine_classifier_began():
    """A class for each image, as at the finest granularity: the coupled decay that Adam has would undo the start."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(800, 64, generator=generator) + torch.randn(64, generator=generator)
    embeddings = torch.nn.functional.normalize(embeddings, dim=1)
    assert after_one_epoch(embeddings, 0.0) > 0.99
    assert after_one_epoch(embeddings, DECAYING.weight_decay) < 0.93  # what this guards against


def test_build_optimizer__all_else_decays():
    trained = torch.nn.ModuleDict(
        {"adaptors": torch.nn.Linear(2, 2), "classifier": torch.nn.ParameterList([torch.ones(3, 2)])}
    )
    optimizer = build_optimizer(trained, DECAYING)
    others, undecayed = optimizer.param_groups
    assert [group["weight_decay"] for group in (others, undecayed)] == [0.001, 0.0]
    assert undecayed["params"] == [trained["classifier"][0]] and len(others["params"]) == 2


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
