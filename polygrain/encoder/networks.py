"""Networks by timm name: built without weights, and where their residual blocks stand."""

import contextlib
import copy
import difflib
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import timm
import torch
from jaxtyping import Float
from pydantic import AfterValidator
from torch import Tensor, nn

from polygrain.encoder import arguments

SHORT = 128  # patches
MOST_PARAMETERS = 20_000_000_000  # three times the largest network that timm has


def known(architecture: str) -> str:
    """The architecture as it is; ValueError with similar names where timm's own list does not have it.

    timm would also take the name of a folder (`local-dir:`) or of a repository, which it would download (`hf-hub:`).
    """
    if not re.fullmatch(r"\w{1,100}(\.\w{1,100})?", architecture, re.ASCII) or not timm.is_model(architecture):
        similar = ", ".join(difflib.get_close_matches(architecture[:100], timm.list_models(), 5, 0))
        raise ValueError(f"timm does not know {architecture[:200]!r}; similar names: {similar}")
    try:
        timm.get_pretrained_cfg(architecture, allow_unregistered=True)
    except RuntimeError as error:
        names = ", ".join(full_names(architecture)) or "none"
        raise ValueError(f"timm knows no weights {architecture!r}; known: {names}") from error
    return architecture


def full_names(architecture: str) -> list[str]:
    """The names of all weights that timm knows for an architecture, its own choice first."""
    bare = architecture.split(".")[0]
    first = timm.get_pretrained_cfg(bare, allow_unregistered=True).tag
    return sorted(timm.list_pretrained(f"{bare}.*"), key=lambda name: (name != f"{bare}.{first}", name))


Architecture = Annotated[str, AfterValidator(known)]


