"""Networks by timm name, built without weights, and their residual blocks."""

import contextlib
import copy
import difflib
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from pydantic import AfterValidator
from torch import Tensor, nn

from polygrain.encoder.config import require_safe

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
        timm.get_pretrained_cfg(architecture, allow_unregistered=True)
    except RuntimeError as error:
        names = ", ".join(full_names(architecture)) or "none"
        raise ValueError(f"timm knows no weights {architecture!r}; known: {names}") from error
    return architecture


def full_names(architecture: str) -> list[str]:
    """The names of all weights that timm knows for an architecture, its own choice first."""
    import timm

    bare = architecture.split(".")[0]
    first = timm.get_pretrained_cfg(bare, allow_unregistered=True).tag
    return sorted(timm.list_pretrained(f"{bare}.*"), key=lambda name: (name != f"{bare}.{first}", name))


Architecture = Annotated[str, AfterValidator(require_known)]


def build_on_meta(architecture: str, kwargs: dict[str, int | float | bool | str]) -> nn.Module:
    """The network with shapes and no values; ValueError if it cannot be built."""
    with torch.device("meta"):
        return build_network(architecture, kwargs)


def build_network(architecture: str, kwargs: dict[str, int | float | bool | str]) -> nn.Module:
    """The timm network without weights and classifier; ValueError if timm cannot build it."""
    import timm

    require_known(architecture)
    require_safe(kwargs)
    try:
        network = timm.create_model(architecture, pretrained=False, num_classes=0, **kwargs)
    except Exception as error:  # constructors raise any type
        similar = ", ".join([*timm.list_models("vit_*patch16_224*")[:8], "resnet50"])
        raise ValueError(
            f"timm cannot build {architecture!r} with {kwargs} ({error}); known are, say: {similar}"
        ) from error
    # On a CPU the backward pass of fused attention is slow in bfloat16: nearly half of a network's time for a few dozen
    # tokens. Plain products take little memory for short sequences.
    patches = getattr(getattr(network, "patch_embed", None), "num_patches", None)
    if patches is not None and patches <= SHORT and not torch.cuda.is_available():
        for module in network.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = False
    return network


def build_backbone(architecture: str, kwargs: dict[str, int | float | bool | str]) -> nn.Module:
    """The timm network without weights; ValueError if timm cannot build it or it has no residual blocks."""
    backbone = build_network(architecture, kwargs)
    require_blocks(backbone, architecture)
    return backbone


def require_blocks(network: nn.Module, architecture: str) -> None:
    """ValueError for a network without residual blocks, after which adaptors stand."""
    if not residual_blocks(network):
        raise ValueError(f"{architecture!r} has no residual blocks to adapt; choose a ViT, ConvNeXt or ResNet")


