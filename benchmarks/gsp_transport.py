"""GSP's transport against the paper's: speed, and how near the solution.

The peer is written as the paper's algorithm has it: K = exp(-epsilon c), 100 iterations on rho and t, differentiated by
autodiff. `--exact` leaves out the times.
"""

import json
import sys
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.measure import compare
from polygrain.gsp.poolings.prototypes import into_ball
from polygrain.gsp.poolings.selected import SelectedSum
from polygrain.gsp.poolings.transport import weight_transport

EXACT = "--exact" in sys.argv  # no times
BATCH, CHANNELS, PROTOTYPES, MU, EPSILON, ITERATIONS = 32, 128, 64, 0.3, 5.0, 100


def paper_transport(cost: Tensor, iterations: int = ITERATIONS, mu: float = MU, epsilon: float = EPSILON):
    kernel = torch.exp(-epsilon * cost)
    mass, n = kernel.sum(1, keepdim=True), cost.shape[2]
    t = torch.ones_like(mass[:, :, :1])
    for _ in range(iterations):
        rho = 1 / n / (1 + t * mass)
        t = mu / (rho * mass).sum(2, keepdim=True)
    return rho.squeeze(1), t * kernel * rho


def paper_layer(
    maps: Tensor, prototypes: Tensor, transport: Callable[[Tensor], tuple[Tensor, Tensor]] = paper_transport
) -> tuple[Tensor, Tensor]:
    features = into_ball(maps.flatten(2).mT)
    cost = torch.cdist(into_ball(prototypes).expand(len(maps), -1, -1), features)
    rho, pi = transport(cost)
    return torch.bmm(maps.flatten(2), ((1 / rho.shape[1] - rho) / MU).unsqueeze(2)).squeeze(2), pi.sum(2) / MU


def step(work: Callable[[], tuple[Tensor, Tensor]], leaves: list[Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    """Forward and backward with fixed gradients of both results."""
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(result.shape, generator=generator) for result in work()]
    return lambda: torch.autograd.grad(work(), leaves, given)


def near(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> str:
    return f"gradients within {max(((x - y).norm() / y.norm()).item() for x, y in zip(a, b, strict=True)):.0e}"


def speed(side: int) -> None:
    """From costs to (rho, pi) and back."""
    generator = torch.Generator().manual_seed(0)
    features = into_ball(torch.randn(BATCH, side**2, CHANNELS, generator=generator))
    prototypes = into_ball(SelectedSum(CHANNELS, PROTOTYPES, MU, EPSILON).selection.prototypes.detach())
    cost = torch.cdist(prototypes.expand(BATCH, -1, -1), features).requires_grad_()
    run, other = step(lambda: weight_transport(cost, MU, EPSILON), [cost]), step(lambda: paper_transport(cost), [cost])
    facts = {"peer": f"{ITERATIONS} iterations, autodiff", "equality": near(run(), other()), "bar": 5}
    compare(f"transport forward + backward, B={BATCH} m={PROTOTYPES} n={side**2}", run, other, 60, **facts)


def solutions() -> None:
    """max |n (p - p*)| in float32, p* from float64, where 24 of 49 features lie next to one of 64 prototypes."""
    for title, mu, epsilon in (
        ("paper's values", 0.3, 5.0),
        ("large mu", 0.95, 5.0),
        ("sharp", 0.7, 20.0),
        ("sharper", 0.7, 300.0),
        ("sharpest", 0.7, 3000.0),
    ):
        generator = torch.Generator().manual_seed(0)
        prototypes, features = (torch.randn(BATCH, k, CHANNELS, generator=generator).double() for k in (PROTOTYPES, 49))
        features[:, :24] = prototypes[:, :24] + 0.02 * features[:, :24]
        cost = torch.cdist(*(torch.nn.functional.normalize(x, dim=2) for x in (prototypes, features))).float()
        exact = (1 - 49 * weight_transport(cost.double(), mu, epsilon)[0]) / mu
        for name, rho in (
            ("ours", weight_transport(cost, mu, epsilon)[0]),
            *((f"paper {k}", paper_transport(cost, k, mu, epsilon)[0]) for k in (25, 100)),
        ):
            error = ((1 - 49 * rho.double()) / mu - exact).abs().max().item()
            exactly(f"error of the weights, {title}", name, error, mu=mu, epsilon=epsilon)


def closed_form(
    rho: Tensor, pi: Tensor, to_rho: Tensor, to_pi: Tensor, is_printed: bool = False
) -> Float[Tensor, "batch prototype feature"]:
    """Prop. 4.3, for mu and epsilon of the paper. In print rho stands behind the Diag, as a vector."""
    n = rho.shape[1]
    q = rho * to_rho + (pi * to_pi).sum(1)
    eta = (rho * to_rho).sum(1, True) - n * (q * rho).sum(1, True)
    ratio = eta / (1 - MU - n * (rho * rho).sum(1, True))
    chosen = pi @ ((q - ratio) * rho).unsqueeze(2) if is_printed else pi * (q - ratio * rho).unsqueeze(1)
    return EPSILON * (n * chosen - pi * to_pi)


def gradients() -> None:
    """The closed form's largest error beside central differences of the solution, over the largest difference."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(1, *shape, generator=generator).double() for shape in ((8, 32), (16, 32), (16,), (8, 16))]
    cost = torch.cdist(*(torch.nn.functional.normalize(x, dim=2) for x in draws[:2]))
    steps = 1e-5 * torch.eye(cost.numel(), dtype=torch.float64).view(-1, 8, 16)
    losses = []
    for costs in (cost + steps, cost - steps):
        rho, pi = weight_transport(costs, MU, EPSILON)
        losses.append((rho * draws[2]).sum(1) + (pi * draws[3]).sum((1, 2)))
    differences = ((losses[0] - losses[1]) / 2e-5).view_as(cost)
    for way, is_printed in (("rho inside the Diag", False), ("as printed", True)):
        ours = closed_form(*weight_transport(cost, MU, EPSILON), *draws[2:], is_printed)
        exactly("error of the gradient", way, ((ours - differences).abs().max() / differences.abs().max()).item())


def exactly(claim: str, way: str, value: float, **facts: object) -> None:
    """A row of a number that is the same in each run."""
    print(json.dumps({"claim": claim, "way": way, "value": value, "error": 0} | facts), flush=True)


if __name__ == "__main__":
    for side in () if EXACT else (7, 14):
        speed(side)
    solutions()
    maps = torch.randn(BATCH, CHANNELS, 7, 7, generator=torch.Generator().manual_seed(0))
    pooled = SelectedSum(CHANNELS, PROTOTYPES, 1.0, EPSILON)(maps).vector
    exactly("mu = 1 less average pooling", "ours", (pooled - maps.mean((2, 3))).abs().max().item())
    gradients()
