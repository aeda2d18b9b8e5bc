"""The card of the recommended model: what it is, what it was made of, how it was chosen, how to use it."""

from typing import Any

from polygrain.encoder.config import Config

CARD = """\
# {name}

An embedding model for image retrieval: an image in, {dim} numbers of unit length out. The inner product of two
embeddings is how alike their images are, once the mean of their collection is taken from both.

- Network: {architecture}, input {side} x {side} px (the centre of a square of {resize} px{whole}){seen}
- Taken from: {outputs}
- Adaptors: {adaptors}
- Last layer: {layer}
- Cost: {cost:g} pass(es) of the encoder at its own input size
- Learnt from {images:,} images of {tasks}, without labels

## Why this one

{why}

## Use it

```python
import torch
from PIL import Image
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.encoder import load

model, comparisons = load("this folder"), Comparisons.read("this folder")
embedding = model(torch.stack([model.transform(Image.open("picture.jpg"))])).numpy()
query = comparisons.of({task!r}).query(embedding)  # or comparisons.default, for images of another kind
```

`polygrain embed`, `polygrain search` and `polygrain export` take this folder, and do that themselves.

Without labels, the criterion ranks candidates well on the mean and says little about a single task: where you have
labels, test. The model was not chosen for other kinds of images than those it learnt from.
"""


def text(config: Config, choice: dict[str, Any]) -> str:
    """The card in Markdown; `choice` is the content of `choice.json`."""
    form, adaptors = choice["form"], config.adaptors
    seen = f", scaled to {config.side} px for the network" if config.scaled else ""
    layers = {
        "none": "none, but the principal axes of the training images" if config.reduced else "none",
        "own": "what it was distilled with",
        "clusters": "in closed form from clusters of the training images",
    }
    return CARD.format(
        name=choice["name"],
        task=choice["learnt"]["tasks"][0] if choice["learnt"]["tasks"] else None,
        dim=config.reduced or "all the network's",
        architecture=config.architecture,
        side=config.size,
        resize=config.resize,
        whole=", or all of a longer image, at most 3 to 1" if config.shape == "whole" else "",
        seen=seen,
        outputs=f"its last {config.blocks} blocks side by side" if config.blocks > 1 else "its last block",
        adaptors=", ".join(adaptors.names) if adaptors else "none",
        layer=layers[form["layer"]],
        cost=form["scale"] ** 2,
        images=choice["learnt"]["images"],
        tasks=", ".join(choice["learnt"]["tasks"]),
        why="\n".join(f"- {line}" for line in choice["why"]),
    )
