"""Stored outputs of the frozen encoder: later steps need no pass of the network."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.encoder import extract
from polygrain.encoder.model import Model
from polygrain.store import arrays
from polygrain.store.image_table import open_outputs

BLOCK_ROWS = 16_384


def backbone_digest(model: Model) -> str:
    """16 hex digits for the frozen network and how it sees an image, whatever is made of its blocks' outputs."""
    config = model.config.model_dump_json(exclude={"adaptors", "blocks", "mirrored", "reduced", "scaled"})
    sha = hashlib.sha256(f"{config} {model.config.side}".encode())
    for name, tensor in model.backbone.state_dict().items():
        sha.update(name.encode())
        sha.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return sha.hexdigest()[:16]


def facts_of(model: Model) -> dict[str, Any]:
    """The record beside the outputs of a model's blocks; `blocks` is 0 where only its embedding is stored."""
    is_one = model.config.mirrored or model.config.reduced
    widths = [model.dim] if is_one else list(model.widths)
    facts = {"digest": backbone_digest(model), "side": model.config.side, "widths": widths}
    return facts | {"blocks": 0 if is_one else len(widths)}


@dataclass(frozen=True)
class Stored:
    """The outputs of one encoder's last blocks, the last first, and the stage that stored them.

    `rows` is `image dim`, or `image view dim`.
    """

    rows: arrays.Reader | np.ndarray
    facts: Mapping[str, Any]
    stage: str

    def holds(self, model: Model) -> bool:
        """Whether the model's embeddings follow from these outputs; ValueError where blocks are missing for that."""
        is_plain = not model.adaptors and not model.config.mirrored
        is_its = bool(is_plain and self.facts["blocks"] and self.facts["digest"] == backbone_digest(model))
        if is_its:
            self.require(model, len(model.widths))
        return is_its

    def require(self, model: Model, count: int) -> None:
        """ValueError if these are not of the model's backbone, at its side, or of fewer blocks."""
        here, wanted = self.facts, {"digest": backbone_digest(model), "side": model.config.side}
        if {key: here[key] for key in wanted} != wanted or here["blocks"] < count:
            raise ValueError(
                f"the outputs of `{self.stage}` are of encoder {here['digest']} at {here['side']} px, {here['blocks']} "
                f"blocks; {wanted['digest']} at {wanted['side']} px, {count} blocks, is expected: "
                f"run `dvc repro {self.stage}`"
            )

    def embed(self, model: Model, rows: np.ndarray) -> Float32[np.ndarray, "row *view dim"]:
        """The model's embeddings of some rows, of which a block is in memory at a time."""
        shape, where = (*self.rows.shape[1:-1], model.dim), next(model.parameters()).device
        result = np.empty((len(rows), *shape), np.float32)
        for part in blocks(len(rows), BLOCK_ROWS):
            outputs = torch.from_numpy(self.rows[rows[part]]).to(where).flatten(0, -2)
            with torch.inference_mode():
                result[part] = model.from_outputs(outputs).cpu().numpy().reshape(-1, *shape)
        return result


def open_features(features: Path, tasks: list[str]) -> Stored:
    """The outputs that `features` stored of all images of the tasks."""
    return Stored(*open_outputs(features, tasks), "features")


def embed(
    model: Model, stored: Stored | None, pixels: arrays.Reader, rows: np.ndarray, description: str
) -> Float32[np.ndarray, "row dim"]:
    """The model's embeddings of some rows: from stored outputs, if these suffice, or by a pass of the network."""
    if stored is not None and stored.holds(model):
        return stored.embed(model, rows)
    return extract.embed(model, pixels, rows, *device.inference(model.config.size), description)
