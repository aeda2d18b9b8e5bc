import pytest
import torch

from stages.core.gsp.poolings.build import KNOWN, GeneralizedSumPooling, Head, build

TRANSPORT = {"prototypes": 4, "mu": 0.3, "epsilon": 5.0}
VALUES: dict[str, dict] = {
    "gap": {},
    "gmp": {},
    "gap_gmp": {},
    "gemean": {"p": 3.0},
    "gsp": TRANSPORT,
    "gmp_gsp": TRANSPORT,
    "gemean_gsp": TRANSPORT | {"p": 3.0},
    "gemax": {"ridge": 1.0},
    "cbam": {"reduction": 2, "kernel": 3},
    "crow": {},
    "delf": {"hidden": 6},
    "gsop": {"attention": 4, "grid": 3},
    "netvlad": {"width": 2, "centres": 3},
    "otp": {"width": 2, "prototypes": 3, "epsilon": 2.0, "iterations": 10},
    "solar": {"reduction": 1, "p": 3.0},
    "t_smk": {"window": 3},
    "tfm": {"width": 8, "layers": 2, "heads": 2},
    "weldon": {"highest": 3, "lowest": 3},
}
MAPS = torch.randn(3, 8, 7, 7, generator=torch.Generator().manual_seed(0))


def test_known__is_covered_here():
    assert VALUES.keys() == KNOWN.keys()


@pytest.mark.parametrize("name", KNOWN)
def test_build__one_signature(name):
    torch.manual_seed(0)
    pool = build(name, 8, **VALUES[name])
    vector, attributes, weights = pool(MAPS)
    assert vector.shape == (3, pool.size)
    assert torch.isfinite(vector).all()
    if name.endswith("gsp"):
        assert attributes.shape == (3, 4) and weights.shape == (3, 7, 7)
    if any(True for _ in pool.parameters()):
        vector.square().sum().backward()
        assert all(parameter.grad is not None for parameter in pool.parameters())


@pytest.mark.parametrize("name", KNOWN)
def test_build__each_image_alone(name):
    """No pooling looks at the other images of the batch; maps of another size are fine."""
    torch.manual_seed(0)
    pool = build(name, 8, **VALUES[name]).eval()
    assert torch.allclose(pool(MAPS).vector[1:2], pool(MAPS[1:2]).vector, atol=1e-5)
    assert pool(MAPS[:, :, :6, :5]).vector.shape == (3, pool.size)


def test_build__lists_what_it_knows():
    with pytest.raises(ValueError, match=r"no pooling 'mean'; known: .*gap.*gsp"):
        build("mean", 8)
    with pytest.raises(ValueError, match=r"'gsp' takes prototypes, mu, epsilon.*met mu"):
        build("gsp", 8, mu=0.3)
    with pytest.raises(ValueError, match="'gap' takes no values; met p"):
        build("gap", 8, p=3.0)


def test_generalized_sum_pooling__is_the_average_for_mu_1():
    layer = GeneralizedSumPooling(8, prototypes=4, mu=1.0, epsilon=5.0)
    pooled, attributes = layer(MAPS)
    assert torch.equal(pooled, MAPS.mean((2, 3)))
    exact = MAPS.double()
    learned = GeneralizedSumPooling(8, 4, torch.nn.Parameter(torch.tensor(1.0)), 5.0).double()
    assert (learned(exact)[0] - exact.mean((2, 3))).abs().max() <= 1e-15
    assert torch.allclose(attributes.sum(1), torch.ones(3))


def test_generalized_sum_pooling__equals_its_weights():
    layer = GeneralizedSumPooling(8, prototypes=4, mu=0.3, epsilon=5.0)
    pooled, attributes = layer(MAPS)
    weights = layer.weigh(MAPS)
    assert torch.allclose(pooled, (MAPS * weights[:, None]).sum((2, 3)), atol=1e-6)
    assert attributes.shape == (3, 4) and (weights >= 0).all() and weights.max() <= 1 / (0.3 * 49) + 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_generalized_sum_pooling__takes_half_precision(dtype):
    layer = GeneralizedSumPooling(8, prototypes=4, mu=0.3, epsilon=5.0)
    pooled, attributes = layer(MAPS.to(dtype))
    assert pooled.dtype == dtype and attributes.dtype == torch.float32
    assert torch.allclose(pooled.float(), layer(MAPS)[0], atol=0.02)


def test_generalized_sum_pooling__learns_what_to_look_at():
    """Objects of two kinds on clutter: the places of the objects end up with most of the weight."""
    torch.manual_seed(0)
    signs, clutter = torch.eye(8)[:2], torch.eye(8)[2:]
    layer, out = GeneralizedSumPooling(8, prototypes=2, mu=0.2, epsilon=10.0), torch.nn.Linear(8, 2)
    optimiser = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=0.03)
    for _ in range(150):
        labels = torch.randint(2, (32,))
        places = torch.rand(32, 49).argsort(1) < 10
        tokens = torch.where(places[..., None], signs[labels][:, None], clutter[torch.randint(6, (32, 49))])
        maps = (tokens + 0.1 * torch.randn(32, 49, 8)).transpose(1, 2).reshape(32, 8, 7, 7)
        loss = torch.nn.functional.cross_entropy(out(layer(maps)[0]), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    weight_on_objects = (layer.weigh(maps).flatten(1) * places).sum(1).mean()
    assert weight_on_objects > 0.9, weight_on_objects  # 10 of 49 places; uniform weights give 0.2


@pytest.mark.parametrize("name", KNOWN)
def test_head__gives_embeddings(name):
    torch.manual_seed(0)
    head = Head(8, 5, name, **VALUES[name])
    assert head(MAPS).vector.shape == (3, 5)


def test_head__sums_embedded_features():
    """Plain GSP in the embedded space equals embedding the backbone's features under the same weights."""
    head = Head(8, 5, "gsp", **TRANSPORT)
    vector, _, weights = head(MAPS)
    assert torch.allclose(vector, head.project((MAPS * weights[:, None]).sum((2, 3))), atol=1e-5)


def test_head__embeds_pooled_features_of_the_combinations():
    head = Head(8, 5, "gmp_gsp", **TRANSPORT)
    space = torch.einsum("ec,bcyx->beyx", head.project.weight, MAPS)
    assert torch.allclose(head(MAPS).vector, head.project(head.pool(MAPS, space).vector), atol=1e-6)
