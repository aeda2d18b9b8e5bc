"""The forms in which a model can be handed out: how strong its adaptors are, how it sees an image, what comes last."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import nn

from stages.core.compute.blocks import Rows
from stages.core.compute.vectors import unit_rows
from stages.core.encoder.model import Model
from stages.core.retrieval import whitening
from stages.core.selection.criterion import Seen

Layer = Literal["none", "half", "full", "own"]


@dataclass(frozen=True)
class Form:
    """One candidate.

    `layer` is what lies behind the embedding: nothing, a half or full whitening to `dim` dimensions, or what the model
    learnt with. `scale` is the side that the model sees, in sides of the encoder's own, `cost` what that and the mirror
    image cost, in passes of the encoder.
    """

    model: str
    strength: float = 1.0
    scale: float = 1.0
    mirrored: bool = False
    layer: Layer = "none"
    dim: int | None = None
    cost: float = 1.0

    @property
    def name(self) -> str:
        """In a few words, such as `k256 x 0.7, half-whitened to 128`."""
        words = self.model if self.strength == 1 else f"{self.model} x {self.strength:g}"
        if self.scale != 1:
            words += f", at {self.scale:g} times the side"
        if self.mirrored:
            words += ", with its mirror image"
        behind = {"half": "half-whitened", "full": "whitened", "own": "with its own last layer"}
        if self.layer == "none":
            return words
        return f"{words}, {behind[self.layer]}" + f" to {self.dim}" * (self.layer != "own")


def shape(model: Model, form: Form) -> Model:
    """A model with its adaptors as strong as the form has them, its mirror image, and nothing behind it.

    It shares no adaptor with it, and sees the same side.
    """
    bare = Model(model.config.model_copy(update={"reduced": None}))
    bare.load_state_dict({name: t for name, t in model.state_dict().items() if not name.startswith("reduction.")})
    if bare.adaptors and form.strength != 1:
        bare.scale(form.strength)
    return bare.seen(bare.config.side, True) if form.mirrored else bare


def behind(
    base: Form, own: nn.Module, seen: Seen, dims: Sequence[int], layers: Sequence[Layer]
) -> Iterator[tuple[Form, Seen]]:
    """Each form with something behind the embeddings of `base`, and its embeddings.

    Whitenings are fitted to the images as they are, to fewer dimensions where they allow fewer.
    """
    yield base, seen
    if isinstance(own, nn.Linear):
        weight, bias = own.weight.numpy(), own.bias.numpy()
        yield replace(base, layer="own", dim=len(weight)), seen.through(lambda x: unit_rows(x @ weight.T + bias))
    most = whitening.largest(seen.plain)
    for dim in sorted({min(dim, most) for dim in dims} - {0}):
        for layer in layers:
            fitted = whitening.fit(seen.plain, dim, layer)
            yield replace(base, layer=layer, dim=dim), seen.through(partial(whitening.apply, fitted))


def finish(shaped: Model, own: nn.Module, form: Form, known: Rows) -> None:
    """Puts the form's last layer into a model of `shape`; whitenings are fitted to `known`, all training embeddings."""
    if form.layer == "own":
        shaped.reduce(own.weight, own.bias)
    elif form.layer != "none":
        fitted = whitening.fit(known, min(form.dim, whitening.largest(known)), form.layer)
        shaped.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
