"""A model of visual analogies on disk: a frozen network's layers, a reduction and W, in one safetensors file.

model = load("data/tll_adaptation/analogies/model")
embeddings = model(torch.stack([model.transform(image) for image in images]))
"""

from pathlib import Path

import torch
from jaxtyping import Float, Num
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from polygrain.config.schema import Width
from polygrain.encoder.weights import fit_tensors, load_module
from polygrain.store.reading import reading
from polygrain.store.rectangle import Shape, rectangle
from polygrain.store.tensors import write_weights
from polygrain.tll.adaptation.reduction import Reduction
from polygrain.tll.extractors.config import Extractor
from polygrain.tll.extractors.layers import Layers


class AnalogyConfig(BaseModel):
    """The values that rebuild the model: its `config.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    extractor: Extractor = Field(description="the frozen network")
    dim: Width = Field(description="dimensions of the concatenated layers")
    components: Width = Field(description="dimensions that the reduction keeps")
    hidden: Width = Field(description="rows of W: dimensions of the embedding")
    sigma: float = Field(gt=0, description="the loss's factor that W was trained with")
    shape: Shape = Field("crop", description="how an image becomes a square; models before this value were cropped")


class AnalogyModel(nn.Module):
    """Images in (uint8, or floats in 0..1), unit-length embeddings out: analogous images have a large inner product."""

    def __init__(self, config: AnalogyConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = Layers(config.extractor)
        self.register_buffer("mean", torch.zeros(config.dim))
        self.register_buffer("components", torch.zeros(config.components, config.dim))
        self.register_buffer("weights", torch.zeros(config.hidden, config.components))
        self.requires_grad_(False).eval()

    def forward(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch hidden"]:
        """ReLU(W d) at unit length; the zero vector where no unit is active."""
        reduced = (self.layers(images) - self.mean) @ self.components.T
        return nn.functional.normalize(torch.relu(reduced @ self.weights.T), dim=1)

    def transform(self, image: Image.Image) -> Num[Tensor, "3 y x"]:
        """One PIL image as the uint8 tensor the model expects, prepared as the pipeline prepares its own."""
        return torch.from_numpy(rectangle(image, self.layers.size, self.config.shape).copy()).permute(2, 0, 1)


def assemble(
    layers: Layers, reduction: Reduction, weights: Float[Tensor, "hidden component"], sigma: float, shape: Shape
) -> AnalogyModel:
    """The model of these parts."""
    components, dim = reduction.components.shape
    sizes = {"dim": dim, "components": components, "hidden": len(weights)}
    made = AnalogyModel(AnalogyConfig(extractor=layers.config, sigma=sigma, shape=shape, **sizes))
    tensors = {"mean": torch.from_numpy(reduction.mean), "components": torch.from_numpy(reduction.components)}
    tensors |= {f"layers.network.{name}": tensor for name, tensor in layers.network.state_dict().items()}
    fit_tensors(made, tensors | {"weights": weights}, "the trained model")
    return made


def save(model: AnalogyModel, folder: Path) -> None:
    """Writes `weights.safetensors` and `config.json`."""
    write_weights(model, folder / "weights.safetensors")
    (folder / "config.json").write_text(model.config.model_dump_json(indent=1) + "\n", encoding="utf-8")


def load(path: str | Path) -> AnalogyModel:
    """The model saved in a folder, frozen, on the CPU. Reads no pickle and needs no network."""
    file = Path(path) / "config.json"
    with reading(file, "run tll_adaptation, or name the folder `model` of its output"):
        config = AnalogyConfig.model_validate_json(file.read_text(encoding="utf-8"))
    return load_module(lambda: AnalogyModel(config), Path(path))
