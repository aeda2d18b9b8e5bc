"""MPCL's heads: the published parameter counts, PCR's optimum, PTB's weights, the cost of four heads against one.

Quick: a ResNet-50 at 64 px and batches of 16; `--full`: at 224 px, batches of 32 and the published queue.
"""

import json

import torch
from torch import nn

from benchmarks.measure import FULL, compare, seconds
from polygrain.encoder.config import Config
from polygrain.losses.projector_balance import projector_weights
from polygrain.losses.projector_contrast import head_cosines, projector_contrast
from polygrain.mpcl.pretraining.heads import ProjectorParams, build_projectors
from polygrain.mpcl.pretraining.moco_v2 import MocoV2, MocoV2Params
from polygrain.mpcl.pretraining.objective import combine
from polygrain.mpcl.pretraining.optimizer import OptimizerParams, build_optimizer
from polygrain.mpcl.trainable import TrainableEncoder

HALF = (0.5, 0.5, 0.5)
SIDE = 224 if FULL else 64
RESNET = Config(architecture="resnet50", size=SIDE, resize=SIDE, mean=HALF, std=HALF)
VIT = Config(
    architecture="vit_tiny_patch16_224",
    kwargs={"img_size": 48, "patch_size": 8, "depth": 6},
    size=48,
    resize=48,
    mean=HALF,
    std=HALF,
)


def count_parameters() -> None:
    """Table III's column, on a ResNet-50."""
    backbone = TrainableEncoder(RESNET)
    own = sum(p.numel() for p in backbone.parameters())
    params = ProjectorParams(hidden=2048, different=[2048], out=128, layers=2, norm="none")
    for heads, published in ((1, 27.97), (2, 28.23), (4, 28.75), (8, 29.80)):
        projectors = build_projectors(backbone.dim, heads, "shared", "plain", params, 0.0)
        millions = round((own + sum(p.numel() for p in projectors.parameters())) / 1e6, 2)
        assert millions == published
        print(json.dumps({"claim": f"parameters in M, {heads} heads", "ours": millions, "published": published}))


def contrast_alone(heads: int) -> None:
    """PCR on random vectors tends to heads that sum to zero."""
    z = nn.Parameter(torch.randn(heads, 64, 128))
    optimizer = torch.optim.Adam([z], 0.05)
    for _ in range(300):
        optimizer.zero_grad()
        projector_contrast(z).backward()
        optimizer.step()
    cosines = head_cosines(z.detach())
    mean = float((cosines.sum() - heads) / (heads * (heads - 1)))
    row = {"claim": f"PCR alone, mean cosine of {heads} heads", "ours": round(mean, 4), "bound": -1 / (heads - 1)}
    print(json.dumps(row), flush=True)


class NoEncoder(nn.Module):
    """Features that are parameters, in place of an encoder: what is left of a step are the heads."""

    is_vit = True  # no batch norm to split

    def __init__(self, batch: int, dim: int) -> None:
        super().__init__()
        self.dim, self.features = dim, nn.Parameter(torch.randn(batch, dim))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.features


def stepper(
    config: Config,
    heads: int,
    batch: int,
    hidden: int,
    queue: int,
    bare: bool = False,
    where: str | torch.device = "cpu",
):
    """One training step of MoCo v2 on fixed views; `bare` leaves the encoder out."""
    torch.manual_seed(0)
    encoder = TrainableEncoder(config)
    if bare:
        encoder = NoEncoder(batch, encoder.dim)
    params = MocoV2Params(
        projector=ProjectorParams(hidden=hidden, different=[hidden], out=128, layers=2, norm="none"),
        optimizer=OptimizerParams(name="sgd", learning_rate=0.03, weight_decay=1e-4),
        queue=queue,
        temperature=0.2,
        momentum=0.999,
        norm_splits=1 if encoder.is_vit else 2,
    )
    projectors = build_projectors(encoder.dim, heads, "shared", "plain", params.projector, 0.0)
    generator = torch.Generator().manual_seed(0)
    framework = MocoV2(encoder, projectors, params, batch, generator).train().to(where)
    optimizer = build_optimizer(framework, params.optimizer, batch)
    views = torch.rand(2, batch, 3, config.size, config.size, device=where)

    def step() -> None:
        measured = framework(*views, 0.0, generator)
        optimizer.zero_grad(set_to_none=True)
        combine(measured, torch.full((heads,), 1 / heads, device=where), 0.01)["loss"].backward()
        optimizer.step()

    return step


def cost(title: str, config: Config, batch: int, hidden: int, queue: int, rounds: int, most: float) -> None:
    """What four heads cost: whole steps against one head's, and what they add by themselves."""
    four, one = (stepper(config, heads, batch, hidden, queue) for heads in (4, 1))
    bar = f"at least {1 / (1 + most):.2f}"
    compare(f"a training step, M = 4, {title}", four, one, rounds, peer="M = 1", bar=bar)
    # The noise of whole steps is larger than what the heads cost.
    bare = [stepper(config, heads, batch, hidden, queue, bare=True) for heads in (4, 1)]
    spent = [[seconds(work) for work in bare] for _ in range(2 + 30)][2:]
    more = min(four for four, _ in spent) - min(one for _, one in spent)
    share = round(more / min(seconds(one) for _ in range(3)), 4)
    row = {"claim": f"what four heads add to a step, {title}", "share": share, "bar": f"at most {most}"}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    count_parameters()
    for heads in (2, 4, 8):
        contrast_alone(heads)
    weights = [round(float(w), 3) for w in projector_weights([0.70, 0.75, 0.80, 0.85], 0.5)]
    print(json.dumps({"claim": "PTB at .70 .75 .80 .85", "ours": weights, "by hand": [0.289, 0.261, 0.236, 0.214]}))
    sizes = (32, 2048, 65536, 4) if FULL else (16, 2048, 4096, 12)
    cost(f"ResNet-50, {SIDE} px", RESNET, *sizes, most=0.05)
    cost("ViT of 6 blocks, 192 wide, 48 px", VIT, 64, 512, 4096, 12, most=0.15)
