"""GSP's Figs. 7 (left), 8 and 9: time over the iterations k of the printed algorithm, beside the one root solved here.

Backward is by autodiff through every iteration, or by the printed closed form (Prop. 4.3, with rho inside the Diag).
The network is the paper's, BN-Inception; with --full at 227 px. A time is the mean of 5 runs, of backward alone of 100,
with its error. `inference above GAP` is from runs in turn. `--short` leaves out the network's other times.
The paper trains on CUB with C2; here images are drawn, the loss is a sum of squares, and all is timed on a CPU.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.gsp_transport import CHANNELS, EPSILON, MU, PROTOTYPES, closed_form, paper_layer, paper_transport
from benchmarks.measure import FULL, seconds
from polygrain.gsp.folds.bn_inception import BNInception
from polygrain.gsp.poolings.selected import SelectedSum

REPEATS = 5
SHORT = "--short" in sys.argv
STEPS = (5, 10, 25, 50, 75, 100)
BATCH, SIDE = (32, 227) if FULL else (4, 99)


class ClosedForm(torch.autograd.Function):
    """The printed iterations, and Prop. 4.3 for losses of rho and pi."""

    @staticmethod
    def forward(ctx, cost: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
        rho, pi = paper_transport(cost, iterations)
        ctx.save_for_backward(rho, pi)
        return rho, pi

    @staticmethod
    def backward(ctx, to_rho: Tensor, to_pi: Tensor) -> tuple[Tensor, None]:
        return closed_form(*ctx.saved_tensors, to_rho, to_pi), None


def processor(work: Callable[[], object]) -> float:
    """Seconds of the processor, which other work on the machine does not lengthen."""
    start = time.process_time()
    work()
    return time.process_time() - start


def emit(claim: str, unit: str, values: list[float], **facts: object) -> None:
    """Prints the mean, its standard error and the deviation of single values."""
    row = {"claim": claim, "unit": unit, "value": statistics.mean(values), "deviation": statistics.stdev(values)}
    row["error"] = row["deviation"] / len(values) ** 0.5
    row = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(row | {"threads": torch.get_num_threads()} | facts), flush=True)


def measure(
    claim: str,
    work: Callable[[], object],
    items: int = 1,
    repeats: int = REPEATS,
    clock: Callable[[Callable[[], object]], float] = seconds,
    **facts: object,
) -> None:
    """Prints the time of one item, after a run that does not count."""
    work()
    emit(claim, "ms", [1000 * clock(work) / items for _ in range(repeats)], **facts)


def sweep(network: BNInception, head: nn.Conv2d, layer: SelectedSum) -> None:
    """The layer, a training step and inference: ours, then the printed algorithm over k; inference with GAP as well."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(BATCH, CHANNELS, 7, 7, generator=generator).requires_grad_()
    images = torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)
    prototypes, trained = layer.selection.prototypes, [*network.parameters(), *head.parameters()]

    def step(pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        vector, z = pool(head(network.forward_features(images)))
        torch.autograd.grad(vector.square().sum() + z.square().sum(), [*trained, prototypes])

    @torch.no_grad()
    def infer(pool: Callable[[Tensor], object]) -> None:
        pool(head(network.forward_features(images)))

    def of_layer(pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        vector, z = pool(maps)
        torch.autograd.grad(vector.square().sum() + z.square().sum(), [maps, prototypes])

    def backward(pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[], object]:
        vector, z = pool(maps)
        loss = vector.square().sum() + z.square().sum()
        return lambda: torch.autograd.grad(loss, [maps, prototypes], retain_graph=True)

    def gap(maps: Tensor) -> Tensor:
        return maps.mean((2, 3))

    ways = [("ours", None, lambda maps: layer(maps)[:2])]
    for k in STEPS:
        for way, transport in (("autodiff", partial(paper_transport, iterations=k)), ("closed form", None)):
            transport = transport or (lambda cost, k=k: ClosedForm.apply(cost, k))
            ways.append((way, k, partial(paper_layer, prototypes=prototypes, transport=transport)))
    for way, k, pool in ways:
        if k in (None, 25, 50) and way != "closed form":
            times = [
                (processor(lambda: infer(gap)), processor(lambda pool=pool: infer(pool))) for _ in range(1 + REPEATS)
            ]
            percent = [100 * (ours / plain - 1) for plain, ours in times[1:]]
            emit("inference above GAP", "%", percent, way=way, k=k, paper_percent=5.8)
    if not SHORT:
        measure("inference, an image", lambda: infer(gap), BATCH, way="GAP", paper_ms=43.1)
    for way, k, pool in ways:
        facts = {"way": way, "k": k}
        measure("layer, forward + backward", lambda pool=pool: of_layer(pool), **facts)
        measure("layer, backward", backward(pool), repeats=20 * REPEATS, clock=processor, **facts)
        if SHORT:
            continue
        measure("training step", lambda pool=pool: step(pool), **facts)
        if way != "closed form":  # which does not differ without backward
            printed = {"paper_ms": 45.6} if k in (25, 50) else {}
            measure("inference, an image", lambda pool=pool: infer(pool), BATCH, **facts | printed)


if __name__ == "__main__":
    torch.manual_seed(0)
    layer = SelectedSum(CHANNELS, PROTOTYPES, MU, EPSILON)
    sweep(BNInception().eval(), nn.Conv2d(1024, CHANNELS, 1), layer)
