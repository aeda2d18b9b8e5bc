import pytest
import torch
from torch import nn

from polygrain.encoder.adaptors import AdaptedBlock, Adaptors, fuse
from polygrain.encoder.config import Attention

DIM, WIDTH, TOKENS, BATCH = 12, 4, 5, 3


class Block(nn.Module):
    """The second half of a pre-norm block, x + MLP(LN(x)), with its branch at hand for the plain algorithm."""

    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(DIM), nn.Sequential(nn.Linear(DIM, 20), nn.GELU(), nn.Linear(20, DIM))

    def branch(self, x):
        return self.mlp(self.norm(x))

    def forward(self, x):
        return x + self.branch(x)


def trained_set(seed, layers=1):
    """Adaptors as training leaves them: no zeros anywhere."""
    generator = torch.Generator().manual_seed(seed)
    adaptors = [Adaptors(DIM, WIDTH, 1, "average") for _ in range(layers)]
    for layer in adaptors:
        for parameter in layer.parameters():
            parameter.data.normal_(0, 0.5, generator=generator)
    return adaptors


def algorithm_1(x, block, adaptors, query=None, key=None):
    """The plain form: every adaptor's output stacked as batch x token x adaptor x D, the skip inside each (Grappa)."""
    y = block.branch(x)
    h = x + y
    outputs = []
    for adaptor in adaptors:
        hidden = nn.functional.gelu(h @ adaptor.down.weight.T + adaptor.down.bias)
        outputs.append(hidden @ adaptor.up[0] + adaptor.up_bias[0] + y)
    stacked = torch.stack(outputs, 2)
    if query is None:
        weights = torch.full((len(x), len(adaptors)), 1 / len(adaptors))
    else:
        logits = ((stacked.mean(1) @ key.T) * (h.mean(1) @ query.T)[:, None]).sum(-1) / DIM**0.5
        weights = logits.softmax(1)
    return (weights[:, None, :, None] * stacked).sum(2) + x, weights


@pytest.fixture
def x():
    return torch.randn(BATCH, TOKENS, DIM, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("fusion", ["attention", "average"])
def test_forward__equals_algorithm_1(x, fusion):
    torch.manual_seed(1)
    block, sets = Block(), [trained_set(seed) for seed in range(4)]
    (layer,) = fuse(sets, fusion, torch.Generator().manual_seed(2), std=1.0)
    projections = (layer.query.weight, layer.key.weight) if fusion == "attention" else ()
    expected, weights = algorithm_1(x, block, [s[0] for s in sets], *projections)
    torch.testing.assert_close(AdaptedBlock(block, layer)(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.weights, weights, rtol=1e-4, atol=1e-5)
    assert fusion == "average" or weights.std() > 0.05  # the comparison would be empty for uniform attention


def test_forward__starts_as_the_identity_and_still_learns(x):
    torch.manual_seed(0)
    layer = Adaptors(DIM, WIDTH, 1, "average")
    assert torch.equal(layer(x), x)
    layer(x).square().sum().backward()
    assert layer.up.grad.abs().sum() > 0


def test_masked__equals_the_fusion_without_it(x):
    sets = [trained_set(seed) for seed in range(3)]
    (all_three,) = fuse(sets, "attention", torch.Generator().manual_seed(2), std=1.0)
    (two,) = fuse([sets[0], sets[2]], "attention", torch.Generator().manual_seed(9), std=1.0)
    two.query, two.key = all_three.query, all_three.key
    all_three.masked[1] = True
    torch.testing.assert_close(all_three(x), two(x))
    assert torch.equal(all_three.weights[:, 1], torch.zeros(BATCH))


@pytest.mark.parametrize("change", [{}, {"class_token": False}, {"pooling": "sum"}, {"scaled": False}, {"bias": True}])
def test_attend__each_option_as_written_out(x, change):
    options = Attention(**change)
    sets = [trained_set(seed) for seed in range(3)]
    (layer,) = fuse(sets, "attention", torch.Generator().manual_seed(2), std=0.3, attention=options)
    if options.bias:
        for projection in (layer.query, layer.key):
            assert torch.equal(projection.bias, torch.zeros(DIM))
            torch.nn.init.normal_(projection.bias, generator=torch.Generator().manual_seed(3))
    layer(x)
    first = 0 if options.class_token else 1
    tokens = [adaptor(x)[:, first:] - x[:, first:] for (adaptor,) in sets]
    pool = (lambda t: t.mean(1)) if options.pooling == "mean" else (lambda t: t.sum(1))
    query = layer.query(pool(x[:, first:]))
    logits = torch.stack([(layer.key(pool(t)) * query).sum(1) for t in tokens], 1)
    expected = (logits / (DIM**0.5 if options.scaled else 1)).softmax(1)
    torch.testing.assert_close(layer.weights, expected, rtol=1e-3, atol=1e-4)
    assert expected.std() > 0.01


@pytest.mark.parametrize("change", [{}, {"pooling": "sum"}])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_attend__is_float32_whatever_the_model_is(x, kind, change):
    sets = [trained_set(seed) for seed in range(3)]
    (layer,) = fuse(sets, "attention", torch.Generator().manual_seed(2), std=0.5, attention=Attention(**change))
    layer.to(kind)
    x = x.to(kind)
    hidden = nn.functional.gelu(layer.down(x)).unflatten(2, (3, WIDTH))
    weights = layer.attend(x, hidden)
    assert weights.dtype == torch.float32
    # the same numbers, held in float32, must give the same weights
    torch.testing.assert_close(layer.float().attend(x.float(), hidden.float()), weights, rtol=1e-5, atol=1e-6)
    assert weights.std() > 0.05


def test_adapted_block__a_feature_map_is_a_list_of_tokens():
    (layer,) = trained_set(1)
    maps = torch.randn(BATCH, DIM, 2, 3, generator=torch.Generator().manual_seed(0))
    tokens = maps.flatten(2).transpose(1, 2)
    expected = layer(tokens).transpose(1, 2).unflatten(2, (2, 3))
    torch.testing.assert_close(AdaptedBlock(nn.Identity(), layer)(maps), expected)
    last = AdaptedBlock(nn.Identity(), layer, channels_last=True)(maps.permute(0, 2, 3, 1))
    torch.testing.assert_close(last.permute(0, 3, 1, 2), expected)
