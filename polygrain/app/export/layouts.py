"""A model in the folders of other libraries: sentence-transformers', and of a plain encoder timm's."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polygrain.app.export.agreement import difference, require_agreement
from polygrain.app.export.folder import Written, require_free
from polygrain.app.export.images import Images
from polygrain.encoder import Model, load
from polygrain.encoder.model import save
from polygrain.runner import outputs
from polygrain.store.tensors import write_weights

MOST = 1e-5
MODULES, MODEL = "modules.json", "model"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def write_sentence_transformers(folder: Path, output: Path) -> Written:
    """Writes what `SentenceTransformer(output, trust_remote_code=True)` opens where polygrain is installed."""
    require_free(output, {MODULES, MODEL})
    model, kind = load(folder), f"{Images.__module__}.{Images.__name__}"
    with outputs.folder(output) as made:
        (made / MODEL).mkdir()
        save(model, made / MODEL)
        modules = [{"idx": 0, "name": MODEL, "path": MODEL, "type": kind}]
        (made / MODULES).write_text(json.dumps(modules, indent=1) + "\n", encoding="utf-8")
        module = Images.load(str(made), MODEL)
        return checked(made / MODEL / "weights.safetensors", model, lambda batch: module({"images": batch}))


def write_timm(folder: Path, output: Path) -> Written:
    """Writes what `timm.create_model("local-dir:OUTPUT", pretrained=True)` opens; ValueError for more than an encoder.

    timm's embeddings are not of unit length, and its own transform scales a file once, to the side of the network.
    """
    import timm

    require_free(output, {CONFIG, WEIGHTS})
    model = load(folder)
    config = model.config
    more = {
        "adaptors": config.adaptors,
        "a last layer": config.reduced,
        "the outputs of several blocks": config.blocks > 1,
        "a mean with the mirror image": config.mirrored,
    }
    if held := [name for name, value in more.items() if value]:
        raise ValueError(
            f"{folder} has {' and '.join(held)}, for which timm's layout has no place: take another --format"
        )
    # The network with an input of its own side.
    encoder = Model(config.model_copy(update={"size": config.side, "resize": config.side, "scaled": None}))
    encoder.load_state_dict(model.state_dict())
    sides = {"img_size": config.side} if hasattr(encoder.backbone, "set_input_size") else {}
    if sides:
        encoder.backbone.set_input_size(**sides)  # position embeddings of that side
    # Some with a class token are told to take the mean, as DINOv3. The norm behind a mean (BEiT) does not fit a token.
    has_token = getattr(encoder.backbone, "cls_token", None) is not None
    has_norm = isinstance(getattr(encoder.backbone, "fc_norm", None), torch.nn.LayerNorm)
    token = {"global_pool": "token"} if has_token and not has_norm else {}
    seen = {
        "input_size": [3, config.side, config.side],
        "crop_pct": config.size / config.resize,
        "crop_mode": "center",
        "interpolation": "lanczos",
        "mean": config.mean,
        "std": config.std,
        "num_classes": 0,
    }
    facts = {
        "architecture": config.architecture.split(".")[0],
        "num_classes": 0,
        "num_features": model.dim,
        "model_args": config.kwargs | sides | token,
        "pretrained_cfg": seen,
    }
    with outputs.folder(output) as made:
        write_weights(encoder.backbone, made / WEIGHTS)
        (made / CONFIG).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        network = timm.create_model(f"local-dir:{made}", pretrained=True).eval()

        def run(batch: Tensor) -> dict[str, Tensor]:
            given = network((batch - model.mean) / model.std)
            return {"sentence_embedding": torch.nn.functional.normalize(given, dim=1)}

        return checked(made / WEIGHTS, encoder, run)


def checked(weights: Path, model: Model, run: Callable[[Tensor], dict[str, Tensor]]) -> Written:
    """The file and its largest difference to the model; ValueError where that is too large."""

    def numbers(batch: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return run(torch.from_numpy(batch))["sentence_embedding"].numpy()

    largest = difference(model, numbers, uint8=False)
    require_agreement(weights.name, largest, MOST)
    return Written(weights.name, weights.stat().st_size, largest)
