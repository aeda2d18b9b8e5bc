import inspect

import pytest
import torch

from polygrain.gsp.poolings.build import KNOWN, Head, build, check
from polygrain.gsp.poolings.build import VALUES as KINDS

TRANSPORT = {"prototypes": 4, "mu": 0.3, "epsilon": 5.0}
VALUES: dict[str, dict] = {
    "gap": {},
    "gmp": {},
    "gap_gmp": {},
    "gemean": {"p": 3.0},
    "gsp": TRANSPORT,
    "gmp_gsp": TRANSPORT,
    "gsp_gmp": TRANSPORT,
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
    if "gsp" in name:
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


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("mean", {}, "known: cbam"),
        ("gsp", {"mu": 0.3}, "takes prototypes"),
        ("gap", {"p": 3.0}, "no values"),
        ("gemean", {"p": 0.0}, "p is"),
        ("gemax", {"ridge": 0.0}, "ridge"),
        ("cbam", {"reduction": 4, "kernel": 4}, "kernel"),
        ("otp", {"width": 2, "prototypes": 3, "epsilon": 0.0, "iterations": 10}, "epsilon"),
        ("solar", {"reduction": 9, "p": 3.0}, "reduction"),
        ("t_smk", {"window": 2}, "window"),
        ("tfm", {"width": 8, "layers": 1, "heads": 3}, "heads"),
        ("weldon", {"highest": 0, "lowest": 3}, "highest"),
    ],
)
def test_build__refuses(name, values, word):
    with pytest.raises(ValueError, match=word):
        build(name, 8, **values)


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


def test_check__knows_bounds_of_every_value_that_a_pooling_takes():
    taken = {name for pooling in KNOWN.values() for name in inspect.signature(pooling).parameters}
    assert taken - {"channels", "space"} == set(KINDS)
    check("gsp", {"prototypes": 64, "mu": 0.3, "epsilon": 5.0})
    for name, value in (("prototypes", 0), ("mu", 1.1), ("epsilon", float("inf"))):
        with pytest.raises(ValueError, match=name):
            check("gsp", {"prototypes": 64, "mu": 0.3, "epsilon": 5.0} | {name: value})
