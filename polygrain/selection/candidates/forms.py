"""The forms in which a model can be handed out: how strong its adaptors are, how it sees an image, what comes last."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from polygrain.selection.criterion import Embedded
from polygrain.selection.teaching import Lesson, Targets, learn

Layer = whitening.Kind | Literal["none", "own", "taught"]


@dataclass(frozen=True)
class Form:
    """One candidate: a model, and how it is used.

    `strength` is a factor on what its adaptors add. `scale` is the side that it sees, in sides of the encoder's own;
    `cost` counts passes of the encoder. `layer` comes last: nothing, a half or full whitening to `dim` dimensions, the
    layer that the model learnt with, or one that a `lesson` taught. `blocks` outputs lie side by side: the last
    block's, and those before it.
    """

    model: str
    strength: float = 1.0
    scale: float = 1.0
    mirrored: bool = False
    layer: Layer = "none"
    dim: int | None = None
    cost: float = 1.0
    blocks: int = 1
    lesson: Lesson | None = None

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
        behind = {"turned": "turned", "quarter": "quarter-whitened", "half": "half-whitened", "full": "whitened"}
        behind["own"] = "with its own last layer"
        if self.layer == "none":
            return words
        if self.layer == "taught":
            return f"{words}, {self.lesson}"
        return f"{words}, {behind[self.layer]}" + f" to {self.dim}" * (self.layer != "own")


def shape(model: Model, form: Form) -> Model:
    """A copy of the model with the form's strength, blocks and mirror image, at the same side, without a last layer."""
    unreduced = model.without_reduction(form.blocks)
    if unreduced.adaptors and form.strength != 1:
        unreduced.scale(form.strength)
    return unreduced.at_side(unreduced.config.side, True) if form.mirrored else unreduced


def with_last_layers(
    base: Form,
    learnt: nn.Module,
    embedded: Embedded,
    fitted: Float32[np.ndarray, "other dim"],
    widths: Sequence[int],
    dims: Sequence[int],
    layers: Sequence[Layer],
    blocks: Sequence[int] = (1,),
) -> Iterator[tuple[Form, Embedded]]:
    """`base` with each last layer that is tried, and its embeddings.

    `embedded` holds the outputs of several blocks, of these `widths`; a form takes the first `blocks` of them. More
    than one are only tried whitened, since their lengths mean nothing. Whitenings are fitted to the embeddings
    `fitted`, to fewer dimensions where these allow fewer. `learnt` is the model's own last layer.
    """
    yield base, embedded.through(partial(first_of, sum(widths[:1])))
    if isinstance(learnt, nn.Linear):
        weight, bias = learnt.weight.numpy(), learnt.bias.numpy()
        count = list(accumulate(widths)).index(learnt.in_features) + 1
        inputs = embedded.through(partial(first_of, learnt.in_features))
        yield (
            replace(base, layer="own", dim=len(weight), blocks=count),
            inputs.through(partial(through, weight, bias)),
        )
    for count in sorted({min(count, len(widths)) for count in blocks if layers}):
        several = partial(first_of, sum(widths[:count]))
        inputs = embedded.through(several)
        for (layer, dim), whitener in whitening.fit_all(several(fitted), dims, layers).items():
            form = replace(base, layer=layer, dim=dim, blocks=count)
            yield form, inputs.through(partial(whitening.apply, whitener))


def with_lessons(
    base: Form, embedded: Embedded, inputs: Float32[np.ndarray, "other dim"], taught: Iterable[tuple[Lesson, Targets]]
) -> Iterator[tuple[Form, Embedded]]:
    """`base`, of all outputs, with a last layer that learns each lesson from the rows `inputs`."""
    for lesson, targets in taught:
        weight, bias = learn(inputs, targets)
        form = replace(base, layer="taught", dim=len(weight), lesson=lesson)
        yield form, embedded.through(partial(through, weight, bias))


def through(weight: np.ndarray, bias: np.ndarray, embeddings: np.ndarray) -> Float32[np.ndarray, "image dim"]:
    """A linear layer behind embeddings, of unit length again."""
    return unit_rows(embeddings @ weight.T + bias)


def first_of(width: int, embeddings: Float32[np.ndarray, "image dim"]) -> Float32[np.ndarray, "image width"]:
    """The first numbers of each embedding, as an embedding of unit length."""
    return unit_rows(embeddings[:, :width]) if width < embeddings.shape[1] else embeddings


def add_last_layer(
    shaped: Model, learnt: nn.Module, form: Form, embeddings: Rows, taught: Mapping[Lesson, Targets]
) -> None:
    """Puts the form's last layer into a model of `shape`; what is fitted or taught is so with these embeddings."""
    if form.layer == "own":
        shaped.reduce(learnt.weight, learnt.bias)
    elif form.layer == "taught":
        shaped.reduce(*map(torch.from_numpy, learn(embeddings, taught[form.lesson])))
    elif form.layer != "none":
        fitted = whitening.fit(embeddings, form.dim, form.layer)
        shaped.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
