"""Networks by timm name, built without weights, and their properties."""

import difflib
import functools
import inspect
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import AfterValidator
from torch import nn

from polygrain.encoder.config import Config, require_safe
from polygrain.encoder.families import family_of
from polygrain.encoder.prepare import Pair, pairs

if TYPE_CHECKING:
    from timm.models import PretrainedCfg

log = logging.getLogger(__name__)
SHORT = 128  # patches


def require_known(architecture: str) -> str:
    """The architecture as it is; ValueError with similar names if it is not in timm's own list.

    timm itself would also take a folder (`local-dir:`), or download a repository (`hf-hub:`).
    """
    import timm

    if not re.fullmatch(r"\w{1,100}(\.\w{1,100})?", architecture, re.ASCII) or not timm.is_model(architecture):
        similar = ", ".join(difflib.get_close_matches(architecture.rpartition("/")[2][:100], timm.list_models(), 5, 0))
        raise ValueError(f"timm does not know {architecture[:200]!r}; similar names: {similar}")
    try:
        published(architecture)
    except RuntimeError as error:
        names = ", ".join(full_names(architecture)) or "none"
        raise ValueError(f"timm knows no weights {architecture!r}; known: {names}") from error
    return architecture


def published(architecture: str) -> "PretrainedCfg":
    """timm's knowledge of these weights; of its own choice for a name without a tag."""
    from timm.models import PretrainedCfg, get_pretrained_cfg

    return get_pretrained_cfg(architecture, allow_unregistered=True) or PretrainedCfg()


def full_names(architecture: str) -> list[str]:
    """The names of all weights that timm knows for an architecture, its own choice first."""
    import timm

    bare = architecture.split(".")[0]
    first = published(bare).tag
    return sorted(timm.list_pretrained(f"{bare}.*"), key=lambda name: (name != f"{bare}.{first}", name))


Architecture = Annotated[str, AfterValidator(require_known)]


def build_on_meta(architecture: str, kwargs: Mapping[str, Any]) -> nn.Module:
    """The network with shapes and no values, to be read and not changed; ValueError if it cannot be built."""
    return built_on_meta(architecture, tuple(sorted(kwargs.items())))


@functools.lru_cache(maxsize=32)
def built_on_meta(architecture: str, kwargs: tuple[tuple[str, Any], ...]) -> nn.Module:
    # A profile asks one network several times, and timm's start takes long even without values.
    with torch.device("meta"):
        return build_network(architecture, dict(kwargs))


def create(architecture: str, kwargs: Mapping[str, Any], pretrained: bool = False) -> nn.Module:
    """timm's network without its classifier, with published weights (fetched once) or a random start."""
    import timm

    arguments: dict[str, Any] = {"num_classes": 0, **kwargs}
    return timm.create_model(architecture, pretrained=pretrained, **arguments)


def build_network(architecture: str, kwargs: Mapping[str, Any]) -> nn.Module:
    """The timm network without weights and classifier; ValueError if timm cannot build it."""
    import timm

    require_known(architecture)
    try:
        network = create(architecture, require_safe(kwargs))
    except Exception as error:  # constructors raise any type
        similar = ", ".join([*timm.list_models("vit_*patch16_224*")[:8], "resnet50"])
        raise ValueError(
            f"timm cannot build {architecture!r} with {kwargs} ({error}); known are, say: {similar}"
        ) from error
    # On a CPU the backward pass of fused attention is slow in bfloat16: nearly half of a network's time for a few dozen
    # tokens. Plain products take little memory for short sequences.
    patches = family_of(network).patches
    if patches is not None and patches <= SHORT and not torch.cuda.is_available():
        family_of(network).unfuse()
    return network


def build_backbone(architecture: str, kwargs: Mapping[str, Any]) -> nn.Module:
    """The timm network without weights; ValueError if timm cannot build it or it has no residual blocks."""
    backbone = build_network(architecture, kwargs)
    require_blocks(backbone, architecture)
    return backbone


def require_blocks(network: nn.Module, architecture: str) -> None:
    """ValueError for a network without residual blocks, after which adaptors stand."""
    if not family_of(network).places():
        raise ValueError(f"{architecture!r} has no residual blocks to adapt; choose a ViT, ConvNeXt or ResNet")


@torch.no_grad()
def require_side(backbone: nn.Module, architecture: str, side: int) -> None:
    """ValueError for a side of the input, px, that the network cannot take, or of which it would drop the border.

    The network may be on the device `meta`.
    """
    family = family_of(backbone.eval())
    patch = family.patch
    if side % patch:
        near = [multiple for multiple in (side // patch * patch, (side // patch + 1) * patch) if multiple]
        raise ValueError(
            f"side is {side}, and {architecture} cuts its input into patches of {patch} px: give a multiple of that, "
            f"such as {' or '.join(map(str, near))}"
        )
    try:
        family.embed(torch.zeros(1, 3, side, side, device=next(backbone.parameters()).device))
    except Exception as error:  # each family checks its input in its own way
        raise ValueError(f"side is {side}, which {architecture} does not take ({error})") from error


def lower_of(config: Config) -> tuple[tuple[int, int], ...]:
    """The blocks before the last that may be part of an embedding, as `Family.lower` has them."""
    return traced(*traced_by(config))[0]


def dims_of(config: Config) -> tuple[int, ...]:
    """The number of channels after each block."""
    return traced(*traced_by(config))[1]


def traced_by(config: Config) -> tuple[str, tuple[tuple[str, Any], ...], int]:
    return config.architecture, tuple(sorted(network_arguments(config).items())), config.side


@functools.lru_cache(maxsize=32)
def traced(
    architecture: str, kwargs: tuple[tuple[str, Any], ...], side: int
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    # Tracing takes longer than building the network, and a choice builds one dozens of times.
    with torch.device("meta"):
        family = family_of(build_backbone(architecture, dict(kwargs)).eval())
        return tuple(family.lower(side)), tuple(family.dims(side))


@functools.lru_cache(maxsize=32)
def foldable(architecture: str, kwargs: tuple[tuple[str, Any], ...], side: int) -> tuple[Pair, ...]:
    """The `pairs` that no adaptor comes between; none, said in the log, for a network that cannot be traced."""
    with torch.device("meta"):
        backbone = build_backbone(architecture, dict(kwargs)).eval()
        images = torch.zeros(1, 3, side, side)
    if not any(isinstance(module, nn.BatchNorm2d) for module in backbone.modules()):
        return ()
    names = {module: name for name, module in backbone.named_modules()}
    blocks = [f"{names[parent]}.{key}." for parent, key in family_of(backbone).places()]
    try:
        found = pairs(backbone, images)
    except Exception as error:  # whatever a network's own code raises
        log.info("%s is not folded (%s): it runs as it is", architecture, error)
        return ()
    return tuple(pair for pair in found if len({tuple(map(f"{name}.".startswith, blocks)) for name in pair}) == 1)


def network_arguments(config: Config) -> dict[str, Any]:
    """The constructor's arguments. A ViT is built for one side; timm resizes its position embeddings for another."""
    own = config.kwargs.get("img_size")
    if own is None or (own == config.side and config.shape == "crop") or not is_dynamic(config.architecture):
        return config.kwargs
    return config.kwargs | {"dynamic_img_size": True}


def is_dynamic(architecture: str) -> bool:
    """Whether the network can resize its position embeddings for the input at hand."""
    return "dynamic_img_size" in inspect.signature(type(build_on_meta(architecture, {}))).parameters
