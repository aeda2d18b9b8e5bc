"""The encoder that `polygrain new` was asked for: which values it takes, how large its images are, and why."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from polygrain.compute import device
from polygrain.encoder import installed, networks
from polygrain.encoder.config import Config
from polygrain.encoder.families import family_of
from polygrain.encoder.networks import is_dynamic, published
from polygrain.encoder.origin import Origin, is_hub, require_fit
from polygrain.new.folders import UNSAFE
from polygrain.new.profile import EncoderSettings
from polygrain.new.request import Request, bare, require_there

SHIPPED = "encoders/vit48"
LITE = {f"lite{i}": f"tf_efficientnet_lite{i}.in1k" for i in range(3)}
QUICK = 96  # px: for the least time, and the least side that small images give
STEP = 32  # px, of sides that images give: the strides of most CNNs
BETTER = ("vit_small_patch14_reg4_dinov2", 224)  # free to use, and a side that it sees well, px
VERSIONS = "../../versions.yaml"  # seen from a profile; stages follow it
STORED = 1.5  # sides of the input, for the reference
BATCHES = {"adaptor": 64, "fusion": 128}


def choose(request: Request) -> tuple[EncoderSettings, str]:
    """The settings of a profile, and the encoder in a few words.

    ValueError says which word is wrong, or what has to be said because no file says it. The weights of a file or
    folder are read, so that what is chosen is known to fit.
    """
    if request.name is None:
        if not installed.file_of(LITE["lite0"]):
            if request.side:
                raise ValueError(f"--side is {request.side}, but {SHIPPED} sees 48 px: name another with --encoder")
            hint = f"which is for drawings (for photographs pip install -e '.[{installed.EXTRA}]')"
            return EncoderSettings(), f"{SHIPPED} at 48 px, {hint}"
        request = request._replace(name="lite0")
    return settings_of(*values_of(request), request.shorter)


def config_of(settings: EncoderSettings, root: Path) -> Config:
    """The config of the network that a profile of the project at `root` will have."""
    values: dict[str, Any] = dict.fromkeys(Origin.model_fields) | {"source": "folder", "path": SHIPPED, "kwargs": {}}
    values |= {name: value for name, value in settings.encoder.items() if name in values}
    return Origin(**values).describe(root / values["path"])


def better(shorter: int | None) -> tuple[str, EncoderSettings, Config]:
    """The words that name a better encoder than the default, its settings and its config."""
    name, side = BETTER
    values, config = values_of(Request(name, side=side))
    return f"--encoder {name} --side {side}", settings_of(values, config, shorter)[0], config


def values_of(request: Request) -> tuple[dict[str, Any], Config]:
    """The values of a section `encoder`, and the network's config."""
    name = bare(request.name or "")
    request = request._replace(name=name, architecture=request.architecture and bare(request.architecture))
    path = Path(os.path.abspath(name))  # links stay
    if path.exists():
        values = from_disk(request, path)
    else:
        require_there(name)
        if request.architecture:
            raise ValueError(f"an architecture is for a file of weights, and {name} is none")
        source, full = published_as(name)
        side = request.side or native_side(full, request.shorter)
        values = {"source": source, "path": VERSIONS, "architecture": full, "side": side}
    values |= {"side": values.get("side") or request.side, "kwargs": dict(request.kwargs), "interpolation": None}
    values |= {name: channels and list(channels) for name, channels in (("mean", request.mean), ("std", request.std))}
    try:
        origin = Origin(**values)
        config = origin.describe(path)
        if origin.source == "folder":  # `Origin` has asked the others
            require_fit(config)
        if config.adaptors:
            raise ValueError(f"{path} has adaptors already: give the plain encoder that it was made of")
        if origin.source != "timm":
            origin.build(path)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
    return values, config


def from_disk(request: Request, path: Path) -> dict[str, Any]:
    """A folder or a file of weights as values of the section `encoder`."""
    if UNSAFE.search(str(path)):
        raise ValueError(f"{str(path)!r} has a quote, a line break or ${{ in it: rename it")
    if path.is_dir():
        if request.architecture:
            raise ValueError(f"--architecture is {request.architecture}, but the config.json of {path} says it")
        if not is_hub(path) and request.side:
            raise ValueError(f"--side is {request.side}, but the encoder in {path} has a side of its own")
        return {"source": "folder", "path": str(path), "architecture": None}
    if not request.architecture:
        raise ValueError(
            f"{path} holds weights alone: say with --architecture of which timm network, in full where its input is as "
            "published, such as mobilenetv2_100.ra_in1k"
        )
    side = request.side or native_side(networks.require_known(request.architecture), request.shorter)
    return {"source": "file", "path": str(path), "architecture": request.architecture, "side": side}


def published_as(name: str) -> tuple[str, str]:
    """Source and full name of published weights: of an installed package by their short name, else of timm."""
    if name in LITE:
        return "installed", LITE[name]
    names = networks.full_names(networks.require_known(name))
    if not names:
        raise ValueError(f"timm publishes no weights of {name}: give a file of them, and this as --architecture")
    return "timm", name if "." in name else names[0]


def native_side(architecture: str, shorter: int | None) -> int:
    """The side of the weights' training, px, or what smaller images have: larger ones would be made up."""
    known, step = published(architecture), STEP
    side = known.input_size[-1]
    if shorter is None or shorter >= side:
        return side
    if known.fixed_input_size:
        if not is_dynamic(architecture):
            return side
        step = family_of(networks.build_on_meta(architecture, {})).patch
        step *= STEP // step
    return min(side, step * max(shorter // step, math.ceil(QUICK / step)))


def settings_of(values: dict[str, Any], config: Config, shorter: int | None) -> tuple[EncoderSettings, str]:
    """The sizes and batches that follow from a network and the images' shorter side, and the network in a few words."""
    network = networks.build_on_meta(config.architecture, config.kwargs)
    patch, side = family_of(network).patch, config.side
    stored, trained = side, published(config.architecture).input_size[-1]
    if side < trained:  # beyond the side of its training a network finds less
        stored = patch * math.ceil(STORED * side / patch)
    if shorter is not None and shorter < stored:
        stored = max(side, shorter // patch * patch)
    cost = math.ceil(100 * (stored / side) ** 2) / 100
    batches = {part: device.batch_at(side, usual) for part, usual in BATCHES.items()}
    places = {"timm": "which timm fetches once", "installed": "from an installed package"}
    words = f"{config.architecture} at {side} px, {places.get(values['source']) or 'of ' + values['path']}"
    if values["source"] not in places or values["mean"] or values["std"]:
        given = "as you said" if values["mean"] or values["std"] else "as its weights were trained"
        words += f", with mean {shown(config.mean)} and std {shown(config.std)}, {given}"
    fewer = {part: batch for part, batch in batches.items() if batch < BATCHES[part]}
    return EncoderSettings({name: value for name, value in values.items() if value}, side, stored, cost, fewer), words


def shown(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:g}" for number in numbers)
