"""A model as a module of sentence-transformers, which finds it by its name in a folder's modules.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from polygrain.encoder import Model, load
from polygrain.encoder.model import save


class Images(nn.Module):
    """Images (paths, or opened by Pillow) in, `sentence_embedding` out: what sentence-transformers asks of a module."""

    modalities = ("image",)

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    @classmethod
    def load(cls, folder: str, subfolder: str = "", **_: Any) -> "Images":
        return cls(load(Path(folder) / subfolder))

    def save(self, folder: str, *_: Any, **__: Any) -> None:
        save(self.model, Path(folder))

    def preprocess(self, images: Sequence[str | Path | Image.Image], **_: Any) -> dict[str, Tensor]:
        opened = [image if isinstance(image, Image.Image) else Image.open(image) for image in images]
        return {"images": torch.stack([self.model.transform(image) for image in opened])}

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        return features | {"sentence_embedding": self.model(features["images"])}

    def get_embedding_dimension(self) -> int:
        return self.model.dim
