import inspect

import pytest
import torch

from polygrain.gsp.poolings.build import KNOWN, Head, build, check
from polygrain.gsp.poolings.build import VALUES as KINDS
from tests.polygrain.gsp.poolings.twins import TWINS

TRANSPORT = {"prototypes": 4, "mu": 0.3, "epsilon": 5.0}
VALUES: dict[str, dict] = {
    **{name: {} for name in ("gap", "gmp", "gap_gmp", "crow")},
    **dict.fromkeys(["gsp", "gmp_gsp", "gsp_gmp"], TRANSPORT),
    "gemean": {"p": 3.0},
    "gemean_gsp": TRANSPORT | {"p": 3.0},
    "gemax": {"ridge": 0.7},
    "cbam": {"reduction": 2, "kernel": 3},
    "delf": {"hidden": 6},
    "gsop": {"attention": 4, "grid": 3},
    "netvlad": {"width": 2, "centres": 3},
    "otp": {"width": 2, "prototypes": 3, "epsilon": 2.0, "iterations": 10},
    "solar": {"reduction": 2, "p": 3.0},
    "t_smk": {"window": 3},
    "tfm": {"width": 8, "layers": 2, "heads": 2},
    "weldon": {"highest": 3, "lowest": 2},
}
MAPS = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0))


def make(name):
    torch.manual_seed(0)
    return build(name, 6, **VALUES[name])


def test_known__each_pooling_has_a_twin():
    assert VALUES.keys() == KNOWN.keys() == TWINS.keys()


@pytest.mark.parametrize("name", KNOWN)
def test_build__equals_its_twin(name):
    """Also on a map of two places. A generalised mean is computed in float32."""
    pool = make(name).double().eval()
    for maps in [MAPS[..., :3]] if name == "gsop" else [MAPS, MAPS[:, :, :1, :2]]:
        expected = torch.stack([TWINS[name](pool, image) for image in maps.double()])
        assert torch.allclose(pool(maps.double()).vector, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("scale", [1, 0])
def test_build__vector_and_gradients_are_finite_also_for_an_empty_map(name, scale):
    pool, maps = make(name), (scale * MAPS).requires_grad_()
    vector = pool(maps).vector
    assert vector.shape == (2, pool.size) and torch.isfinite(vector).all()
    vector.square().sum().backward()
    assert all(torch.isfinite(leaf.grad).all() for leaf in (maps, *pool.parameters()))


@pytest.mark.parametrize("name", KNOWN)
def test_build__each_image_alone_and_with_weights_of_its_places(name):
    pool = make(name).eval()
    vector, attributes, weights = pool(MAPS)
    assert torch.allclose(vector[1:], pool(MAPS[1:]).vector, atol=1e-5)
    assert pool(MAPS[:, :, :2, :3]).vector.shape == vector.shape
    assert (attributes is not None) == ("gsp" in name) and (weights is not None or attributes is None)
    if attributes is not None:
        assert attributes.shape == (2, 4) and torch.allclose(attributes.sum(1), torch.ones(2))
    if weights is not None and name != "gemax":
        assert weights.shape == (2, 3, 4) and torch.allclose(weights.sum((1, 2)), torch.ones(2))
    if name in ("gsp", "gemax", "delf"):
        total = (MAPS * weights[:, None]).sum((2, 3))
        assert torch.allclose(torch.cosine_similarity(total, vector), torch.ones(2), atol=1e-6)


def test_build__gsp_is_the_average_for_mu_1():
    assert torch.equal(build("gsp", 6, **TRANSPORT | {"mu": 1.0})(MAPS).vector, MAPS.mean((2, 3)))


def test_build__a_generalised_mean_reaches_the_maximum_without_overflow():
    positive = MAPS.abs() + 0.1
    assert torch.allclose(build("gemean", 6, p=500.0)(positive).vector, positive.amax((2, 3)), rtol=0.01)


def test_build__the_lengths_of_t_smk_have_no_gradient():
    maps = MAPS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(build("t_smk", 6, window=1)(maps).vector.sum(), maps)
    assert torch.allclose(gradient, (MAPS.norm(dim=1, keepdim=True) / 12).expand_as(MAPS), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("mean", {}, "known: cbam"),
        ("gsp", {"mu": 0.3}, "takes prototypes"),
        ("cbam", {"reduction": 4, "kernel": 4}, "kernel"),
        ("tfm", {"width": 8, "layers": 1, "heads": 3}, "heads"),
    ],
)
def test_build__refuses(name, values, word):
    with pytest.raises(ValueError, match=word):
        build(name, 8, **values)


def test_check__knows_bounds_of_every_value_that_a_pooling_takes():
    taken = {name for pooling in KNOWN.values() for name in inspect.signature(pooling).parameters}
    assert taken - {"channels", "space"} == set(KINDS)
    check("gsp", TRANSPORT)
    with pytest.raises(ValueError, match="mu"):
        check("gsp", TRANSPORT | {"mu": 1.1})


@pytest.mark.parametrize("name", KNOWN)
def test_head__gives_embeddings(name):
    assert Head(6, 5, name, **VALUES[name])(MAPS).vector.shape == (2, 5)


def test_head__plain_gsp_sums_embedded_features_and_combinations_embed_pooled_ones():
    head = Head(6, 5, "gsp", **TRANSPORT)
    vector, _, weights = head(MAPS)
    assert torch.allclose(vector, head.project((MAPS * weights[:, None]).sum((2, 3))), atol=1e-5)
    head = Head(6, 5, "gmp_gsp", **TRANSPORT)
    space = torch.einsum("ec,bcyx->beyx", head.project.weight, MAPS)
    assert torch.allclose(head(MAPS).vector, head.project(head.pool(MAPS, space).vector), atol=1e-6)
