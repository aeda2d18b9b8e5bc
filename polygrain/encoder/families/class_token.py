"""Transformers whose embedding is their class token: ViT, DeiT, BEiT, EVA."""

from jaxtyping import Float
from torch import Tensor, nn

from polygrain.encoder.families.family import Family


class ClassToken(Family):
    """The class token, which comes first, stands for the image."""

    @classmethod
    def claims(cls, network: nn.Module) -> bool:
        return getattr(network, "cls_token", None) is not None

    @property
    def width(self) -> int:
        return int(self.network.num_features)

    def head(self, last: Tensor) -> Float[Tensor, "batch dim"]:
        return last[:, 0]

    def pooled(self, output: Tensor) -> Float[Tensor, "batch dim"]:
        return self.mean(output) if output.ndim == 4 else self.network.norm(output)[:, 0]
