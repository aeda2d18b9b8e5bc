"""The source of a frozen encoder, with all that its weights do not say: the architecture and the input.

timm knows both by the full name of published weights, such as `mobilenetv2_100.ra_in1k`. A folder in the layout of
timm's hub, `config.json` beside `model.safetensors`, says it itself.
"""

import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from polygrain.config import schema
from polygrain.encoder import installed, networks
from polygrain.encoder.config import Arguments, Config, Interpolation, read_config, require_safe
from polygrain.encoder.model import Model, load
from polygrain.encoder.networks import published
from polygrain.encoder.weights import fill, fit_tensors
from polygrain.store.reading import reading

if TYPE_CHECKING:
    from timm.models import PretrainedCfg

log = logging.getLogger(__name__)
WEIGHTS = "model.safetensors"
HUB = (
    "give a folder with timm's config.json and model.safetensors, other weights as a file with its architecture, or a "
    "model folder of this project"
)
NAMES = 3


class Origin(schema.Section):
    """The values of the section `encoder` that make the network."""

    source: Literal["folder", "timm", "file", "installed"] = Field(
        description="a model folder (of this project, or in the layout of timm's hub), timm's published weights "
        "(fetched once), a checkpoint, whose classifier is left out, or the weights in an installed package"
    )
    path: schema.Text = Field(description="the folder or file; for timm and installed versions.yaml")
    architecture: networks.Architecture | None = Field(
        description="a timm name; with a tag (mobilenetv2_100.ra_in1k) that of published weights, whose input is "
        "known; null where the folder's config says it"
    )
    side: schema.Side | None = Field(
        description="side of the encoder's input, px; null where the folder's config says it"
    )
    kwargs: Arguments = Field(
        description="arguments of timm's constructor, such as pad_type: same for weights of TensorFlow; not for a "
        "folder of this project"
    )
    mean: list[schema.Mean] | None = Field(
        min_length=3, max_length=3, description="of the input's channels, in 0..1; null: as timm or the folder has it"
    )
    std: list[schema.Deviation] | None = Field(
        min_length=3, max_length=3, description="of the input's channels, in 0..1; null: as timm or the folder has it"
    )
    interpolation: Interpolation | None = Field(
        description="with which stored images are scaled to the input; files are brought to these by Lanczos "
        "always; null: as timm or the folder has it"
    )

    @model_validator(mode="after")
    def names_what_it_needs(self) -> "Origin":
        if self.source == "folder":
            if self.architecture is not None:
                raise ValueError(f"architecture must be null for source: folder, got {self.architecture!r}")
            return self
        if self.architecture is None or self.side is None:
            raise ValueError(
                f"architecture and side must be given for source: {self.source}, got {self.architecture!r} and "
                f"{self.side!r}"
            )
        if self.source == "file" and "." not in self.architecture and not (self.mean and self.std):
            names = networks.full_names(self.architecture)[:NAMES]
            advice = f"name the weights in full (architecture: {', or '.join(names)}), or " if names else ""
            raise ValueError(
                f"no file says how its weights want the input, and {self.architecture!r} is of many: {advice}give mean "
                "and std ([0.5, 0.5, 0.5] each for -1..1)"
            )
        if self.source == "installed":
            installed.require_file(self.architecture)
        require_fit(self.describe(Path(self.path)))
        return self

    def describe(self, path: Path) -> Config:
        """The config of the network that is built from `path`, for inputs of its own side; no weights are read.

        ValueError for a folder's config that is damaged, or that says a value which is given here, too.
        """
        if self.source != "folder":
            return self.config(name := self.architecture or "", self.kwargs, published(name))
        if is_hub(path):
            with reading(path / "config.json", HUB):
                architecture, arguments, known = read_hub(path)
                return self.config(architecture, arguments | self.kwargs, known)
        for name in ("side", "kwargs", "mean", "std", "interpolation"):
            if value := getattr(self, name):
                raise ValueError(
                    f"encoder.{name} is {value!r}, which the config.json of {path} says itself: "
                    f"give {'{}' if name == 'kwargs' else 'null'}"
                )
        return read_config(path)

    def config(self, architecture: str, arguments: Arguments, known: "PretrainedCfg") -> Config:
        """The config of a network, with the input that is given here, else with the known one."""
        side = self.side or known.input_size[-1]
        # A CNN takes any side; a ViT is built for one.
        size = {"img_size": side} if published(architecture).fixed_input_size else {}
        return Config(
            architecture=architecture,
            kwargs=size | arguments,
            size=side,
            resize=side,
            interpolation=self.interpolation or ("bilinear" if known.interpolation == "bilinear" else "bicubic"),
            mean=tuple(self.mean or known.mean),
            std=tuple(self.std or known.std),
        )

    def build(self, path: Path) -> Model:
        """The encoder with its weights, from any of the sources."""
        if self.source == "folder" and not is_hub(path):
            self.describe(path)
            return load(path)
        config = self.describe(path)
        if self.source == "timm":
            log.info("fetching the weights of %s", config.architecture)
            model = Model(config)
            network = networks.create(config.architecture, config.kwargs, pretrained=True)
            fit_tensors(model.backbone, network.state_dict(), config.architecture)
            return model
        if self.source == "installed":
            model = Model(config)
            fit_tensors(model.backbone, installed.read(config.architecture, model.backbone), config.architecture)
            return model
        hub = self.source == "folder"
        file, known = (path / WEIGHTS, read_hub(path)[2]) if hub else (path, published(config.architecture))
        model = Model(config)
        heads = (known.classifier,) if isinstance(known.classifier, str) else known.classifier or ()
        fill(model.backbone, file, heads)
        return model


def is_hub(folder: Path) -> bool:
    """Whether the folder's config.json is one of timm's hub, or of another library; ours has neither key.

    ValueError if it is missing or damaged.
    """
    file = folder / "config.json"
    with reading(file, HUB):
        content = json.loads(file.read_text(encoding="utf-8"))
        return not isinstance(content, dict) or bool({"pretrained_cfg", "model_type"} & set(content))


def read_hub(folder: Path) -> tuple[str, Arguments, "PretrainedCfg"]:
    """Architecture, constructor arguments and pretrained_cfg of a folder in timm's hub layout."""
    from timm.models import PretrainedCfg

    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "model_type" in content:
        raise ValueError("it is of the library transformers: take the same network from timm")
    if not isinstance(content, dict) or not isinstance(content["pretrained_cfg"], dict):
        raise ValueError("it says nothing of the weights' input (pretrained_cfg)")
    names = {field.name for field in fields(PretrainedCfg)}
    known = {name: value for name, value in content["pretrained_cfg"].items() if name in names}
    architecture = networks.require_known(content["architecture"])
    return architecture, require_safe(content.get("model_args", {})), PretrainedCfg(**known)


def require_fit(config: Config) -> None:
    """ValueError for a network that cannot be built or adapted, or does not take its input. No weights are held."""
    network = networks.build_on_meta(config.architecture, config.kwargs)
    networks.require_blocks(network, config.architecture)
    networks.require_side(network, config.architecture, config.side)
