"""MoCo v2 with several projectors: each head has its momentum copy and a queue of its own keys as negatives."""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polygrain.compute import processes
from polygrain.config.schema import Section, Temperature
from polygrain.losses.info_nce import queue_contrast
from polygrain.mpcl.pretraining.heads import Measured, ProjectorParams, View, follow, momentum_copy
from polygrain.mpcl.pretraining.optimizer import OptimizerParams
from polygrain.mpcl.pretraining.projectors import MultiProjector
from polygrain.mpcl.pretraining.split_norm import has_batch_norm, shuffled, split_batch_norms
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.training.whole_batch import whole


class MocoV2Params(Section):
    """MoCo v2: negatives from a queue of past keys."""

    projector: ProjectorParams = Field(description="the heads' projectors")
    optimizer: OptimizerParams = Field(description="of encoder and heads alike")
    queue: int = Field(ge=1, le=100_000_000, description="negatives of each head; a multiple of the batch")
    temperature: Temperature = Field(description="divides cosines in the softmax")
    momentum: float = Field(ge=0, lt=1, description="of the momentum copies: the share they keep in a step")
    norm_splits: int = Field(
        ge=1, le=1024, description="parts of the batch, each normalised alone; 2 or more for an encoder with batch norm"
    )

    def require_divided(self, batch: int) -> None:
        """ValueError where the queue does not hold whole batches."""
        if self.queue % batch:
            near = max(self.queue // batch, 1) * batch
            raise ValueError(
                f"moco_v2.queue is {self.queue}, which a batch of {batch} does not divide: {near} would fit"
            )


class MocoV2(nn.Module):
    """The query side, its momentum copy, and the queues; `forward` takes two views and measures every head."""

    queue: Tensor
    pointer: Tensor

    def __init__(
        self,
        encoder: TrainableEncoder,
        projectors: MultiProjector,
        params: MocoV2Params,
        batch: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        params.require_divided(batch)
        if params.projector.norm != "none" or has_batch_norm(encoder):
            # Keys are shuffled within a process, so each needs two parts whatever the number of processes.
            count, splits = processes.count(), params.norm_splits
            splits = splits if count == 1 else max(2, -(-splits // count))
            self.require_splits(splits, batch // count, params.projector.norm != "none")
            split_batch_norms(encoder, splits)
        self.params = params
        self.encoder, self.projectors = encoder, projectors
        self.slow_encoder, self.slow_projectors = momentum_copy(encoder), momentum_copy(projectors)
        start = torch.randn(projectors.heads, params.queue, projectors.out, generator=generator)
        self.register_buffer("queue", functional.normalize(start, dim=-1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    @staticmethod
    def require_splits(splits: int, batch: int, in_projector: bool) -> None:
        """ValueError where batch norm would tell a key which batch its query is in."""
        if in_projector:
            raise ValueError("moco_v2 with batch norm in the projector leaks the batch; set projector.norm to none")
        if splits < 2 or batch % splits or batch // splits < 2:
            raise ValueError(
                f"norm_splits is {splits} for batches of {batch}; an encoder with batch norm needs 2 or more parts, of "
                "2 images or more each, else its queries and keys know each other by their batch"
            )

    def forward(self, first: View, second: View, progress: float, generator: torch.Generator) -> Measured:
        """Queries from the first view, keys from the second; then the keys take the oldest places of the queues."""
        features = self.encoder(first)
        queries = functional.normalize(self.projectors(features).float(), dim=-1)
        with torch.no_grad():
            follow(self.slow_encoder, self.encoder, self.params.momentum)
            follow(self.slow_projectors, self.projectors, self.params.momentum)
            keys = self.slow_projectors(shuffled(self.slow_encoder, second, generator))
            keys = functional.normalize(keys.float(), dim=-1)
        # A copy: the queue changes below, before the gradient is taken.
        losses, accuracies = queue_contrast(queries, keys, self.queue.clone(), self.params.temperature)
        self.enqueue(whole(keys, 1))
        return Measured(losses, accuracies, queries, features)

    @torch.no_grad()
    def enqueue(self, keys: Float[Tensor, "head batch dim"]) -> None:
        """Puts the keys in place of the oldest; the pointer stays on the device, so that no step waits for it."""
        places = (self.pointer + torch.arange(keys.shape[1], device=keys.device)) % self.params.queue
        self.queue[:, places] = keys
        self.pointer.copy_((self.pointer + keys.shape[1]) % self.params.queue)
