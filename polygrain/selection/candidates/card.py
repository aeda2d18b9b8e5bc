"""The card of the recommended model: what it is, what it was made of, how it was chosen, how to use it."""

from typing import Any

from polygrain.compute.counted import counted
from polygrain.encoder.config import Config

CARD = """\
# {name}

An embedding model for image retrieval. It makes a vector of {dim} from an image, of unit length. Subtract the mean of
the collection from each vector; then the inner product of two vectors says how alike their images are.

- Network: {architecture}, input {side} x {side} px (the centre of a square of {resize} px{whole}){seen}
- Output: {outputs}
- Adaptors: {adaptors}
- Last layer: {layer}
- Cost: {cost:g} times that of the encoder at its own input side
- Learnt from {images} of {tasks}, without labels

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

`polygrain embed`, `polygrain search` and `polygrain export` take this folder and subtract the mean themselves.

The criterion needs no labels. It ranks candidates well on the mean of several tasks, and less well on one task: where
you have labels, measure the model with them. It may be a poor choice for kinds of images that it did not learn from.
"""


def text(config: Config, choice: dict[str, Any]) -> str:
    """The card in Markdown; `choice` is the content of `choice.json`."""
    form, adaptors = choice["form"], config.adaptors
    seen = f", scaled to {config.side} px for the network" if config.scaled else ""
    layers = {
        "none": "the first principal axes of the training images" if config.reduced else "none",
        "own": "the model's own",
        "clusters": "computed in closed form from clusters of the training images",
    }
    return CARD.format(
        name=choice["name"],
        task=choice["learnt"]["tasks"][0] if choice["learnt"]["tasks"] else None,
        dim=f"{config.reduced} numbers" if config.reduced else "all the network's numbers",
        architecture=config.architecture,
        side=config.size,
        resize=config.resize,
        whole="; of longer images all, up to 3 to 1" if config.shape == "whole" else "",
        seen=seen,
        outputs=f"its last {config.blocks} blocks side by side" if config.blocks > 1 else "its last block",
        adaptors=", ".join(adaptors.names) if adaptors else "none",
        layer=layers[form["layer"]],
        cost=form["scale"] ** 2,
        images=counted(choice["learnt"]["images"], "image"),
        tasks=", ".join(choice["learnt"]["tasks"]),
        why="\n".join(f"- {line}" for line in choice["why"]),
    )
