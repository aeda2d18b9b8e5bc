"""All runs of an adaptation side by side against one run after another, as autograd and torch's own loss write it.

    python -m benchmarks.batched_adaptation [--runs 20] [--pairs 4199] [--rounds 2] [--more-steps 1]

Random 256-D input, W 256 -> 1024, sigma 15, 75 % of the pairs trained on. Rows: the steps alone, the protocol, in which
aR@k of the test pairs is computed after every step, and in our place nothing but the matrix products of a step: their
ratio is the most that any step in float32 can reach. All steps cost the same, so a few tell the ratio.

Both take the same steps. At the end the gradients at the same W and the losses must agree to 1e-4; differences of W and
aR@k are printed. Those need not be small: Adam's steps have nearly one length for every element, so where a gradient is
all but zero, the last bit of a float32 decides its sign. In float64 nothing differs (test_adaptation_training).
"""

import argparse
import json
import resource

import torch
from torch.nn.functional import cross_entropy, linear, normalize, relu

from benchmarks.measure import compare
from polygrain.tll.adaptation.descriptors import Sides
from polygrain.tll.adaptation.recall import recall_of
from polygrain.tll.adaptation.training import Lanes, gradient, ranks, starts
from stages.tll_pca import split

SIGMA, DIM, HIDDEN, RATE = 15.0, 256, 1024, 1e-3
KS = range(1, 101)


class Batched:
    """Ours: one optimiser and one gradient for all runs."""

    def __init__(self, train: Sides, test: Sides, runs: int, lanes: Lanes) -> None:
        self.train, self.test, self.lanes = train, test, lanes
        self.weights = torch.nn.Parameter(starts(list(range(runs)), HIDDEN, DIM))
        self.optimizer = torch.optim.Adam([self.weights], lr=RATE, fused=True)

    def step(self) -> torch.Tensor:
        losses, self.weights.grad = gradient(self.weights.detach(), self.train, SIGMA, self.lanes)
        self.optimizer.step()
        return losses

    def recall(self) -> torch.Tensor:
        return recall_of(ranks(self.weights.detach(), self.test, self.lanes), KS)


class OneByOne:
    """The peer: a list of linear maps, each with its own optimiser."""

    def __init__(self, train: Sides, test: Sides, runs: int) -> None:
        self.train, self.test = train, test
        self.weights = [torch.nn.Parameter(start) for start in starts(list(range(runs)), HIDDEN, DIM)]
        self.optimizers = [torch.optim.Adam([weights], lr=RATE) for weights in self.weights]
        self.target = torch.arange(train.left.shape[2])

    def similarity(self, run: int, sides: Sides) -> torch.Tensor:
        left, right = (normalize(relu(linear(side[run, 0], self.weights[run]))) for side in sides)
        return left @ right.T

    def loss(self, run: int) -> torch.Tensor:
        logits = SIGMA * self.similarity(run, self.train)
        return (cross_entropy(logits, self.target) + cross_entropy(logits.T, self.target)) / 2

    def gradient(self) -> torch.Tensor:
        return torch.stack([torch.autograd.grad(self.loss(run), w)[0] for run, w in enumerate(self.weights)])

    def step(self) -> torch.Tensor:
        losses = []
        for run, optimizer in enumerate(self.optimizers):
            loss = self.loss(run)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    @torch.no_grad()
    def recall(self) -> torch.Tensor:
        found = []
        for run in range(len(self.weights)):
            similarity = self.similarity(run, self.test)
            truth = torch.arange(len(similarity))[:, None]
            forth = (similarity.argsort(1, descending=True) == truth).int().argmax(1)
            back = (similarity.T.argsort(1, descending=True) == truth).int().argmax(1)
            found.append(1 + torch.minimum(forth, back))
        return recall_of(torch.stack(found), KS)


class Products:
    """The matrix products that a step cannot do without, run after run, on numbers that mean nothing."""

    def __init__(self, train: Sides, lanes: Lanes) -> None:
        self.train, self.lanes = train, lanes

    def step(self) -> None:
        runs, _, pairs, dim = self.train.left.shape
        lanes = self.lanes.count
        weights, units = torch.rand(lanes, HIDDEN, dim), torch.rand(lanes, pairs, HIDDEN)
        squares, out, gradients = torch.empty(lanes, pairs, pairs), torch.empty_like(units), torch.empty_like(weights)

        def work(part: slice) -> None:
            for run in range(runs)[part]:
                lane = run % lanes
                for side in self.train:
                    torch.mm(side[run, 0], weights[lane].T, out=out[lane])
                torch.mm(units[lane], units[lane].T, out=squares[lane])
                torch.mm(squares[lane], units[lane], out=out[lane])
                torch.mm(squares[lane].T, units[lane], out=out[lane])
                for side in self.train:
                    torch.mm(units[lane].T, side[run, 0], out=gradients[lane])

        self.lanes.each(work, runs, 1)


def problem(runs: int, pairs: int) -> tuple[Sides, Sides]:
    """Left and right are noisy views of one random vector, so that there is something to find."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(pairs, DIM, generator=generator)
    left, right = (shared + 2 * torch.randn(pairs, DIM, generator=generator) for _ in range(2))
    tested = torch.from_numpy(split(0, runs, pairs, 0.25))
    return tuple(
        Sides(*(torch.stack([side[rows] for rows in part])[:, None] for side in (left, right)))
        for part in (~tested, tested)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=4199)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--more-steps", type=int, default=1, help="before results are compared")
    arguments = parser.parse_args()
    train, test = problem(arguments.runs, arguments.pairs)
    with Lanes(torch.device("cpu")) as lanes:
        ours, peer = Batched(train, test, arguments.runs, lanes), OneByOne(train, test, arguments.runs)
        facts = {"runs": arguments.runs, "pairs": arguments.pairs, "peer": "autograd, one run after another"}
        compare("adaptation, one step", ours.step, peer.step, arguments.rounds, **facts)
        both = [lambda model=model: (model.step(), model.recall()) for model in (ours, peer)]
        compare("adaptation, one step and its test", *both, arguments.rounds, **facts)
        for _ in range(max(1, arguments.more_steps)):
            losses = ours.step(), peer.step()
        recalls = ours.recall(), peer.recall()
        drift = (ours.weights.detach() - torch.stack(list(peer.weights)).detach()).abs()
        for run, weights in enumerate(peer.weights):
            ours.weights.data[run] = weights.data
        gradients = gradient(ours.weights.detach(), train, SIGMA, lanes)[1], peer.gradient()
        products = Products(train, lanes)
        compare("adaptation, the products of a step alone", products.step, peer.step, arguments.rounds, **facts)
    differences = {
        "gradient": ((gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max()).item(),
        "loss": (losses[0] - losses[1]).abs().max().item(),
        "weights_mean": drift.mean().item(),
        "weights_max": drift.max().item(),
        "recall_mean": (recalls[0].mean(0) - recalls[1].mean(0)).abs().mean().item(),
        "recall_max": (recalls[0] - recalls[1]).abs().max().item(),
    }
    assert differences["loss"] < 1e-4 and differences["gradient"] < 1e-4, differences
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    steps = 2 * (arguments.rounds + 1) + arguments.more_steps
    print(json.dumps({"claim": "adaptation, equality", "steps": steps, "peak_gib": round(peak, 2)} | differences))
