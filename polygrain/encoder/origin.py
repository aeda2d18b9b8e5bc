"""Where a frozen encoder comes from, and all that its weights alone do not say: its architecture and its input."""

import logging
from pathlib import Path
from typing import Literal

import timm
from pydantic import Field, model_validator

from polygrain.config import schema
from polygrain.encoder import networks
from polygrain.encoder.arguments import Arguments
from polygrain.encoder.backbone import fill
from polygrain.encoder.config import Config, Interpolation, read_config
from polygrain.encoder.model import Model, load
from polygrain.encoder.pretrained import WEIGHTS, is_hub, published, read_hub
from polygrain.encoder.weights import fit_tensors

log = logging.getLogger(__name__)
NAMES = 3
TENSORFLOW = 1001  # ImageNet's classes and one for none of them


class Origin(schema.Section):
    """Of the section `encoder`, what makes the network; what it sees of the stored squares is the stage's."""

    source: Literal["folder", "timm", "file"] = Field(
        description="a model folder (of this project, or in the layout of timm's hub), timm's published weights "
        "(fetched once), or a checkpoint, whose classifier is left out"
    )
    path: schema.Text = Field(description="the folder or file; for timm the lock file that pins timm's version")
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
        description="with which stored squares are scaled to the input; files are brought to these squares by Lanczos "
        "always; null: as timm or the folder has it"
    )

    @model_validator(mode="after")
    def names_what_it_needs(self) -> "Origin":
        if self.source == "folder":
            if self.architecture is not None:
                raise ValueError(f"architecture must be null for source: folder, met {self.architecture!r}")
            return self
        if self.architecture is None or self.side is None:
            raise ValueError(
                f"architecture and side must be given for source: {self.source}, met {self.architecture!r} and "
                f"{self.side!r}"
            )
        if self.source == "file" and "." not in self.architecture and not (self.mean and self.std):
            known = networks.full_names(self.architecture)[:NAMES]
            named = f"name the weights in full (architecture: {', or '.join(known)}), or " if known else ""
            raise ValueError(
                f"no file says how its weights want the input, and {self.architecture!r} is of many: {named}give mean "
                "and std ([0.5, 0.5, 0.5] each for -1..1)"
            )
        require_fit(self.describe(Path(self.path)))
        return self

    def describe(self, path: Path) -> Config:
        """The config of the network that is built from `path`, for inputs of its own side; no weights are read.

        ValueError where a folder's config is damaged, or says what is given here too.
        """
        if self.source == "folder" and not is_hub(path):
            given = [name for name in ("side", "kwargs", "mean", "std", "interpolation") if getattr(self, name)]
            if given:
                raise ValueError(
                    f"encoder.{given[0]} is {getattr(self, given[0])!r}, which the config.json of {path} says itself: "
                    f"give {'{}' if given[0] == 'kwargs' else 'null'}"
                )
            return read_config(path)
        hub = read_hub(path) if self.source == "folder" else None
        architecture = hub.architecture if hub else self.architecture
        known = hub.pretrained_cfg if hub else published(architecture)
        side = self.side or known.input_size[-1]
        # A CNN takes any side; a ViT is built for one.
        is_fixed = timm.get_pretrained_cfg(architecture, allow_unregistered=True).fixed_input_size
        return Config(
            architecture=architecture,
            kwargs=(hub.model_args if hub else {}) | ({"img_size": side} if is_fixed else {}) | self.kwargs,
            size=side,
            resize=side,
            interpolation=self.interpolation or known.interpolation,
            mean=tuple(self.mean or known.mean),
            std=tuple(self.std or known.std),
        )

    def build(self, path: Path) -> Model:
        """The encoder with its weights, from any of the sources."""
        config = self.describe(path)
        if self.source == "folder" and not is_hub(path):
            return load(path)
        model = Model(config)
        if self.source == "timm":
            log.info("fetching the weights of %s", config.architecture)
            weights = timm.create_model(config.architecture, pretrained=True, num_classes=0, **config.kwargs)
            fit_tensors(model.backbone, weights.state_dict(), config.architecture)
            return model
        known = read_hub(path).pretrained_cfg if self.source == "folder" else published(config.architecture)
        heads = (known.classifier,) if isinstance(known.classifier, str) else known.classifier or ()
        dropped = fill(model.backbone, path / WEIGHTS if self.source == "folder" else path, heads)
        if TENSORFLOW in {len(tensor) for tensor in dropped.values()} and "pad_type" not in config.kwargs:
            log.warning(
                "%s: its classifier has 1,001 classes, as weights of TensorFlow have; they may want kwargs "
                "{pad_type: same}, and mean and std of 0.5",
                path,
            )
        return model


def require_fit(config: Config) -> None:
    """ValueError for a network that cannot be built or adapted, or does not take its input. No weights are held."""
    network = networks.require_buildable(config.architecture, config.kwargs)
    networks.require_blocks(network, config.architecture)
    networks.require_side(network, config.architecture, config.side)
