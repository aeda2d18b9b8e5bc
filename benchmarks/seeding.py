"""k-means++ in blocks against the same law drawn one seed at a time, on vectors in clusters on the sphere."""

import torch

from benchmarks.measure import FULL, compare
from benchmarks.mixture import PAPER, hierarchical_mixture
from polygrain.clustering.seeding import seed_order


def one_at_a_time(x: torch.Tensor, k: int, seed: int) -> torch.Tensor:
    """Plain k-means++: all distances to the last seed, then one draw."""
    generator = torch.Generator().manual_seed(seed)
    squares = x.square().sum(1)
    order = [int(torch.randint(len(x), (1,), generator=generator))]
    nearest = torch.full((len(x),), torch.inf)
    while len(order) < k:
        last = order[-1]
        nearest = torch.minimum(nearest, (squares + squares[last] - 2 * (x @ x[last])).clamp_min_(0))
        nearest[order] = 0
        total = nearest.double().cumsum(0)
        order.append(int(torch.searchsorted(total, torch.rand(1, generator=generator, dtype=torch.double) * total[-1])))
    return nearest


if __name__ == "__main__":
    n, k = (PAPER, 16_384) if FULL else (20_000, 1_024)
    x = hierarchical_mixture(n)
    seed_order(x[:500], 50, 0)
    compare(
        f"seeding, n={n}, d=384, k={k}",
        lambda: seed_order(x, k, 0),
        lambda: one_at_a_time(torch.from_numpy(x), k, 0),
        1,
        warm=False,
        peer="one seed at a time",
        equality="same law, by chi-square in tests/polygrain/clustering/test_seeding.py",
    )
