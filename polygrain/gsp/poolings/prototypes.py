"""Feature weights by transport to trained prototypes (GSP, 4.1 and 4.3), and where the prototypes start."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.fused_transport import SMALLEST_SQUARE, choose
from polygrain.gsp.poolings.transport import check


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
    """The trained prototypes of one pooling layer, shared by all images, and the problem they pose.

    mu is the share of the features that is kept, epsilon the sharpness of the choice. An `nn.Parameter` as mu is
    learned.
    """

    def __init__(self, channels: int, prototypes: int, mu: float | nn.Parameter, epsilon: float) -> None:
        super().__init__()
        if channels < 1 or prototypes < 1:
            raise ValueError(f"channels is {channels} and prototypes {prototypes}; both must be at least 1")
        self.mu, self.epsilon = mu, epsilon
        self.prototypes = nn.Parameter(torch.randn(prototypes, channels) / channels**0.5)
        check(mu, epsilon, self.prototypes.device)
        self.keeps_all = not isinstance(mu, Tensor) and mu == 1

    def pool(
        self, space: Float[Tensor, "batch channel y x"]
    ) -> tuple[Float[Tensor, "batch y x"], Float[Tensor, "batch prototype"], Float[Tensor, "batch channel"]]:
        """(p, z, sum_j p_j f_j): weights that sum to 1 over the map, each prototype's part of them, the weighted sum.

        float32 whatever the map is, also under autocast: half precision cannot hold weights of a large map.
        """
        with torch.autocast(space.device.type, enabled=False):
            features = space.flatten(2).to(torch.promote_types(space.dtype, torch.float32))
            centres = into_ball(self.prototypes.to(features))
            share, mass, total = choose(features, centres, self.mu, self.epsilon)
            weights = (share / (share.shape[1] * self.mu)).unflatten(1, space.shape[2:])
            # For mu = 1 this IS the average, to the last bit.
            total = features.mean(2) if self.keeps_all else total / self.mu
            return weights, mass / self.mu, total

    def forward(
        self, space: Float[Tensor, "batch channel y x"]
    ) -> tuple[Float[Tensor, "batch y x"], Float[Tensor, "batch prototype"]]:
        """(p, z), Eqs. 4.1 and 4.3."""
        return self.pool(space)[:2]


@torch.no_grad()
def start_prototypes(module: nn.Module, embeddings: Float[Tensor, "image channel"], seed: int) -> None:
    """Fills the prototypes found in `module` by greedy k-centre: one embedding drawn, then always the farthest.

    `embeddings` are vectors of the space the costs are measured in, stored while training still averages. ValueError
    where the module has no prototypes, or the embeddings have fewer distinct ones.
    """
    selections = [part for part in module.modules() if isinstance(part, Selection)]
    if not selections:
        raise ValueError(f"{type(module).__name__} has no prototypes to start; build one of the gsp poolings")
    points = into_ball(embeddings.float())
    for selection in selections:
        count, channels = selection.prototypes.shape
        if points.shape[1] != channels:
            raise ValueError(f"embeddings have {points.shape[1]} channels, the prototypes {channels}")
        rows = k_centre(points, count, seed)
        selection.prototypes.copy_(points[rows])


def k_centre(points: Float[Tensor, "point channel"], count: int, seed: int) -> list[int]:
    """Rows of `count` distinct points, each the farthest from those before it; the first is drawn."""
    generator = torch.Generator().manual_seed(seed)
    rows = [int(torch.randint(len(points), (1,), generator=generator))] if len(points) else []
    nearest = torch.full((len(points),), torch.inf, device=points.device)
    while rows and len(rows) < count:
        nearest = torch.minimum(nearest, (points - points[rows[-1]]).norm(dim=1))
        rows.append(int(nearest.argmax()))
        if nearest[rows[-1]] == 0:
            break
    if len(rows) < count or len(set(rows)) < count:
        raise ValueError(f"{count} prototypes need as many distinct embeddings; met {len(set(rows))}; store more")
    return rows
