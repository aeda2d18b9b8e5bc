"""The norm-softmax loss: cross entropy of scaled cosines to one learned direction per class (Grappa, Eq. 2)."""

from jaxtyping import Float, Int
from torch import Tensor, nn


def norm_softmax(
    embeddings: Float[Tensor, "batch dim"],
    weights: Float[Tensor, "class dim"],
    labels: Int[Tensor, " batch"],
    gamma: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The mean of -log softmax(gamma cos(z, w))_label, and the share of images whose largest cosine is that label's."""
    cosines = nn.functional.normalize(embeddings.float(), dim=1) @ nn.functional.normalize(weights, dim=1).T
    return nn.functional.cross_entropy(gamma * cosines, labels), (cosines.argmax(1) == labels).float().mean()
