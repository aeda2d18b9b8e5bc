"""A model as a module of sentence-transformers, which finds it by its name in a folder's modules.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from polygrain.comparing import known
from polygrain.comparing.comparison import Comparison
from polygrain.comparing.known import Known
from polygrain.encoder import Model, load
from polygrain.encoder.model import save


class Images(nn.Module):
    """Images (paths, or opened by Pillow) in, `sentence_embedding` out: what sentence-transformers asks of a module."""

    modalities = ("image",)

    def __init__(self, model: Model, comparison: Comparison) -> None:
        super().__init__()
        self.model, self.comparison = model, comparison

    @classmethod
    def load(cls, folder: str, subfolder: str = "", **_: Any) -> "Images":
        place = Path(folder) / subfolder
        return cls(load(place), known.read(place).default)

    def save(self, folder: str, *_: Any, **__: Any) -> None:
        save(self.model, Path(folder))
        Known(default=self.comparison).write(Path(folder))

    def preprocess(self, images: Sequence[str | Path | Image.Image], **_: Any) -> dict[str, Tensor]:
        opened = [image if isinstance(image, Image.Image) else Image.open(image) for image in images]
        return {"images": torch.stack([self.model.transform(image) for image in opened])}

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        embeddings = self.model(features["images"])
        if self.comparison.mean:
            embeddings = nn.functional.normalize(embeddings - embeddings.new_tensor(self.comparison.mean), dim=1)
        return features | {"sentence_embedding": embeddings}

    def get_embedding_dimension(self) -> int:
        return self.model.dim
