import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn import functional

from polygrain.gsp.folds.embedder import Embedder, Objective, embed, look, parameter_groups, write_pictures
from polygrain.gsp.folds.maps import Maps
from polygrain.losses.zero_shot import zero_shot_loss

GSP = {"prototypes": 5, "mu": 0.5, "epsilon": 5.0}
C2 = {"positive_margin": 0.0, "negative_margin": 0.5, "normalise": True}
MAPS = torch.rand(12, 4, 3, 3, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(3).repeat_interleave(4)
ROWS = np.arange(12)


def make(pool="gsp", values=GSP, share=0.0, hidden=6, loss="c2", loss_values=C2):
    torch.manual_seed(0)
    return Embedder(None, 4, hidden, 8, 3, pool, values, Objective(loss, loss_values, share, 0.05, 9.5))


class Given(Maps):
    """Maps without a backbone."""

    def __init__(self):
        pass

    def plain(self, rows):
        for block in np.array_split(rows, 3):
            yield MAPS[torch.from_numpy(block)]

    def views(self, rows, generator):
        return torch.from_numpy(rows)[:, None, None, None].expand(-1, 3, 6, 6) / 255


def embedded(embedder):
    """The maps in the space that prototypes lie in."""
    return functional.conv2d(embedder.layer(MAPS), embedder.head.project.weight[:, :, None, None]).detach()


def test_embedder__a_mean_is_the_embedded_mean_of_the_layer():
    embedder = make("gap", {})
    expected = embedder.head.project(functional.relu(embedder.layer[0](MAPS)).mean((2, 3)))
    assert torch.allclose(embedder(MAPS).vector, expected, atol=1e-6)
    assert len(make("gap", {}, hidden=0).layer) == 0


def test_loss_of__mixes_both_losses_by_the_share():
    embedder = make(share=0.25)
    pooled = embedder(MAPS)
    zero_shot = zero_shot_loss(pooled.attributes, LABELS, embedder.class_embeddings, 0.05, 9.5)
    expected = 0.75 * embedder.loss(pooled.vector, LABELS) + 0.25 * zero_shot
    assert embedder.loss_of(MAPS, LABELS).item() == pytest.approx(expected.item(), rel=1e-5)
    with pytest.raises(ValueError, match="attributes"):
        make("gap", {}, share=0.1)


def test_start__puts_prototypes_at_images_of_the_embedded_space():
    embedder = make()
    embedder.start(MAPS, 0)
    means = functional.normalize(embedded(embedder).mean((2, 3)), dim=1)
    distances = torch.cdist(embedder.head.pool.selection.prototypes, means)
    assert distances.min(1).values.max().item() < 1e-3 and len(set(distances.argmin(1).tolist())) == 5


def test_parameter_groups__proxies_learn_at_their_own_rate_and_nothing_is_left_out():
    embedder = make(loss="proxy_nca_pp", loss_values={"temperature": 0.11}, share=0.1)
    groups = parameter_groups(embedder, 0.01, 100.0)
    assert [group["lr"] for group in groups] == [0.01, 1.0]
    assert sum(len(group["params"]) for group in groups) == len(list(embedder.parameters()))
    assert len(parameter_groups(make(), 0.01, 100.0)) == 1


def test_embed__unit_vectors_and_attributes_in_the_order_of_the_rows():
    embedder = make()
    vectors, attributes = embed(embedder, Given(), ROWS)
    pooled = embedder(MAPS)
    expected = functional.normalize(pooled.vector, dim=1).detach().numpy()
    assert np.allclose(vectors, expected, atol=1e-6) and np.allclose(attributes, pooled.attributes.detach(), atol=1e-6)
    assert embed(make("gap", {}), Given(), ROWS)[1] is None


def test_look__weights_and_the_prototype_nearest_to_each_place():
    embedder = make()
    weights, nearest = look(embedder, Given(), ROWS)
    assert np.allclose(weights.sum((1, 2)), 1, atol=1e-5) and nearest.shape == (12, 3, 3)
    assert np.allclose(look(make("gap", {}), Given(), ROWS)[0], 1 / 9)
    unit, centres = (
        vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1)
        for vectors in (embedded(embedder), embedder.head.pool.selection.prototypes.detach())
    )
    for image in range(12):
        distances = (unit[image, :, 1, 2] - centres).norm(dim=1)
        assert distances[nearest[image, 1, 2]] <= distances.min() + 1e-4


def test_write_pictures__shows_the_first_image_of_classes_spread_over_all(tmp_path):
    write_pictures(tmp_path, make(), Given(), ROWS, np.repeat(np.arange(6), 2), 3)
    pictures = load_file(tmp_path / "pictures.safetensors")
    assert pictures["rows"].tolist() == [0, 4, 10] and pictures["weights"].shape == (3, 3, 3)
    assert pictures["pixels"].shape == (3, 6, 6, 3) and pictures["pixels"][:, 0, 0, 0].tolist() == [0, 4, 10]
