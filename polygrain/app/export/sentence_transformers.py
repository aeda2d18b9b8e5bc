"""A model in the folder of sentence-transformers."""

import json
from pathlib import Path

import numpy as np
import torch

from polygrain.app.export.agreement import difference, require_agreement
from polygrain.app.export.folder import Written, require_free
from polygrain.app.export.images import Images
from polygrain.comparing import known
from polygrain.comparing.known import Known
from polygrain.encoder import load
from polygrain.encoder.model import save
from polygrain.runner import outputs

MOST = 1e-5
MODULES, MODEL = "modules.json", "model"


def write(folder: Path, output: Path, task: str | None = None) -> Written:
    """Writes what `SentenceTransformer(output, trust_remote_code=True)` opens where polygrain is installed."""
    require_free(output, {MODULES, MODEL})
    model, kind = load(folder), f"{Images.__module__}.{Images.__name__}"
    with outputs.folder(output) as made:
        (made / MODEL).mkdir()
        save(model, made / MODEL)
        comparison = known.read(folder).of(task)
        Known(default=comparison).write(made / MODEL)
        modules = [{"idx": 0, "name": MODEL, "path": MODEL, "type": kind}]
        (made / MODULES).write_text(json.dumps(modules, indent=1) + "\n", encoding="utf-8")
        module = Images.load(str(made), MODEL)

        def numbers(batch: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                return module({"images": torch.from_numpy(batch)})["sentence_embedding"].numpy()

        weights = made / MODEL / "weights.safetensors"
        largest = difference(model, numbers, False, comparison)
        require_agreement(weights.name, largest, MOST)
        return Written(weights.name, weights.stat().st_size, largest)
