"""The card of a chosen model: what it is, what it was made of, how it was chosen, how to use it."""

from typing import Any

from polygrain.encoder.config import Config

CARD = """\
# {name}

An embedding model for image retrieval: an image in, {dim} numbers of unit length out. The inner product of two
embeddings is how alike their images are.

- Network: {architecture}, input {side} x {side} px (the centre of a square of {resize} px){seen}
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
from polygrain.encoder import load

model = load("this folder")
embedding = model(torch.stack([model.transform(Image.open("picture.jpg"))]))
```

`polygrain embed`, `polygrain search` and `polygrain export` take this folder, too.

Without labels, the criterion ranks candidates well on the mean and says little about a single task: where you have
labels, test. The model was not chosen for other kinds of images than those it learnt from.
"""


def text(config: Config, choice: dict[str, Any]) -> str:
    """The card in Markdown; `choice` is the content of `choice.json`."""
    form, adaptors = choice["form"], config.adaptors
    seen = f", scaled to {config.side} px for the network" if config.scaled else ""
    layers = {"none": "none", "turned": "turned to principal axes", "quarter": "a quarter of whitening"}
    layers |= {"half": "half whitening", "full": "whitening", "own": "what it was distilled with"}
    layers["taught"] = "linear, fitted to what teachers give"
    return CARD.format(
        name=choice["name"],
        dim=config.reduced or "all the network's",
        architecture=config.architecture,
        side=config.size,
        resize=config.resize,
        seen=seen + (", averaged with its mirror image" if config.mirrored else ""),
        outputs=f"its last {config.blocks} blocks side by side" if config.blocks > 1 else "its last block",
        adaptors=f"{', '.join(adaptors.names)}, at {form['strength']:g} of their strength" if adaptors else "none",
        layer=layers[form["layer"]],
        cost=form["cost"],
        images=choice["learnt"]["images"],
        tasks=", ".join(choice["learnt"]["tasks"]),
        why="\n".join(f"- {line}" for line in choice["why"]),
    )
