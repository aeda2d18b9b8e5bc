"""One whole training step of ResNet-50, 224 px, batch 32: GSP with its zero-shot loss against average pooling.

Steps take seconds and vary by percents, the heads take milliseconds: so both are timed, and the second row, heads alone
over the step, is the sharper one. Not among the quick claims: --rounds pairs of steps after one to warm up.
"""

import argparse
import json

import timm
import torch
from torch import Tensor, nn

from benchmarks.measure import seconds
from polygrain.gsp.poolings.build import Head
from polygrain.losses import metric
from polygrain.losses.zero_shot import zero_shot_loss

BATCH, CLASSES, EMBEDDING, PROTOTYPES = 32, 100, 128, 64


class Learner(nn.Module):
    """TrainableEncoder, head and loss; for GSP the zero-shot loss too, with the study's share, ridge and scale."""

    def __init__(self, backbone: nn.Module, pooling: str, channels: int = 2048, **values: float) -> None:
        super().__init__()
        self.backbone, self.head = backbone, Head(channels, EMBEDDING, pooling, **values)
        self.loss = metric.build("c2", EMBEDDING, CLASSES, positive_margin=0.0, negative_margin=0.3841, normalise=True)
        self.classes = nn.Parameter(torch.randn(CLASSES, EMBEDDING)) if pooling == "gsp" else None

    def on_maps(self, maps: Tensor, labels: Tensor) -> Tensor:
        pooled = self.head(maps)
        loss = self.loss(pooled.vector, labels)
        if self.classes is None:
            return loss
        return 0.9 * loss + 0.1 * zero_shot_loss(pooled.attributes, labels, self.classes, ridge=0.05, scale=9.5)

    def step(self, optimiser: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad()
        self.on_maps(self.backbone(images), labels).backward()
        optimiser.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    backbone = timm.create_model("resnet50", pretrained=False, num_classes=0, global_pool="")
    learners = {
        "gap": Learner(backbone, "gap"),
        "gsp": Learner(backbone, "gsp", prototypes=PROTOTYPES, mu=0.3, epsilon=5.0),
    }
    optimisers = {name: torch.optim.SGD(learner.parameters(), 1e-4) for name, learner in learners.items()}
    images, labels = torch.randn(BATCH, 3, 224, 224), torch.arange(BATCH) // 4
    maps = torch.randn(BATCH, 2048, 7, 7).relu().requires_grad_()
    heads: dict[str, list[float]] = {"gap": [], "gsp": []}
    for _ in range(20):
        for name, learner in learners.items():
            heads[name].append(seconds(lambda learner=learner: learner.on_maps(maps, labels).backward()))
    steps: dict[str, list[float]] = {"gap": [], "gsp": []}
    for _ in range(rounds + 1):
        for name, learner in learners.items():
            steps[name].append(seconds(lambda n=name, x=learner: x.step(optimisers[n], images, labels)))
    step = {name: min(times[1:]) for name, times in steps.items()}
    head = {name: min(times) for name, times in heads.items()}
    facts = {"peer": "average pooling", "bar_percent": 3, "threads": torch.get_num_threads(), "rounds": rounds}
    for claim, slower in (
        ("ResNet-50 step, whole steps timed", step["gsp"] / step["gap"] - 1),
        ("ResNet-50 step, heads timed alone", (head["gsp"] - head["gap"]) / step["gap"]),
    ):
        row = {"claim": claim, "slower_percent": round(100 * slower, 2)}
        print(json.dumps(row | {"step_s": step, "head_s": head} | facts), flush=True)
