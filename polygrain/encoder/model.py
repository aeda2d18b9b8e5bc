"""A model on disk: `weights.safetensors` + `config.json`, the frozen encoder with or without its adaptors.

`polygrain.Collection` has the images of a folder by a model, compared as it says; here are a model's own embeddings:

model = load("data/choice")
embeddings = polygrain.embed(model, images)
"""

from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Num
from PIL import Image
from torch import Tensor, nn

from polygrain.encoder import engine, networks
from polygrain.encoder.adaptors import AdaptedBlock, Adaptors, fuse
from polygrain.encoder.config import AdaptorConfig, Attention, Config, Fusion, read_config, write_config
from polygrain.encoder.families import family_of
from polygrain.encoder.families.family import outputs_of
from polygrain.encoder.last_layer import LastLayer, layer_of
from polygrain.encoder.prepare import prepare
from polygrain.encoder.views import squares_along
from polygrain.encoder.weights import load_module
from polygrain.store.mapped_rows import middle
from polygrain.store.rectangle import rectangle
from polygrain.store.tensors import write_weights


class Model(nn.Module):
    """The frozen encoder, adapted or plain. Images in (uint8, or floats in 0..1), unit-length embeddings out."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.backbone = networks.build_backbone(config.architecture, networks.network_arguments(config))
        self.family = family_of(self.backbone)
        self.register_buffer("mean", torch.tensor(config.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(config.std).view(3, 1, 1), persistent=False)
        # The parts of the embedding: the last block's output first, then those of blocks before it.
        lower = networks.lower_of(config) if config.blocks > 1 else []
        if config.blocks > 1 + len(lower):
            raise ValueError(f"blocks is {config.blocks}; {config.architecture} has {1 + len(lower)} that can be taken")
        self.lower = list(lower[: config.blocks - 1])
        self.widths = [self.family.width, *(width for _, width in self.lower)]
        self.reduction: nn.Module = LastLayer(sum(self.widths), config.reduced) if config.reduced else nn.Identity()
        if config.adaptors is not None:
            self.insert(self.new_adaptors(config.adaptors), config.adaptors)
        self.requires_grad_(False).eval()
        self.register_load_state_dict_post_hook(lambda model, _: model.prepare())

    def prepare(self) -> None:
        """Gets the frozen network ready to compute with its weights, once they are there. Its state stays as it is."""
        names = networks.foldable(*networks.traced_by(self.config))
        folded = [(self.part(convolution), self.part(norm)) for convolution, norm in names]
        prepare(self.backbone, folded, self.family.is_convolutional)
        engine.programs.pop(self.backbone, None)  # they have the weights of before

    def part(self, name: str) -> nn.Module:
        """A part of the backbone by its name in the plain network."""
        module = self.backbone
        for key in name.split("."):
            module = module.get_submodule(key)
            module = module.block if isinstance(module, AdaptedBlock) else module
        return module

    @property
    def dim(self) -> int:
        return self.config.reduced or sum(self.widths)

    @property
    def takes_other_sides(self) -> bool:
        """Whether the network takes inputs of another side than its own, and rectangles; some are built for one."""
        return "img_size" not in self.config.kwargs or networks.is_dynamic(self.config.architecture)

    @property
    def adaptors(self) -> list[Adaptors]:
        """The adaptors of each layer; empty for the plain encoder."""
        return [module.adaptors for module in self.backbone.modules() if isinstance(module, AdaptedBlock)]

    def new_adaptors(self, config: AdaptorConfig) -> list[Adaptors]:
        """Near-identity adaptors for every block, not yet inserted, drawn from the global generator."""
        count, prefix, dims = len(config.names), self.family.prefix, networks.dims_of(self.config)
        return [Adaptors(dim, config.width, count, config.fusion, config.attention, prefix) for dim in dims]

    def insert(self, layers: list[Adaptors], config: AdaptorConfig) -> None:
        """Puts one layer of adaptors after every block."""
        if self.adaptors:
            raise ValueError(f"the model has adaptors already ({self.config.adaptors}); start from the plain encoder")
        for (parent, key), layer in zip(self.family.places(), layers, strict=True):
            parent._modules[key] = AdaptedBlock(parent.get_submodule(key), layer, self.family.channel == 3)
        self.config = self.config.model_copy(update={"adaptors": config})

    def at_side(self, side: int, mirrored: bool, blocks: int | None = None) -> "Model":
        """This model with shared weights, for inputs scaled to another side (px), or averaged with their mirror image.

        `blocks` changes the number of blocks in the embedding, if there is no reduction. A reduction stays as it is,
        though it was made for embeddings of the old input.
        """
        scaled = None if side == self.config.size else side
        if side != self.config.side and not self.takes_other_sides:
            raise ValueError(f"{self.config.architecture} is built for inputs of {self.config.side} px, not of {side}")
        changed = {"scaled": scaled, "mirrored": mirrored, "blocks": blocks or self.config.blocks}
        other = Model(self.config.model_copy(update=changed))
        other.load_state_dict(self.state_dict(), assign=True)
        return other.requires_grad_(False).eval()

    def reduce(self, weight: Float[Tensor, "reduced dim"], bias: Float[Tensor, " reduced"]) -> None:
        """Puts a linear layer after the (unit-length) embeddings, in place of an earlier one."""
        self.reduction = layer_of(weight, bias, self.mean.device)
        self.config = self.config.model_copy(update={"reduced": len(weight)})

    def in_front(self, embeddings: Float[np.ndarray, "row dim"]) -> Float32[np.ndarray, "row axis"]:
        """The features before the last layer, as `LastLayer.in_front` gives them; without a layer the embeddings.

        Neighbours are sought among these: the layer is fitted to its own clusters.
        """
        return self.reduction.in_front(embeddings) if isinstance(self.reduction, LastLayer) else embeddings

    def without_adaptors(self) -> "Model":
        """The encoder without its adaptors, with its own copy of the weights."""
        encoder = Model(self.config.model_copy(update={"adaptors": None}))
        tensors = self.state_dict()
        for name, module in self.named_modules():
            if isinstance(module, AdaptedBlock):
                own = {n: t for n, t in tensors.items() if n.startswith(f"{name}.")}
                tensors = {n: t for n, t in tensors.items() if n not in own}
                inner = f"{name}.block."
                tensors |= {f"{name}.{n.removeprefix(inner)}": t for n, t in own.items() if n.startswith(inner)}
        encoder.load_state_dict(tensors)
        return encoder

    def without_reduction(self, blocks: int = 1) -> "Model":
        """A copy with an embedding of `blocks` blocks, with its adaptors and without a reduction."""
        other = Model(self.config.model_copy(update={"reduced": None, "blocks": blocks}))
        other.load_state_dict({name: t for name, t in self.state_dict().items() if not name.startswith("reduction.")})
        return other

    def features(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        """The class token after the last norm, not normalised: z = LN(h^L)[class].

        A network without a class token pools its last map or tokens: by their mean, SigLIP by attention.
        """
        return self.last_output(self.network_input(images))

    def network_input(self, images: Num[Tensor, "batch 3 y x"]) -> Num[Tensor, "batch 3 y_seen x_seen"]:
        """The images at the network's side, normalised."""
        x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        size = self.size_of_input(*x.shape[2:])
        if size != (*x.shape[2:],):
            mode = self.config.interpolation
            x = nn.functional.interpolate(x, size, mode=mode, antialias=True, align_corners=False).clamp(0, 1)
        # Images are prepared in float32, whatever the type of the network.
        kind = next(self.backbone.parameters()).dtype
        return ((x - self.mean) / self.std).to(kind)

    def size_of_input(self, height: int, width: int) -> tuple[int, int]:
        """The height and width to which images of this size are scaled, in whole patches of a ViT, px."""
        own = min(height, width)
        side, step = self.config.side if self.config.scaled else own, self.family.patch
        half = own * step

        def scaled(length: int) -> int:
            """In whole numbers, so that an exported program comes to the same."""
            return side if length == own else step * ((2 * side * length + half) // (2 * half))

        return scaled(height), scaled(width)

    def last_output(self, x: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        """`features` of an input as the network takes it."""
        if self.family.is_convolutional:
            # Convolutions, and the adaptors between them, are faster with a pixel's channels side by side.
            x = x.contiguous(memory_format=torch.channels_last)
        return self.family.embed(x)

    def raw_outputs(self, images: Num[Tensor, "batch 3 y x"]) -> list[Float[Tensor, "batch _"]]:
        """The outputs of the last block and those before it, the last first."""
        x = self.network_input(images)
        if self.takes_other_sides or x.shape[2] == x.shape[3]:
            return engine.outputs_of(self.backbone, self.outputs, x)
        squares = squares_along(x)
        outputs = engine.outputs_of(self.backbone, self.outputs, torch.cat(squares))
        return [nn.functional.normalize(output, dim=1).unflatten(0, (len(squares), -1)).mean(0) for output in outputs]

    def outputs(self, x: Num[Tensor, "batch 3 y x"]) -> list[Float[Tensor, "batch _"]]:
        """`raw_outputs` of an input as the network takes it, by torch."""
        blocks = self.family.blocks()
        lower = [blocks[place] for place, _ in self.lower]
        with outputs_of(lower) as outputs:
            last = self.last_output(x)
        return [last.float(), *(self.family.pooled(outputs[block]).float() for block in lower)]

    def block_outputs(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        """`raw_outputs`, each of unit length, side by side."""
        return torch.cat([nn.functional.normalize(output, dim=1) for output in self.raw_outputs(images)], 1)

    def embed_once(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        """The blocks' outputs as one embedding of unit length."""
        parts = self.block_outputs(images)
        return nn.functional.normalize(parts, dim=1) if self.lower else parts

    def forward(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        """Embeddings of unit length, float32; their inner product is the cosine similarity."""
        embeddings = self.embed_once(images)
        if self.config.mirrored:
            mirrored = self.embed_once(images.flip(3))
            embeddings = nn.functional.normalize(embeddings + mirrored, dim=1)
        return self.reduction(embeddings)

    def from_outputs(self, outputs: Float[Tensor, "batch _"]) -> Float[Tensor, "batch dim"]:
        """The embeddings from the outputs of enough blocks, each of any length, unmirrored."""
        parts = outputs[:, : sum(self.widths)].float().split(self.widths, 1)
        joined = torch.cat([nn.functional.normalize(part, dim=1) for part in parts], 1)
        return self.reduction(nn.functional.normalize(joined, dim=1))

    @torch.no_grad()
    def with_attention(
        self, images: Num[Tensor, "batch 3 y x"]
    ) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch layer adaptor"]]:
        """Embeddings, and the weight of each adaptor for every image and layer; of several squares the first."""
        embeddings = self(images)
        layers = [layer.weights[: len(images)] for layer in self.adaptors if layer.weights is not None]
        if not layers:
            raise ValueError("attention needs a fusion of at least two adaptors; this model has none")
        return embeddings, torch.stack(layers, 1)

    def mask(self, *names: str) -> "Model":
        """Leaves the named adaptors out from now on, the others share their weight; without a name, brings all back."""
        known = self.config.adaptors.names if self.config.adaptors else []
        if unknown := set(names) - set(known):
            raise ValueError(f"no adaptor {', '.join(sorted(unknown))}; known: {', '.join(known) or 'none'}")
        if len(known) < 2 or len(set(names)) == len(known):
            raise ValueError(f"masking {', '.join(names)} would leave no adaptor of {', '.join(known) or 'none'}")
        for layer in self.adaptors:
            layer.masked.copy_(torch.tensor([name in names for name in known]))
        return self

    def transform(self, image: Image.Image) -> Num[Tensor, "3 y x"]:
        """One PIL image as the uint8 tensor the model expects, prepared as the pipeline prepares its own.

        That of a wide image does not stack with that of a square one: `polygrain.embed` takes any images.

        Only a large JPEG differs where it is read as a file: libjpeg halves it first. Cosines are .9995 and more.
        """
        pixels = rectangle(image, self.config.resize, self.config.shape)
        height, width = (length - self.config.resize + self.config.size for length in pixels.shape[:2])
        return torch.from_numpy(middle(pixels, (height, width)).copy()).permute(2, 0, 1)


def most_blocks(model: Model) -> int:
    """The largest number of blocks that this network's embedding can be made of."""
    return 1 + len(networks.lower_of(model.config))


def blocks_for(model: Model, wanted: int) -> int:
    """The number of blocks that embeddings of `blocks` (None: all) and the model's own need."""
    return max(min(wanted, most_blocks(model)), model.config.blocks)


def save(model: nn.Module, folder: Path) -> None:
    """Writes `weights.safetensors` and `config.json` of a model, or of another module whose `config` is a `Config`."""
    write_weights(model, folder / "weights.safetensors")
    write_config(cast(Config, model.config), folder)


def load(path: str | Path) -> Model:
    """The model saved in a folder, frozen, in evaluation mode, on the CPU.

    No pickle is read, no other file, nothing from the network. ValueError names a file that is missing, damaged or
    contradicts itself, and the shapes if weights and config do not fit.
    """
    config = read_config(Path(path))
    return load_module(lambda: Model(config), Path(path))


def merge(
    models: list[Model],
    names: list[str],
    fusion: Fusion,
    generator: torch.Generator,
    std: float,
    attention: Attention | None = None,
) -> Model:
    """One model with all adaptor sets in every block; all have the same encoder."""
    widths = {layer.width for model in models for layer in model.adaptors}
    if len(widths) > 1:
        raise ValueError(
            f"the adaptor sets have different widths {sorted(widths)}; reproduce them all with one adaptor.width"
        )
    attention = attention or Attention()
    layers = fuse([model.adaptors for model in models], fusion, generator, std, attention)
    fused = models[0].without_adaptors()
    fused.insert(layers, AdaptorConfig(names=names, width=widths.pop(), fusion=fusion, attention=attention))
    return fused.requires_grad_(False).eval()
