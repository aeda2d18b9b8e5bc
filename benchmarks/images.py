"""Feature extraction and adaptor training from the image store, against the bare model on one resident batch.

ViT-S/16 at 224; what the peer leaves out is reading, cropping, augmentation and everything around the model.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import FULL, compare
from polygrain.compute import device
from polygrain.encoder.config import Config
from polygrain.encoder.extract import extract
from polygrain.encoder.model import Model
from polygrain.encoder.views import Augmentation
from polygrain.grappa.classification import train
from polygrain.losses.norm_softmax import norm_softmax
from polygrain.store import arrays
from stages.adaptor import Params, add_adaptors

BATCH, COUNT = (64, 640) if FULL or torch.cuda.is_available() else (16, 48)
VIEWS = Augmentation(smallest_crop=0.4, turn=15, flip=0.5, jitter=0.3, tint=0, grey=0.1, blur=0, stroke=0)


def build() -> Model:
    config = Config(architecture="vit_small_patch16_224", kwargs={}, size=224, resize=256,
                    mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))  # fmt: skip
    torch.manual_seed(0)
    return Model(config).requires_grad_(False).eval().to(device.best())


def bare_training(model: Model, images: torch.Tensor, precision: str, steps: int) -> None:
    """Forward and backward of the adapters on one batch that lies where the model is."""
    adaptors = add_adaptors(model, "k8", 48, 0).to(images.device)
    classifier = torch.randn(8, model.dim, device=images.device, requires_grad=True)
    labels = torch.arange(len(images), device=images.device) % 8
    for _ in range(steps):
        with device.autocast(images.device, precision):
            tokens = model.features(images)
        norm_softmax(tokens, classifier, labels, 23.0)[0].backward()
    assert next(adaptors.parameters()).grad is not None
    if images.is_cuda:
        torch.cuda.synchronize()


if __name__ == "__main__":
    rng, where, precision = np.random.default_rng(0), device.best(), "auto"
    resident = torch.rand(BATCH, 3, 224, 224, device=where)
    with tempfile.TemporaryDirectory() as folder:
        arrays.write(Path(folder) / "pixels.zarr", rng.integers(0, 256, (COUNT, 256, 256, 3), dtype=np.uint8))
        pixels, rows = arrays.open(Path(folder) / "pixels.zarr"), rng.permutation(COUNT)
        model = build()

        def extraction() -> None:
            for _ in extract(model, pixels, rows, BATCH, precision, "features"):
                pass

        def forward() -> None:
            with torch.inference_mode(), device.autocast(where, precision):
                for _ in range(COUNT // BATCH):
                    model(resident)
            if where.type == "cuda":
                torch.cuda.synchronize()

        compare(
            f"extraction of {COUNT} images, ViT-S/16 at 224", extraction, forward, 5 if FULL else 1, peer="bare forward"
        )

        params = Params(width=48, gamma=23, epochs=1, batch=BATCH, learning_rate=0.001, weight_decay=0, warmup=0,
                        precision=precision, augmentation=VIEWS)  # fmt: skip
        labels, centroids = torch.arange(COUNT) % 8, torch.randn(8, model.dim)

        def training() -> None:
            with tempfile.TemporaryDirectory() as work:
                model = build()
                parts = add_adaptors(model, "k8", 48, 0)
                train(model, parts, centroids, pixels, torch.from_numpy(rows), labels, params, 0, Path(work))

        compare(f"adaptor training on {COUNT} images, ViT-S/16 at 224", training,
                lambda: bare_training(build(), resident, precision, COUNT // BATCH), 3 if FULL else 1, warm=False,
                peer="bare forward + backward")  # fmt: skip
