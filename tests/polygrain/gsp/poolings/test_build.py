import inspect

import pytest
import torch

from polygrain.gsp.poolings.build import KNOWN, Head, build
from tests.polygrain.gsp.poolings import twins

MAPS = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0))


def values_of(name):
    """The defaults of its twin."""
    parameters = inspect.signature(getattr(twins, name)).parameters
    return {key: one.default for key, one in parameters.items() if one.default is not one.empty}


TRANSPORT = values_of("gsp")


def make(name):
    torch.manual_seed(0)
    return build(name, 6, **values_of(name))


@pytest.mark.parametrize("name", KNOWN)
def test_build__equals_its_twin(name):
    """Also on a map of two places. A generalised mean is computed in float32."""
    pool = make(name).double().eval()
    for maps in [MAPS[..., :3]] if name == "gsop" else [MAPS, MAPS[:, :, :1, :2]]:
        expected = torch.stack([getattr(twins, name)(pool, image) for image in maps.double()])
        assert torch.allclose(pool(maps.double()).vector, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", KNOWN)
def test_build__shapes_weights_and_gradients_also_of_an_empty_map(name):
    for scale in (1, 0):
        pool, maps = make(name), (scale * MAPS).requires_grad_()
        pool(maps).vector.square().sum().backward()
        assert all(torch.isfinite(leaf.grad).all() for leaf in (maps, *pool.parameters()))
    vector, attributes, weights = pool.eval()(MAPS)
    assert vector.shape == pool(MAPS[:, :, :2, :3]).vector.shape == (2, pool.size)
    assert torch.allclose(vector[1:], pool(MAPS[1:]).vector, atol=1e-5)
    assert (attributes is not None) == ("gsp" in name) and (weights is not None or attributes is None)
    if attributes is not None:
        assert attributes.shape == (2, 4) and torch.allclose(attributes.sum(1), torch.ones(2))
    if weights is not None and name != "gemax":
        assert weights.shape == (2, 3, 4) and torch.allclose(weights.sum((1, 2)), torch.ones(2))
    if name in ("gsp", "gemax", "delf"):
        total = (MAPS * weights[:, None]).sum((2, 3))
        assert torch.allclose(torch.cosine_similarity(total, vector), torch.ones(2), atol=1e-6)
    assert Head(6, 5, name, **values_of(name))(MAPS).vector.shape == (2, 5)


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
    ("name", "values", "words"),
    [
        ("mean", {}, "no pooling 'mean'; known: cbam, crow"),
        ("gsp", {"mu": 0.3}, "pooling 'gsp' takes prototypes, mu, epsilon; given: mu"),
        ("gsp", TRANSPORT | {"mu": 1.1}, "pooling 'gsp': mu is 1.1: Input should be less than or equal to 1"),
        ("cbam", {"reduction": 4, "kernel": 4}, "kernel is 4: .*an odd side is needed"),
        ("solar", {"reduction": 9, "p": 3.0}, "reduction is 9; it must be at most 8"),
        ("tfm", {"width": 8, "layers": 1, "heads": 3}, "heads must divide the width"),
    ],
)
def test_build__refuses(name, values, words):
    with pytest.raises(ValueError, match=words):
        build(name, 8, **values)


def test_head__a_pooling_takes_what_the_study_gives_it():
    kinds = {
        takes: sorted(name for name in KNOWN if KNOWN[name].takes == takes) for takes in ("embedded", "both", "own")
    }
    assert kinds["embedded"] == ["gsop", "gsp", "weldon"] and kinds["both"] == ["gemean_gsp", "gmp_gsp", "gsp_gmp"]
    assert kinds["own"] == ["netvlad", "otp", "tfm"]


def test_head__plain_gsp_sums_embedded_features_and_combinations_embed_pooled_ones():
    head = Head(6, 5, "gsp", **TRANSPORT)
    vector, _, weights = head(MAPS)
    assert torch.allclose(vector, head.project((MAPS * weights[:, None]).sum((2, 3))), atol=1e-5)
    head = Head(6, 5, "gmp_gsp", **TRANSPORT)
    space = torch.einsum("ec,bcyx->beyx", head.project.weight, MAPS)
    assert torch.allclose(head(MAPS).vector, head.project(head.pool(MAPS, space).vector), atol=1e-6)
