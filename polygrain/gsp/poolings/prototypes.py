"""Feature weights by transport to trained prototypes (GSP, 4.1 and 4.3), and where the prototypes start."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.transport import check, weight_transport

SMALLEST_SQUARE = 1e-8  # float32 holds no digit of a smaller squared distance


def into_ball(vectors: Float[Tensor, "*vector channel"]) -> Float[Tensor, "*vector channel"]:
    """u / max(1, |u|)."""
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1)


def costs(
    features: Float[Tensor, "batch channel feature"], prototypes: Float[Tensor, "prototype channel"]
) -> Float[Tensor, "batch prototype feature"]:
    """Distances (not squared) between prototypes and features, both brought into the unit ball.

    By expanded squares: one matrix product, and no scaled copy of the features. Within 1e-3 for distances near 0.
    """
    centres = into_ball(prototypes)
    squares = features.square().sum(1, keepdim=True)
    scale = squares.clamp_min(1).rsqrt()
    inner = torch.bmm(centres.expand(len(features), -1, -1), features)
    squared = (squares * scale.square() - 2 * scale * inner) + centres.square().sum(1)[:, None]
    return squared.clamp_min(SMALLEST_SQUARE).sqrt()


class Selection(nn.Module):
    """The trained prototypes of one pooling layer, shared by all images.

    mu is the share of the features that is kept, epsilon the sharpness of the choice.
    """

    def __init__(self, channels: int, prototypes: int, mu: float, epsilon: float) -> None:
        super().__init__()
        check(mu, epsilon)
        self.mu, self.epsilon = mu, epsilon
        self.prototypes = nn.Parameter(torch.randn(prototypes, channels) / channels**0.5)

    def pool(
        self, space: Float[Tensor, "batch channel y x"]
    ) -> tuple[Float[Tensor, "batch y x"], Float[Tensor, "batch prototype"], Float[Tensor, "batch channel"]]:
        """(p, z, sum_j p_j f_j): weights that sum to 1 over the map, each prototype's part of them, the weighted sum.

        At least float32, also under autocast: half precision cannot hold the weights of a large map.
        """
        with torch.autocast(space.device.type, enabled=False):
            features = space.flatten(2).to(torch.promote_types(space.dtype, torch.float32))
            rho, pi = weight_transport(costs(features, self.prototypes.to(features)), self.mu, self.epsilon)
            weights = (1 / rho.shape[1] - rho) / self.mu
            # For mu = 1 the average, to the last bit.
            total = features.mean(2) if self.mu == 1 else torch.bmm(features, weights.unsqueeze(2)).squeeze(2)
            return weights.unflatten(1, space.shape[2:]), pi.sum(2) / self.mu, total

    def forward(
        self, space: Float[Tensor, "batch channel y x"]
    ) -> tuple[Float[Tensor, "batch y x"], Float[Tensor, "batch prototype"]]:
        """(p, z), Eqs. 4.1 and 4.3."""
        return self.pool(space)[:2]


@torch.no_grad()
def start_prototypes(module: nn.Module, embeddings: Float[Tensor, "image channel"], seed: int) -> None:
    """Sets the prototypes in `module` by greedy k-centre over embeddings of the space that costs are measured in.

    ValueError for a module without prototypes, and for fewer distinct embeddings than prototypes.
    """
    selections = [part for part in module.modules() if isinstance(part, Selection)]
    if not selections:
        raise ValueError(f"{type(module).__name__} has no prototypes to start; build one of the gsp poolings")
    points = into_ball(embeddings.float())
    for selection in selections:
        selection.prototypes.copy_(points[k_centre(points, len(selection.prototypes), seed)])


def k_centre(points: Float[Tensor, "point channel"], count: int, seed: int) -> list[int]:
    """Rows of `count` distinct points, each the farthest from those before it; the first is drawn."""
    if len(points) < count:
        raise ValueError(f"{count} prototypes need as many distinct embeddings; there are {len(points)}")
    generator = torch.Generator().manual_seed(seed)
    rows = [int(torch.randint(len(points), (1,), generator=generator))]
    nearest = torch.full((len(points),), torch.inf, device=points.device)
    while len(rows) < count:
        nearest = torch.minimum(nearest, (points - points[rows[-1]]).norm(dim=1))
        rows.append(int(nearest.argmax()))
        if nearest[rows[-1]] == 0:
            raise ValueError(f"{count} prototypes need as many distinct embeddings; there are {len(rows) - 1}")
    return rows