def require_buildable(architecture: str, kwargs: dict[str, int | float | bool | str]) -> nn.Module:
    """The network without values; ValueError where it cannot be built, or is larger than any there is."""
    with torch.device("meta"):
        network = build_network(architecture, kwargs)
    count = sum(parameter.numel() for parameter in network.parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(
            f"{architecture!r} with {kwargs} has {count:,} parameters; at most {MOST_PARAMETERS:,} are built"
        )
    return network


def build_network(architecture: str, kwargs: dict[str, int | float | bool | str]) -> nn.Module:
    """The timm network without weights and classifier; ValueError where timm does not know it."""
    known(architecture)
    arguments.safe(kwargs)
    try:
        network = timm.create_model(architecture, pretrained=False, num_classes=0, **kwargs)
    except Exception as error:  # the constructors raise what comes; whatever it was, these arguments must change
        similar = ", ".join([*timm.list_models("vit_*patch16_224*")[:8], "resnet50"])
        raise ValueError(
            f"timm cannot build {architecture!r} with {kwargs} ({error}); known are, say: {similar}"
        ) from error
    # On a CPU the fused attention's backward is slow in bfloat16: nearly half of a network's, for a few dozen tokens.
    # Plain products hold little memory where sequences are short.
    patches = getattr(getattr(network, "patch_embed", None), "num_patches", None)
    if patches is not None and patches <= SHORT and not torch.cuda.is_available():
        for module in network.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = False
    return network


def build_backbone(architecture: str, kwargs: dict[str, int | float | bool | str]) -> nn.Module:
    """The timm network without weights; ValueError where timm does not know it or it has no residual blocks."""
    backbone = build_network(architecture, kwargs)
    require_blocks(backbone, architecture)
    return backbone


def require_blocks(network: nn.Module, architecture: str) -> None:
    """ValueError for a network that adaptors cannot stand in."""
    if not residual_blocks(network):
        raise ValueError(f"{architecture!r} has no residual blocks to adapt; choose a ViT, ConvNeXt or ResNet")


@torch.no_grad()
def require_side(backbone: nn.Module, architecture: str, side: int) -> None:
    """ValueError for an input of a side, px, that the network cannot take, or of which it would drop the border.

    The network may be without values (on the device `meta`).
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
    except Exception as error:  # each family checks its input in its own way, at its own depth
        raise ValueError(f"side is {side}, which {architecture} does not take ({error})") from error


def patch_side(backbone: nn.Module) -> int:
    """The side of a ViT's patches, px: its input is a multiple of that; 1 for a CNN."""
    patch = getattr(getattr(backbone, "patch_embed", None), "patch_size", None)
    return 1 if patch is None else max(patch)


def feature(network: nn.Module) -> str:
    """What an image's embedding is taken from, in words; see `Model.features`."""
    if getattr(network, "cls_token", None) is not None:
        return "the class token"
    return "the tokens pooled by attention" if getattr(network, "attn_pool", None) is not None else "the pooled map"


def residual_blocks(backbone: nn.Module) -> list[tuple[nn.Module, str]]:
    """Where each block stands, as (container, key) in the order of the forward pass; `blocks`, or ResNet's layers."""
    lists = [
        module
        for name, module in backbone.named_modules()
        if re.fullmatch(r"(.*\.)?blocks|layer[1-4]", name) and isinstance(module, nn.Sequential | nn.ModuleList)
    ]
    places = []
    for parent in lists:
        for key, child in parent._modules.items():
            # MobileNet and its kin keep stages of blocks in `blocks`.
            is_stage = isinstance(child, nn.Sequential)
            places += [(child, inner) for inner in child._modules] if is_stage else [(parent, key)]
    return places


@torch.no_grad()
def block_dims(backbone: nn.Module, size: int) -> list[int]:
    """The number of channels behind each block; CNNs change it on the way, so one image is sent through them."""
    if getattr(backbone, "cls_token", None) is not None:
        return [backbone.num_features] * len(residual_blocks(backbone))
    channel = -1 if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else 1
    return [shape[channel if len(shape) == 4 else -1] for shape in shapes(backbone, size).blocks]


class Shapes(NamedTuple):
    """What comes out of each block, of the last layer, and of the head that pools it."""

    blocks: list[torch.Size]
    last: torch.Size
    head: torch.Size


@torch.no_grad()
def shapes(backbone: nn.Module, size: int) -> Shapes:
    """For one image of a side, px. Neither weights nor maps are computed: a copy that has none answers."""
    tensors = [*backbone.parameters(), *backbone.buffers()]
    backbone = copy.deepcopy(backbone, {id(tensor): tensor.to("meta") for tensor in tensors}).eval()
    blocks = [parent._modules[key] for parent, key in residual_blocks(backbone)]
    with outputs_of(blocks) as outputs:
        last = backbone.forward_features(torch.zeros(1, 3, size, size, device="meta"))
    has_class = getattr(backbone, "cls_token", None) is not None
    head = last[:, 0] if has_class else backbone.forward_head(last, pre_logits=True)
    return Shapes([outputs[block].shape for block in blocks], last.shape, head.shape)


def lower_blocks(backbone: nn.Module, size: int) -> list[tuple[int, int]]:
    """The blocks whose outputs say more than the embedding does, the last first: places in `residual_blocks`, channels.

    What the last block gives is the embedding itself, but for a norm; only where a convolution widens it, as in
    MobileNet, it is another. Blocks count from the end as long as what they give is pooled as the last layer is: as
    many tokens of as many numbers, or a map whose sides can be told from its channels.
    """
    blocks, last, head = shapes(backbone, size)
    if head[-1] != backbone.num_features:
        return []
    channel = 3 if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else 1
    found = []
    for place, shape in reversed(list(enumerate(blocks))):
        sides = [side for axis, side in enumerate(shape) if axis not in (0, channel)]
        if not (shape == last if len(last) == 3 else len(shape) == len(last) == 4 and sides[0] == sides[1]):
            break
        found.append((place, shape[-1] if len(shape) == 3 else shape[channel]))
    return found[1:] if found and found[0][1] == backbone.num_features else found


@contextlib.contextmanager
def outputs_of(blocks: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Has what each of the blocks gave, once a forward pass has run inside the context, in this thread."""
    kept: dict[nn.Module, Tensor] = {}
    mine = threading.get_ident()

    def keep(block: nn.Module, _: object, output: Tensor) -> None:
        if threading.get_ident() == mine:
            kept[block] = output

    handles = [block.register_forward_hook(keep) for block in blocks]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def pooled(backbone: nn.Module, output: Tensor) -> Float[Tensor, "batch dim"]:
    """One vector of a block's output, as the network makes one of its last: the class token, or the mean of all places.

    Tokens go through the network's last norm, as those of a ViT's last layers do where its features are probed (Caron
    et al., "Emerging properties in self-supervised vision transformers", 2021).
    """
    if output.ndim == 4:
        return output.mean((1, 2) if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else (2, 3))
    tokens = getattr(backbone, "norm", nn.Identity())(output)
    if getattr(backbone, "cls_token", None) is not None:
        return tokens[:, 0]
    mean = tokens[:, getattr(backbone, "num_prefix_tokens", 0) :].mean(1)
    return getattr(backbone, "fc_norm", nn.Identity())(mean)
