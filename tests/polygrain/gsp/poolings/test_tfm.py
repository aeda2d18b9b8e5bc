import torch
from torch.nn import functional as F

from polygrain.gsp.poolings.tfm import Transformer

MAPS = torch.randn(2, 5, 3, 3, generator=torch.Generator().manual_seed(0))


def layer_by_hand(layer: torch.nn.TransformerEncoderLayer, tokens: torch.Tensor, heads: int) -> torch.Tensor:
    """Pre-norm self-attention and a GELU network, one image, one head at a time."""
    normed = layer.norm1(tokens)
    query, key, value = F.linear(normed, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias).chunk(3, -1)
    width, seen = tokens.shape[1] // heads, []
    for h in range(heads):
        q, k, v = (part[:, h * width : (h + 1) * width] for part in (query, key, value))
        seen.append((q @ k.T / width**0.5).softmax(1) @ v)
    tokens = tokens + layer.self_attn.out_proj(torch.cat(seen, 1))
    return tokens + layer.linear2(F.gelu(layer.linear1(layer.norm2(tokens))))


def test_transformer__equals_layers_by_hand():
    torch.manual_seed(0)
    pool = Transformer(5, width=8, layers=2, heads=2)
    result = pool(MAPS).vector
    for image in range(2):
        places = pool.project.weight[:, :, 0, 0] @ MAPS[image].flatten(1) + pool.project.bias[:, None]
        tokens = torch.cat([pool.token[None], places.T])
        for layer in pool.layers:
            tokens = layer_by_hand(layer, tokens, heads=2)
        assert torch.allclose(result[image], pool.norm(tokens[0]), atol=1e-5)


def test_transformer__takes_places_in_any_order():
    pool = Transformer(5, width=8, layers=2, heads=2)
    assert torch.allclose(pool(MAPS).vector, pool(MAPS.flip(2, 3)).vector, atol=1e-5)
