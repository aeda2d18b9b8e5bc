"""MPCL's heads: the published parameter counts, PCR's optimum, PTB's weights, the cost of four heads against one."""

import json

import torch
from torch import nn

from benchmarks.measure import compare
from stages.core.backbone import Backbone
from stages.core.losses.projector_balance import projector_weights
from stages.core.losses.projector_contrast import head_cosines, projector_contrast
from stages.core.model import Config
from stages.core.pretraining.heads import ProjectorParams, build_projectors
from stages.core.pretraining.moco_v2 import MocoV2, MocoV2Params
from stages.core.pretraining.objective import combine
from stages.core.pretraining.optimizer import OptimizerParams, build_optimizer

HALF = (0.5, 0.5, 0.5)
RESNET = Config(architecture="resnet50", size=64, resize=64, mean=HALF, std=HALF)
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
    backbone = Backbone(RESNET)
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


def stepper(config: Config, heads: int, batch: int, hidden: int, queue: int):
    """One training step of MoCo v2 on fixed views."""
    torch.manual_seed(0)
    encoder = Backbone(config)
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
    framework = MocoV2(encoder, projectors, params, batch, generator).train()
    optimizer = build_optimizer(framework, params.optimizer, batch)
    views = torch.rand(2, batch, 3, config.size, config.size)

    def step() -> None:
        measured = framework(*views, 0.0, generator)
        optimizer.zero_grad(set_to_none=True)
        combine(measured, torch.full((heads,), 1 / heads), 0.01)["loss"].backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    count_parameters()
    for heads in (2, 4, 8):
        contrast_alone(heads)
    weights = [round(float(w), 3) for w in projector_weights([0.70, 0.75, 0.80, 0.85], 0.5)]
    print(json.dumps({"claim": "PTB at .70 .75 .80 .85", "ours": weights, "by hand": [0.289, 0.261, 0.236, 0.214]}))
    for title, config, batch, hidden, rounds, bar in (
        ("ResNet-50, 64 px", RESNET, 16, 2048, 6, "at least 0.95"),
        ("ViT of 6 blocks, 192 wide, 48 px", VIT, 64, 512, 6, "at least 0.87"),
    ):
        four, one = (stepper(config, heads, batch, hidden, 4096) for heads in (4, 1))
        compare(f"a training step, M = 4, {title}", four, one, rounds, peer="M = 1", bar=bar)
