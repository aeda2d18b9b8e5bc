"""The optimizers of the three base codes."""

from typing import Literal

import torch
from pydantic import Field
from timm.optim.lars import Lars
from torch import nn

from polygrain.config.schema import Decay, Rate, Section


class OptimizerParams(Section):
    """The optimizer of a framework; it trains the encoder and all heads."""

    name: Literal["sgd", "adamw", "lars"] = Field(
        description="as published: sgd for MoCo v2, adamw for MoCo v3 with a ViT, lars for Barlow Twins and ResNets"
    )
    learning_rate: Rate = Field(description="for 256 images a step; scaled with batch / 256")
    weight_decay: Decay = Field(description="of all weights; lars leaves biases and norms without it")
    vector_rate: Rate | None = Field(
        None, description="of biases and norms, for 256 images a step, with lars; null: as of all else"
    )


def build_optimizer(trained: nn.Module, params: OptimizerParams, batch: int) -> torch.optim.Optimizer:
    """SGD and AdamW decay everything, as MoCo's codes do; LARS leaves vectors (biases, norms) without decay."""
    rate = params.learning_rate * batch / 256
    learnt = [p for p in trained.parameters() if p.requires_grad]
    if params.name == "sgd":
        return torch.optim.SGD(learnt, rate, momentum=0.9, weight_decay=params.weight_decay)
    if params.name == "adamw":
        return torch.optim.AdamW(learnt, rate, weight_decay=params.weight_decay)
    matrices, vectors = [p for p in learnt if p.ndim > 1], [p for p in learnt if p.ndim <= 1]
    vector_rate = params.learning_rate if params.vector_rate is None else params.vector_rate
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0, "lr": vector_rate * batch / 256}]
    return Lars(groups, lr=rate, momentum=0.9, weight_decay=params.weight_decay, trust_coeff=1e-3)
