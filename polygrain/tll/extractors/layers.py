"""Several layers of a frozen network as one vector: spatial mean and unit length for each, then side by side.

Risser-Maroix et al., section 3.2.
"""

import difflib
from pathlib import Path

import torch
import torchvision
from jaxtyping import Float, Num
from torch import Tensor, nn

from polygrain.encoder import installed, model, networks
from polygrain.encoder.families import family_of
from polygrain.encoder.weights import fit_tensors, load_module, read_checkpoint
from polygrain.store.reading import reading, remedy_for
from polygrain.store.tensors import write_weights
from polygrain.tll.extractors.config import Extractor
from polygrain.tll.extractors.facenet import InceptionResNet

FILES = (".safetensors", ".pth", ".pt")  # weights of any other name are the library's


class Layers(nn.Module):
    """A frozen network whose named layers are pooled, brought to unit length and concatenated."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: Extractor, network: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.network = network or build(config)
        read = config.encoder or config
        self.size = config.encoder.size if config.encoder else config.side or 0
        self.register_buffer("mean", torch.tensor(read.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(read.std).view(3, 1, 1), persistent=False)
        self.outputs: dict[str, Tensor] = {}
        for name in config.layers:
            self.watch(name)
        self.requires_grad_(False).eval()

    def watch(self, name: str) -> None:
        """Stores the output of the layer of this name; ValueError lists similar names."""
        modules = dict(self.network.named_modules())
        if name not in modules or not name:
            upper = [other for other in modules if other and other.count(".") < 2]
            raise ValueError(
                f"{self.config.network or 'the encoder'} has no layer {name!r}; closest: "
                f"{', '.join(difflib.get_close_matches(name, modules, 5, 0))}; its upper layers: {', '.join(upper)}"
            )
        modules[name].register_forward_hook(lambda _module, _inputs, output: self.outputs.__setitem__(name, output))

    def forward(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        """The descriptors of images (uint8, or floats in 0..1), each of length sqrt(number of layers)."""
        x = images.float() / 255 if images.dtype == torch.uint8 else images
        self.network((x - self.mean) / self.std)
        pooled = [pool(self.outputs.pop(name), self.network, name) for name in self.config.layers]
        return torch.cat([nn.functional.normalize(layer.float(), dim=1) for layer in pooled], 1)


def pool(output: object, network: nn.Module, name: str) -> Tensor:
    """The mean of a feature map over its places, or of patch tokens (class token left out); a vector as it is."""
    if not isinstance(output, Tensor) or not 2 <= output.ndim <= 4:
        what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"layer {name!r} puts out {what}; choose one that puts out a map, tokens or a vector")
    return output if output.ndim == 2 else family_of(network).mean(output)


def build(config: Extractor) -> nn.Module:
    """The network without weights; ValueError where its library does not know it."""
    if config.encoder is not None:
        return model.Model(config.encoder).backbone
    if config.library == "own":
        return InceptionResNet()
    try:
        if config.library == "timm":
            return networks.create(config.name, config.kwargs)
        return torchvision.models.get_model(config.name, weights=None, **config.kwargs)
    except Exception as error:  # the constructors raise errors of every kind; the arguments must change in any case
        raise ValueError(f"{config.library} cannot build {config.network!r} ({error}): change its kwargs") from error


def load(config: Extractor, weights: Path) -> Layers:
    """The network with its weights: of a model folder, of a file, or else its library's published ones.

    Only the published ones need a network connection, once, where no installed package holds them; the library keeps
    them.
    """
    if config.library == "encoder":
        trained = model.load(weights)
        layers = Layers(config.model_copy(update={"encoder": trained.config}))
        tensors = trained.backbone.state_dict()
    else:
        layers = Layers(config)
        tensors = read_checkpoint(weights) if weights.suffix in FILES else published(config)
    fit_tensors(layers.network, without_head(layers.network, tensors), str(weights))
    return layers


def published(config: Extractor) -> dict[str, Tensor]:
    if installed.file_of(config.name):
        return installed.read(config.name, build(config))
    if config.library == "own":
        raise ValueError(f"no library has weights of {config.name}: name a file ({', '.join(FILES)})")
    if config.library == "timm":
        made = networks.create(config.name, config.kwargs, pretrained=True)
    else:
        made = torchvision.models.get_model(config.name, weights="IMAGENET1K_V1", **config.kwargs)
    return made.state_dict()


def without_head(network: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors less those of the classifier, which timm's networks are built without."""
    heads = family_of(network).classifiers
    expected = network.state_dict()
    return {n: t for n, t in tensors.items() if n in expected or not n.startswith(tuple(f"{head}." for head in heads))}


def save(layers: Layers, folder: Path) -> None:
    """Writes `weights.safetensors` and `config.json`, all that `restore` needs."""
    write_weights(layers.network, folder / "weights.safetensors")
    (folder / "config.json").write_text(layers.config.model_dump_json(indent=1) + "\n", encoding="utf-8")


def restore(folder: Path) -> Layers:
    """The network that `save` wrote, on the CPU."""
    file = folder / "config.json"
    with reading(file, remedy_for(folder)):
        config = Extractor.model_validate_json(file.read_text(encoding="utf-8"))
    return Layers(config, load_module(lambda: build(config), folder))
