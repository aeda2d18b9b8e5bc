"""One pretraining run: a framework, its projectors and its objective, trained on the views of images."""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device, processes
from polygrain.config.items.mpcl import Pretraining
from polygrain.config.schema import Epochs, Factor, Section, Warmup, Weight
from polygrain.encoder.views import Augmentation, Ratio, augment
from polygrain.mpcl.pretraining.barlow_twins import BarlowTwins, BarlowTwinsParams
from polygrain.mpcl.pretraining.heads import build_projectors
from polygrain.mpcl.pretraining.moco_v2 import MocoV2, MocoV2Params
from polygrain.mpcl.pretraining.moco_v3 import MocoV3, MocoV3Params
from polygrain.mpcl.pretraining.objective import HeadBalance, combine
from polygrain.mpcl.pretraining.optimizer import build_optimizer
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.store import arrays
from polygrain.training.loop import Batch, Loader, Read, Schedule, fit

FrameworkParams = MocoV2Params | MocoV3Params | BarlowTwinsParams


class Plan(Section):
    """The length of a run, its batches and views, and the values that all variants of its heads share."""

    epochs: Epochs = Field(description="epochs over the chosen images")
    batch: int = Field(ge=2, description="images, each in two views, over all devices together")
    warmup: Warmup = Field(description="epochs in which the rate rises to its full value")
    views: list[Annotated[Augmentation, Field(description="augmentation of this view")]] = Field(
        min_length=2, max_length=2, description="the first view of an image, and the second"
    )
    crop_ratio: Ratio
    epsilon: Factor = Field(
        description="temperature of the balance between heads; small ones follow the accuracies closely"
    )
    dropout: float = Field(ge=0, lt=1, description="in the projectors, for the variant dropout")
    orthogonal: Weight = Field(description="weight of the heads' overlap, for the variant orthogonal")
    least_spread: float = Field(ge=0, le=1, description="features less spread than this have collapsed: training stops")


def build_framework(
    encoder: TrainableEncoder, run: Pretraining, params: FrameworkParams, plan: Plan, generator: torch.Generator
) -> MocoV2 | MocoV3 | BarlowTwins:
    """The framework of these parameters around the encoder; ValueError for a pair that cannot work."""
    projectors = build_projectors(encoder.dim, run.heads, run.projectors, run.variant, params.projector, plan.dropout)
    if isinstance(params, MocoV2Params):
        return MocoV2(encoder, projectors, params, plan.batch, generator)
    if isinstance(params, MocoV3Params):
        return MocoV3(encoder, projectors, params)
    return BarlowTwins(encoder, projectors, params)


def process_generator(generator: torch.Generator) -> torch.Generator:
    """A generator of this process alone, for its views; the global one, which dropout uses, gets the same seed."""
    seed = int(torch.randint(2**62, (), generator=generator)) + processes.rank()
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def pretrain(
    encoder: TrainableEncoder,
    pixels: arrays.Reader,
    rows: np.ndarray,
    run: Pretraining,
    params: FrameworkParams,
    plan: Plan,
    seed: int,
    work: Path,
) -> list[dict[str, int | float]]:
    """Trains the encoder in place and returns the history.

    Every batch has the same size; which images are left over differs from epoch to epoch. ValueError for fewer images
    than a batch, a batch that does not divide among the processes, a loss that is not finite, or a collapse.
    """
    count = len(rows) // plan.batch * plan.batch
    if not count:
        raise ValueError(f"{len(rows)} images do not fill one batch of {plan.batch}: set a smaller batch")
    if plan.batch % processes.count():
        raise ValueError(
            f"a batch of {plan.batch} does not divide among {processes.count()} processes: choose one that does"
        )
    where = device.best()
    torch.manual_seed(seed)  # of the projectors' start
    framework = build_framework(encoder, run, params, plan, torch.Generator().manual_seed(seed))
    balance = HeadBalance(run.heads, run.balance, plan.epsilon)
    trained = nn.ModuleDict({"framework": framework, "balance": balance}).to(where).train()
    optimizer = build_optimizer(trained, params.optimizer, plan.batch)
    steps = plan.epochs * count // plan.batch

    def prepare(epoch: int) -> Read:
        balance.next_epoch(epoch, plan.least_spread)
        order = np.random.default_rng([seed, epoch]).permutation(rows)
        return lambda batch: device.staged(pixels[order[batch[processes.share(len(batch))].numpy()]], where)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        draws = process_generator(generator)
        images = batch.content.to(where, non_blocking=True)
        first, second = (augment(images, encoder.config.size, view, draws, plan.crop_ratio) for view in plan.views)
        measured = framework(first, second, batch.number / steps, draws)
        extra = plan.orthogonal * framework.projectors.overlap() if run.variant == "orthogonal" else 0.0
        values = combine(measured, balance.weights.clone(), run.contrast, extra)
        balance.record(measured.accuracies, values["spread"])
        return {name: value / processes.count() for name, value in values.items()}

    loader, schedule = Loader(count, plan.batch, prepare), Schedule(plan.epochs, plan.warmup, 0.0)
    history = fit(trained, optimizer, schedule, loader, step, seed, work)
    balance.next_epoch(plan.epochs, plan.least_spread)
    return history
