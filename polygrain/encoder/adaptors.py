"""Adaptor sets: bottlenecks at the end of every residual block, alone or several fused by attention (Grappa, 3.4, 3.5).

h is the output of a block, b_i(h) = U_i gelu(D_i h) the i-th bottleneck without a skip of its own. The adapted block
gives  h + sum_i alpha_i b_i(h)  with sum_i alpha_i = 1. Algorithm 1 of the paper carries the skip inside each of the N
branches; the result is the same, because the weights sum to one. So N adaptors are ONE wide bottleneck D -> N D' -> D
whose hidden units are scaled by alpha. The keys need the token mean of those hidden units only: no array with an
adaptor, a token and a D extent at once ever exists. The test keeps the plain Algorithm 1 beside it.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.compute.device import uncast
from polygrain.encoder.config import Attention, Fusion


class Adaptors(nn.Module):
    """`count` bottlenecks of one layer; `fusion` says where their weights alpha come from.

    Tokens come class token first: `prefix` is how many are no image patch.

    At the start the up-projections are zero, so every adaptor is exactly the identity; they still learn, because the
    gradient of an up-projection depends on the hidden units, which are not zero.
    """

    masked: Tensor

    def __init__(
        self, dim: int, width: int, count: int, fusion: Fusion, attention: Attention | None = None, prefix: int = 1
    ) -> None:
        super().__init__()
        self.dim, self.width, self.count, self.fusion = dim, width, count, fusion
        self.attention, self.prefix = attention or Attention(), prefix
        self.down = nn.Linear(dim, count * width)
        self.up = nn.Parameter(torch.zeros(count, width, dim))
        self.up_bias = nn.Parameter(torch.zeros(count, dim))
        nn.init.kaiming_uniform_(self.down.weight, a=5**0.5)
        nn.init.zeros_(self.down.bias)
        if fusion == "attention":
            self.query = nn.Linear(dim, dim, bias=self.attention.bias)
            self.key = nn.Linear(dim, dim, bias=self.attention.bias)
        self.register_buffer("masked", torch.zeros(count, dtype=torch.bool), persistent=False)
        self.weights: Float[Tensor, "batch adaptor"] | None = None

    def pool(self, tokens: Tensor) -> Tensor:
        """`batch token ...` to `batch ...`, in float32."""
        selected = tokens if self.attention.class_token else tokens[:, self.prefix :]
        pooled = selected.mean if self.attention.pooling == "mean" else selected.sum
        return pooled(1, dtype=torch.float32)

    def attend(
        self, h: Float[Tensor, "batch token dim"], hidden: Float[Tensor, "batch token adaptor width"]
    ) -> Float[Tensor, "batch adaptor"]:
        """The weights alpha of each image (Eq. 3): softmax over i of <Q h, K b_i(h)> / sqrt(D), token means.

        The branch y that Algorithm 1 adds to every key is common to all adaptors and drops out of the softmax.
        float32 whatever the model is, also under autocast: the logits of near adaptors differ by little.
        """
        if self.fusion == "average":
            logits = h.new_zeros(h.shape[0], self.count, dtype=torch.float32)  # len() would fix an exported batch
        else:
            with uncast(h.device):
                logits = self.compare(self.pool(h), self.pool(hidden), h.shape[1])
        return logits.masked_fill(self.masked, -torch.inf).softmax(1)

    def compare(
        self, h: Float[Tensor, "batch dim"], hidden: Float[Tensor, "batch adaptor width"], tokens: int | torch.SymInt
    ) -> Float[Tensor, "batch adaptor"]:
        """The logits of the attention, from the pooled output of the block and the pooled hidden units."""
        count = tokens - (0 if self.attention.class_token else self.prefix)
        bias = self.up_bias.float() * (count if self.attention.pooling == "sum" else 1)
        bottlenecks = torch.einsum("bnw,nwd->bnd", hidden, self.up.float()) + bias
        logits = torch.einsum("bnd,bd->bn", in_float32(self.key, bottlenecks), in_float32(self.query, h))
        return logits / self.dim**0.5 if self.attention.scaled else logits

    def forward(self, h: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        """The adapted output of the block; `weights` keeps the alpha of this call."""
        hidden = nn.functional.gelu(self.down(h)).unflatten(2, (self.count, self.width))
        if self.count > 1:
            alpha = self.attend(h, hidden)
            if not torch.compiler.is_exporting():
                self.weights = alpha.detach()
            hidden = hidden * alpha.to(hidden.dtype)[:, None, :, None]
            bias = alpha.to(self.up_bias.dtype) @ self.up_bias
        else:
            bias = self.up_bias
        return h + hidden.flatten(2) @ self.up.flatten(0, 1).to(hidden.dtype) + bias[:, None].to(h.dtype)


def in_float32(linear: nn.Linear, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows out"]:
    """`linear` of float32 `x`, computed in float32 for parameters of any type."""
    return nn.functional.linear(x, linear.weight.float(), None if linear.bias is None else linear.bias.float())


class AdaptedBlock(nn.Module):
    """A residual block of the frozen backbone followed by its adaptors; the places of a feature map are its tokens."""

    def __init__(self, block: nn.Module, adaptors: Adaptors, channels_last: bool = False) -> None:
        super().__init__()
        self.block, self.adaptors, self.channels_last = block, adaptors, channels_last

    def forward(self, x: Tensor, *args: object, **kwargs: object) -> Tensor:
        h = self.block(x, *args, **kwargs)
        if h.ndim == 3:
            return self.adaptors(h)
        h = h if self.channels_last else h.permute(0, 2, 3, 1)
        adapted = self.adaptors(h.flatten(1, 2)).unflatten(1, h.shape[1:3])
        return adapted if self.channels_last else adapted.permute(0, 3, 1, 2)


def fuse(
    sets: list[list[Adaptors]],
    fusion: Fusion,
    generator: torch.Generator,
    std: float = 0.02,
    attention: Attention | None = None,
) -> list[Adaptors]:
    """Trained single adaptor sets (`sets[adaptor][layer]`) side by side, one fused layer per block.

    Q and K start as N(0, std): near-uniform attention, so training starts from the average fusion. Both zero would be a
    saddle point that never leaves it.
    """
    fused = []
    for layers in zip(*sets, strict=True):
        wide = Adaptors(layers[0].dim, layers[0].width, len(layers), fusion, attention, layers[0].prefix)
        with torch.no_grad():
            wide.down.weight.copy_(torch.cat([layer.down.weight for layer in layers]))
            wide.down.bias.copy_(torch.cat([layer.down.bias for layer in layers]))
            wide.up.copy_(torch.cat([layer.up for layer in layers]))
            wide.up_bias.copy_(torch.cat([layer.up_bias for layer in layers]))
        start_attention(wide, generator, std)
        fused.append(wide)
    return fused


def start_attention(layer: Adaptors, generator: torch.Generator, std: float) -> None:
    """Draws Q and K of one layer anew, N(0, std); biases are zero."""
    if layer.fusion == "attention":
        for projection in (layer.query, layer.key):
            nn.init.normal_(projection.weight, 0, std, generator=generator)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