@torch.no_grad()
def require_side(backbone: nn.Module, architecture: str, side: int) -> None:
    """ValueError for a side of the input, px, that the network cannot take, or of which it would drop the border.

    The network may be on the device `meta`.
    """
    patch = patch_side(backbone)
    if side % patch:
        near = [multiple for multiple in (side // patch * patch, (side // patch + 1) * patch) if multiple]
        raise ValueError(
            f"side is {side}, and {architecture} cuts its input into patches of {patch} px: give a multiple of that, "
            f"such as {' or '.join(map(str, near))}"
        )
    try:
        backbone.eval().forward_features(torch.zeros(1, 3, side, side, device=next(backbone.parameters()).device))
    except Exception as error:  # each family checks its input in its own way
        raise ValueError(f"side is {side}, which {architecture} does not take ({error})") from error


def patch_side(backbone: nn.Module) -> int:
    """The side of a ViT's patches, px, of which the input is a multiple; 1 for a CNN."""
    patch = getattr(getattr(backbone, "patch_embed", None), "patch_size", None)
    return 1 if patch is None else max(patch)


def feature(network: nn.Module) -> str:
    """The source of an image's embedding, in words; see `Model.features`."""
    if getattr(network, "cls_token", None) is not None:
        return "the class token"
    return "the tokens pooled by attention" if getattr(network, "attn_pool", None) is not None else "the pooled map"


def width_of(network: nn.Module) -> int:
    """How many numbers an embedding has: some heads widen what they pool (MobileNetV3 and later)."""
    has_class = getattr(network, "cls_token", None) is not None
    return int(network.num_features if has_class else getattr(network, "head_hidden_size", network.num_features))


def residual_blocks(backbone: nn.Module) -> list[tuple[nn.Module, str]]:
    """The place of each block, as (container, key) in the order of the forward pass: `blocks`, or ResNet's layers."""
    lists = [
        module
        for name, module in backbone.named_modules()
        if re.fullmatch(r"(.*\.)?blocks|layer[1-4]", name) and isinstance(module, nn.Sequential | nn.ModuleList)
    ]
    places = []
    for parent in lists:
        for key, child in parent._modules.items():
            # MobileNet keeps stages of blocks in `blocks`.
            is_stage = isinstance(child, nn.Sequential)
            places += [(child, inner) for inner in child._modules] if is_stage else [(parent, key)]
    return places


@torch.no_grad()
def block_dims(backbone: nn.Module, size: int) -> list[int]:
    """The number of channels after each block; CNNs change it, so their shapes are traced."""
    if getattr(backbone, "cls_token", None) is not None:
        return [backbone.num_features] * len(residual_blocks(backbone))
    channel = -1 if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else 1
    return [shape[channel if len(shape) == 4 else -1] for shape in shapes(backbone, size).blocks]


class Shapes(NamedTuple):
    """The shapes of the outputs of each block, of the last layer, and of the head that pools it."""

    blocks: list[torch.Size]
    last: torch.Size
    head: torch.Size


@torch.no_grad()
def shapes(backbone: nn.Module, size: int) -> Shapes:
    """The shapes for one image of a side, px, traced on a copy without values."""
    tensors = [*backbone.parameters(), *backbone.buffers()]
    backbone = copy.deepcopy(backbone, {id(tensor): tensor.to("meta") for tensor in tensors}).eval()
    blocks = [parent._modules[key] for parent, key in residual_blocks(backbone)]
    with outputs_of(blocks) as outputs:
        last = backbone.forward_features(torch.zeros(1, 3, size, size, device="meta"))
    has_class = getattr(backbone, "cls_token", None) is not None
    head = last[:, 0] if has_class else backbone.forward_head(last, pre_logits=True)
    return Shapes([outputs[block].shape for block in blocks], last.shape, head.shape)


def lower_blocks(backbone: nn.Module, size: int) -> list[tuple[int, int]]:
    """The blocks that may be part of the embedding, the last first, as (place in `residual_blocks`, channels).

    The last block's output is the embedding itself, but for a norm, unless a convolution widens it (MobileNet). Blocks
    count from the end while their output is pooled like the last layer: as many tokens of as many numbers, or a map
    with sides that can be told from its channels.
    """
    blocks, last, head = shapes(backbone, size)
    if head[-1] != backbone.num_features:
        return []
    channel = 3 if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else 1
    lower = []
    for place, shape in reversed(list(enumerate(blocks))):
        sides = [side for axis, side in enumerate(shape) if axis not in (0, channel)]
        if not (shape == last if len(last) == 3 else len(shape) == len(last) == 4 and sides[0] == sides[1]):
            break
        lower.append((place, shape[-1] if len(shape) == 3 else shape[channel]))
    return lower[1:] if lower and lower[0][1] == backbone.num_features else lower


@contextlib.contextmanager
def outputs_of(blocks: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """The output of each of the blocks, once a forward pass has run within the context, in this thread."""
    outputs: dict[nn.Module, Tensor] = {}
    thread = threading.get_ident()

    def keep(block: nn.Module, _: object, output: Tensor) -> None:
        if threading.get_ident() == thread:
            outputs[block] = output

    handles = [block.register_forward_hook(keep) for block in blocks]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def pooled(backbone: nn.Module, output: Tensor) -> Float[Tensor, "batch dim"]:
    """One vector from a block's output, as from the network's last: the class token, or the mean of all places.

    Tokens go through the network's last norm, as in the probes of Caron et al., "Emerging properties in self-supervised
    vision transformers", 2021.
    """
    if output.ndim == 4:
        return output.mean((1, 2) if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else (2, 3))
    tokens = getattr(backbone, "norm", nn.Identity())(output)
    if getattr(backbone, "cls_token", None) is not None:
        return tokens[:, 0]
    mean = tokens[:, getattr(backbone, "num_prefix_tokens", 0) :].mean(1)
    return getattr(backbone, "fc_norm", nn.Identity())(mean)
