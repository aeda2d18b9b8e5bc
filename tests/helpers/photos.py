"""A folder of drawn images, a model of two adaptor sets, and what a browser may be shown of them."""

from pathlib import Path

import numpy as np
from PIL import Image

from polygrain.encoder.config import Fusion
from tests.helpers.small import adapted, draw, write_encoder, write_model


def write_photos(folder: Path, each: int = 4) -> Path:
    """`<task>/<class>/<number>.png`, two tasks of three classes."""
    rng = np.random.default_rng(0)
    for task, name in enumerate(("bars", "dots")):
        for label in range(3):
            (folder / name / f"class{label}").mkdir(parents=True)
            for number in range(each):
                image = Image.fromarray(draw(task, label, rng))
                image.resize((64, 48), Image.Resampling.NEAREST).save(folder / f"{name}/class{label}/{number}.png")
    return folder


def write_fused(folder: Path, fusion: Fusion = "attention", seed: int = 0) -> Path:
    """A model folder, beside the folder of its encoder."""
    encoder = folder.with_name(f"{folder.name}-encoder")
    return write_model(adapted(write_encoder(encoder), ["k4", "k8"], seed, fusion=fusion), folder)
