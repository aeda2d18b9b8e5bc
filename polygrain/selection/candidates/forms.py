"""The forms in which a model can be handed out: how strong its adaptors are, how it sees an image, what comes last."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from polygrain.compute.blocks import Rows
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import Model
from polygrain.retrieval import whitening
from polygrain.selection.criterion import Seen

Layer = Literal["none", "half", "full", "own"]


@dataclass(frozen=True)
class Form:
    """One candidate.

    `layer` is what lies behind the embedding: nothing, a half or full whitening to `dim` dimensions, or what the model
    learnt with. `blocks` counts the outputs that make the embedding, side by side: the last block's, and those of
    blocks before it. `scale` is the side that the model sees, in sides of the encoder's own, `cost` what that and the
    mirror image cost, in passes of the encoder.
    """

    model: str
    strength: float = 1.0
    scale: float = 1.0
    mirrored: bool = False
    layer: Layer = "none"
    dim: int | None = None
    cost: float = 1.0
    blocks: int = 1

    @property
    def name(self) -> str:
        """In a few words, such as `k256 x 0.7, half-whitened to 128`."""
        words = self.model if self.strength == 1 else f"{self.model} x {self.strength:g}"
        if self.scale != 1:
            words += f", at {self.scale:g} times the side"
        if self.mirrored:
            words += ", with its mirror image"
        if self.blocks != 1:
            words += f", its last {self.blocks} blocks"
        behind = {"half": "half-whitened", "full": "whitened", "own": "with its own last layer"}
        if self.layer == "none":
            return words
        return f"{words}, {behind[self.layer]}" + f" to {self.dim}" * (self.layer != "own")


def shape(model: Model, form: Form) -> Model:
    """A model with its adaptors as strong as the form has them, its blocks and mirror image, and nothing behind it.

    It shares no adaptor with it, and sees the same side.
    """
    bare = model.bare(form.blocks)
    if bare.adaptors and form.strength != 1:
        bare.scale(form.strength)
    return bare.seen(bare.config.side, True) if form.mirrored else bare


def behind(
    base: Form,
    own: nn.Module,
    seen: Seen,
    known: Float32[np.ndarray, "other dim"],
    widths: Sequence[int],
    dims: Sequence[int],
    layers: Sequence[Layer],
    blocks: Sequence[int] = (1,),
) -> Iterator[tuple[Form, Seen]]:
    """Each form with something behind the embeddings of `base`, and its embeddings.

    `seen` are those of all the outputs that `widths` counts, of which each form takes the first `blocks`: more than one
    only whitened, for their own lengths say nothing. Whitenings are fitted to the embeddings `known`, to fewer
    dimensions where these allow fewer. The sample alone would not do: many dimensions would fit its chances.
    """
    yield base, seen.through(partial(first_of, sum(widths[:1])))
    if isinstance(own, nn.Linear):
        weight, bias = own.weight.numpy(), own.bias.numpy()
        count = list(accumulate(widths)).index(own.in_features) + 1
        learnt = seen.through(partial(first_of, own.in_features)).through(lambda x: unit_rows(x @ weight.T + bias))
        yield replace(base, layer="own", dim=len(weight), blocks=count), learnt
    for count in sorted({min(count, len(widths)) for count in blocks}):
        several = partial(first_of, sum(widths[:count]))
        kept = seen.through(several)
        for (layer, dim), fitted in whitening.fit_all(several(known), dims, layers).items():
            yield replace(base, layer=layer, dim=dim, blocks=count), kept.through(partial(whitening.apply, fitted))


def first_of(width: int, embeddings: Float32[np.ndarray, "image dim"]) -> Float32[np.ndarray, "image width"]:
    """The first numbers of each embedding, as an embedding of unit length."""
    return unit_rows(embeddings[:, :width]) if width < embeddings.shape[1] else embeddings


def finish(shaped: Model, own: nn.Module, form: Form, known: Rows) -> None:
    """Puts the form's last layer into a model of `shape`; whitenings are fitted to `known`, all training embeddings."""
    if form.layer == "own":
        shaped.reduce(own.weight, own.bias)
    elif form.layer != "none":
        fitted = whitening.fit(known, min(form.dim, whitening.largest(known)), form.layer)
        shaped.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
