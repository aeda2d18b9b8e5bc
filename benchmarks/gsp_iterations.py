"""GSP's Figs. 7 (left), 8 and 9: time over the iterations k of the printed algorithm, beside the one root solved here.

Backward is by autodiff through every iteration, or by the printed closed form (Prop. 4.3, with rho inside the Diag).
The network is the paper's, BN-Inception; with --full at 227 px. A time is the mean of 5 runs with its deviation.
The paper trains on CUB with C2; here images are drawn, the loss is a sum of squares, and all is timed on a CPU.
--picture FILE.svg draws the rows: times in milliseconds over k, each with a band of one deviation.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.gsp_transport import CHANNELS, EPSILON, MU, PROTOTYPES, paper_layer, paper_transport
from benchmarks.measure import FULL, seconds
from docs.figures import style
from polygrain.gsp.folds.bn_inception import BNInception
from polygrain.gsp.poolings.generalized_sum import GeneralizedSumPooling

REPEATS = 5
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
        rho, pi = ctx.saved_tensors
        n = rho.shape[1]
        q = rho * to_rho + (pi * to_pi).sum(1)
        eta = (rho * to_rho).sum(1, True) - n * (q * rho).sum(1, True)
        kappa = 1 - MU - n * (rho * rho).sum(1, True)
        return EPSILON * (n * pi * (q - eta / kappa * rho).unsqueeze(1) - pi * to_pi), None


def measure(claim: str, work: Callable[[], object], items: int = 1, **facts: object) -> dict:
    """Print and return the time of one item in milliseconds, after a run that does not count."""
    work()
    times = [1000 * seconds(work) / items for _ in range(REPEATS)]
    row = {"claim": claim, "ms": round(statistics.mean(times), 2), "deviation_ms": round(statistics.stdev(times), 2)}
    row |= {"threads": torch.get_num_threads()} | facts
    print(json.dumps(row), flush=True)
    return row


def sweep(network: BNInception, head: nn.Conv2d, layer: GeneralizedSumPooling) -> Iterator[dict]:
    """The layer, a training step and inference: ours, then the printed algorithm over k; inference with GAP as well."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(BATCH, CHANNELS, 7, 7, generator=generator).requires_grad_()
    images = torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)
    prototypes, trained = layer.pool.selection.prototypes, [*network.parameters(), *head.parameters()]

    def step(pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        vector, z = pool(head(network.forward_features(images)))
        torch.autograd.grad(vector.square().sum() + z.square().sum(), [*trained, prototypes])

    @torch.no_grad()
    def infer(pool: Callable[[Tensor], object]) -> None:
        pool(head(network.forward_features(images)))

    def of_layer(pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        vector, z = pool(maps)
        torch.autograd.grad(vector.square().sum() + z.square().sum(), [maps, prototypes])

    ways = [("ours", None, layer)]
    for k in STEPS:
        for way, transport in (("autodiff", partial(paper_transport, iterations=k)), ("closed form", None)):
            transport = transport or (lambda cost, k=k: ClosedForm.apply(cost, k))
            ways.append((way, k, partial(paper_layer, prototypes=prototypes, transport=transport)))
    yield measure("inference, an image", lambda: infer(lambda maps: maps.mean((2, 3))), BATCH, way="GAP", paper_ms=43.1)
    for way, k, pool in ways:
        facts = {"way": way, "k": k}
        yield measure("layer, forward + backward", lambda pool=pool: of_layer(pool), **facts)
        yield measure("training step", lambda pool=pool: step(pool), **facts)
        if way != "closed form":  # which does not differ without backward
            printed = {"paper_ms": 45.6} if k in (25, 50) else {}
            yield measure("inference, an image", lambda pool=pool: infer(pool), BATCH, **facts | printed)


def draw(rows: list[dict], target: Path) -> None:
    """One panel a claim; what has no k is a level line, the paper's times are dotted."""
    figure, axes = style.panels(11, 3.2, 3)
    colours = {"ours": style.GREEN, "autodiff": style.ORANGE, "closed form": style.BLUE, "GAP": style.GREY}
    for panel, claim in zip(axes, dict.fromkeys(row["claim"] for row in rows[1:]), strict=True):
        panel.set(title=claim, xlabel="iterations k", ylabel="ms")
        for way, colour in colours.items():
            own = [row for row in rows if (row["claim"], row["way"]) == (claim, way)]
            if not own:
                continue
            k = [row["k"] for row in own] if own[0].get("k") else [STEPS[0], STEPS[-1]]
            ms, band = (np.array([row[name] for row in own] * (len(k) // len(own))) for name in ("ms", "deviation_ms"))
            panel.plot(k, ms, color=colour, label=way)
            panel.fill_between(k, ms - band, ms + band, color=colour, alpha=0.15)
        for printed in {row["paper_ms"] for row in rows if row["claim"] == claim and "paper_ms" in row}:
            panel.axhline(printed, color=style.INK, linestyle=":", linewidth=0.8)
            panel.annotate(f"{printed} printed", (STEPS[0], printed), fontsize=7, va="bottom")
        panel.set_ylim(0)
        panel.legend(fontsize=8, frameon=False)
    style.save(figure, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="at 227 px, 32 images a batch")
    parser.add_argument("--picture", type=Path, help="draw the rows into this SVG")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    layer = GeneralizedSumPooling(CHANNELS, PROTOTYPES, MU, EPSILON)
    rows = list(sweep(BNInception().eval(), nn.Conv2d(1024, CHANNELS, 1), layer))
    if arguments.picture:
        draw(rows, arguments.picture)
