"""The fused layer as one wide bottleneck against the plain Algorithm 1, N = 8 adaptors of width 64, ViT-S tokens."""

import torch
from torch import nn

from benchmarks.measure import compare
from polygrain.encoder.adaptors import Adaptors, fuse

if __name__ == "__main__":
    torch.manual_seed(0)
    dim, width, count = 384, 64, 8
    sets = [[Adaptors(dim, width, 1, "average")] for _ in range(count)]
    for parameter in nn.ModuleList([layers[0] for layers in sets]).parameters():
        parameter.data.normal_(0, 0.05)
    (wide,) = fuse(sets, "attention", torch.Generator().manual_seed(0))
    h = torch.randn(32, 197, dim)

    def plain() -> torch.Tensor:
        outputs = [nn.functional.gelu(s[0].down(h)) @ s[0].up[0] + s[0].up_bias[0] for s in sets]
        stacked = torch.stack(outputs, 2)
        logits = torch.einsum("bnd,bd->bn", wide.key(stacked.mean(1)), wide.query(h.mean(1))) / dim**0.5
        return h + (logits.softmax(1)[:, None, :, None] * stacked).sum(2)

    with torch.inference_mode():
        difference = (wide(h) - plain()).abs().max().item()
        assert difference < 1e-4
        compare("fused layer, N=8", lambda: wide(h), plain, 5, peer="Algorithm 1", equality=f"max {difference:.1e}")
