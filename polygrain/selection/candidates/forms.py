"""The forms that a model can have: its input, and its last layer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float32
from torch import nn

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.whitening import Affine, apply, to_length
from polygrain.selection.criterion import Embedded

Layer = Literal["none", "own", "clusters"]


@dataclass(frozen=True)
class Form:
    """One candidate: a model, and how it is used.

    `scale` is the side that it sees, in sides of the encoder's own; `cost` counts passes of the encoder. `layer` comes
    last: nothing, the layer that the model learnt with, or one that clusters give in closed form, of `dim` numbers.
    `blocks` outputs lie side by side: the last block's, and those before it.
    """

    model: str
    scale: float = 1.0
    layer: Layer = "none"
    dim: int | None = None
    blocks: int = 1

    @property
    def cost(self) -> float:
        return self.scale**2

    @property
    def name(self) -> str:
        """In a few words, such as `k256, layer of 128 from clusters`."""
        words = self.model
        if self.scale != 1:
            words += f", at {self.scale:g} times the side"
        if self.blocks != 1:
            words += f", its last {self.blocks} blocks"
        if self.layer == "none":
            return words
        if self.layer == "own":
            return f"{words}, with its own last layer"
        return f"{words}, layer of {self.dim} from clusters"


def with_last_layers(
    base: Form,
    learnt: nn.Module,
    embedded: Embedded,
    width: int,
    fit: Callable[[], Affine | None],
    train: Float32[np.ndarray, "row dim"],
    dim: int | None = None,
) -> Iterator[tuple[Form, Embedded, Affine | None]]:
    """`base` with each last layer that is tried, its embeddings, and the layer where it is from clusters.

    `embedded` holds the outputs of all blocks of `base`, the last one's of this width first: alone it has no layer. A
    model that `learnt` a last layer has that one, too; and behind each comes what `fit` gives of all blocks. With a
    `dim`, embeddings without a layer from clusters are turned onto as many principal axes of the images that `train`.
    """

    def at_length(change: Callable[[np.ndarray], np.ndarray]) -> Embedded:
        if dim is None:
            return embedded.through(change)
        turn = to_length(change(train), dim)
        return embedded.through(lambda rows: unit_rows(change(rows) @ turn))

    yield replace(base, blocks=1), at_length(partial(first_of, width)), None
    if isinstance(learnt, nn.Linear):
        weight, bias = learnt.weight.numpy(), learnt.bias.numpy()
        count = base.blocks if learnt.in_features > width else 1
        own = replace(base, layer="own", dim=dim or len(weight), blocks=count)
        yield own, at_length(lambda rows: through(weight, bias, first_of(learnt.in_features, rows))), None
    if (fitted := fit()) is not None:
        form = replace(base, layer="clusters", dim=fitted.projection.shape[1])
        yield form, embedded.through(partial(apply, fitted)), fitted


def through(weight: np.ndarray, bias: np.ndarray, embeddings: np.ndarray) -> Float32[np.ndarray, "image dim"]:
    """A linear layer behind embeddings, of unit length again."""
    return unit_rows(embeddings @ weight.T + bias)


def first_of(width: int, embeddings: Float32[np.ndarray, "image dim"]) -> Float32[np.ndarray, "image width"]:
    """The first numbers of each embedding, as an embedding of unit length."""
    return unit_rows(embeddings[:, :width]) if width < embeddings.shape[1] else embeddings
