"""Features and adaptor training from the image store, and a fused model, each against the bare network.

The bare network runs on one batch in memory: it leaves out reading, cropping, augmentation and the adaptors. Features
compare with eager torch, onnxruntime and OpenVINO, those that are installed, each on the same threads.
"""

import functools
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.measure import FULL, compare
from polygrain.compute import device
from polygrain.encoder.adaptors import Adaptors, fuse
from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.extract import embed
from polygrain.encoder.model import Model
from polygrain.encoder.networks import build_network
from polygrain.encoder.views import Augmentation
from polygrain.grappa.classification import train
from polygrain.losses.norm_softmax import norm_softmax
from polygrain.store import arrays
from stages.adaptor import Params, add_adaptors

BATCH, COUNT, ROUNDS = (64, 640, 3) if FULL or torch.cuda.is_available() else (16, 48, 1)
HALF = (0.5, 0.5, 0.5)
VIEWS = Augmentation(smallest_crop=0.4, turn=15, flip=0.5, jitter=0.3, tint=0, grey=0.1, blur=0, stroke=0)
PARAMS = Params(width=48, start="centroids", watch="none", watched=40, gamma=23, epochs=1, batch=BATCH,
                learning_rate=0.001, weight_decay=0, warmup=0, precision="auto", augmentation=VIEWS)  # fmt: skip


VIT = "vit_small_patch16_224"
NETWORKS = {"EfficientNet-Lite0": ("tf_efficientnet_lite0", 144), "ResNet-50": ("resnet50", 224),
            "ConvNeXt-T": ("convnext_tiny", 224), "ViT-S/16": (VIT, 224)}  # fmt: skip


def build(architecture: str = VIT, side: int = 224) -> Model:
    torch.manual_seed(0)
    config = Config(architecture=architecture, kwargs={}, size=side, resize=side + 32, mean=HALF, std=HALF)
    model = Model(config)
    model.prepare()
    return model.to(device.best())


def rivals(architecture: str, images: torch.Tensor) -> dict[str, Callable[[], object]]:
    """A pass of the network as each of them takes it: contiguous, nothing folded by us, as many threads."""
    network = build_network(architecture, {}).eval().requires_grad_(False).to(images.device)
    found: dict[str, Callable[[], object]] = {"torch": torch.inference_mode()(functools.partial(network, images))}
    threads = torch.get_num_threads()
    if images.is_cuda or not importlib.util.find_spec("onnxruntime"):
        return found
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.onnx"
        torch.onnx.export(network, (images,), dynamo=True, verbose=False, input_names=["images"]).save(file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        found["onnxruntime"] = functools.partial(session.run, None, {"images": images.numpy()})
        if importlib.util.find_spec("openvino"):
            import openvino

            core = openvino.Core()
            hints = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
            found["OpenVINO"] = functools.partial(
                core.compile_model(core.read_model(file), "CPU", hints), images.numpy()
            )
    return found


def features(title: str, architecture: str, side: int) -> None:
    """Features from an image store against each rival, a row each."""
    rng, model = np.random.default_rng(0), build(architecture, side)
    batch = torch.rand(BATCH, 3, side, side, device=device.best())
    with tempfile.TemporaryDirectory() as folder:
        stored = rng.integers(0, 256, (COUNT, side + 32, side + 32, 3), dtype=np.uint8)
        arrays.write(Path(folder) / "pixels.zarr", stored)
        pixels, rows = arrays.open(Path(folder) / "pixels.zarr"), rng.permutation(COUNT)
        for name, one_pass in rivals(architecture, batch).items():

            def passes(one_pass: Callable[[], object] = one_pass) -> None:
                for _ in range(COUNT // BATCH):
                    one_pass()
                wait()

            what = f"features of {COUNT} images, {title} at {side}"
            ours = functools.partial(embed, model, pixels, rows, BATCH, "auto", "features")
            compare(what, ours, passes, max(ROUNDS, 3), peer=name)


def fused(count: int, width: int) -> Model:
    """ViT-S/16 with `count` random adaptor sets in every layer, fused by attention."""
    model = build()
    sets = [[Adaptors(model.dim, width, 1, "average") for _ in model.backbone.blocks] for _ in range(count)]
    for parameter in nn.ModuleList(layer for layers in sets for layer in layers).parameters():
        parameter.data.normal_(0, 0.02)
    config = AdaptorConfig(names=[f"k{i}" for i in range(count)], width=width, fusion="attention")
    model.insert(fuse(sets, "attention", torch.Generator().manual_seed(0)), config)
    return model.to(device.best())


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def forward(model: Model, images: torch.Tensor, times: int, precision: device.Precision = "auto") -> None:
    with torch.inference_mode(), device.autocast(images.device, precision):
        for _ in range(times):
            model(images)
    wait()


def adaptable() -> tuple[Model, nn.Module]:
    """The model with an adaptor set, and the set."""
    model = build()
    return model, add_adaptors(model, "k8", 48, 0).to(device.best())


def training(model: Model, parts: nn.Module, pixels: arrays.Reader, rows: np.ndarray, batch: int = BATCH) -> None:
    """An epoch; what it changes does not matter to the next."""
    labels, centroids = torch.arange(len(rows)) % 8, torch.randn(8, model.dim)
    params = PARAMS.model_copy(update={"batch": batch})
    with tempfile.TemporaryDirectory() as work:
        train(model, parts, centroids, pixels, torch.from_numpy(rows), labels, params, 0, Path(work))
    wait()


def bare_training(model: Model, images: torch.Tensor, steps: int) -> None:
    """Forward and backward of the adaptors on one batch."""
    classifier = torch.randn(8, model.dim, device=images.device, requires_grad=True)
    labels = torch.arange(len(images), device=images.device) % 8
    for _ in range(steps):
        with device.autocast(images.device, "auto"):
            tokens = model.features(images)
        norm_softmax(tokens, classifier, labels, 23.0)[0].backward()
    wait()


if __name__ == "__main__":
    for title, network in NETWORKS.items():
        features(title, *network)
    rng, model, wide, adapted = np.random.default_rng(0), build(), fused(8, 64), adaptable()
    batch = torch.rand(BATCH, 3, 224, 224, device=device.best())
    steps = COUNT // BATCH
    with tempfile.TemporaryDirectory() as folder:
        arrays.write(Path(folder) / "pixels.zarr", rng.integers(0, 256, (COUNT, 256, 256, 3), dtype=np.uint8))
        pixels, rows = arrays.open(Path(folder) / "pixels.zarr"), rng.permutation(COUNT)
        compare(f"adaptor training on {COUNT} images, the same", lambda: training(*adapted, pixels, rows),
                lambda: bare_training(adapted[0], batch, steps), ROUNDS, peer="bare forward + backward")  # fmt: skip
    compare("forward with 8 fused adaptor sets of width 64", lambda: forward(wide, batch[:8], 1),
            lambda: forward(model, batch[:8], 1), 3, peer="bare forward")  # fmt: skip
