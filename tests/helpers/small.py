"""A small world that several tests share: drawn images of two tasks, a random ViT, and the stages' data folders."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from polygrain.config.lists import Lists
from polygrain.encoder.adaptors import Adaptors, fuse
from polygrain.encoder.config import AdaptorConfig, Config, Fusion
from polygrain.encoder.model import Model, load, save
from polygrain.store import arrays
from polygrain.store.image_table import TABLE
from stages import features, pseudo_labels, scatter, seeds

TASKS = ("dots", "bars")
SIZE = 32
CONFIG = Config(
    architecture="vit_tiny_patch16_224",
    kwargs={"img_size": SIZE, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2},
    size=SIZE,
    resize=SIZE,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)


def lists(**changes: object) -> Lists:
    values = {
        "root": ".",
        "versions": "versions.yaml",
        "seed": 0,
        "tasks": {task: {"source": "folder"} for task in TASKS},
        "granularities": {"k4": "pseudo_labels/k4", "k8": "pseudo_labels/k8"},
        "adaptors": {"k4": "adaptor/k4", "k8": "adaptor/k8"},
        "fusions": {"average": "adaptor", "augmentation": "images", "neighbour": "refreshed_graph"},
        "baselines": {},
        "supervised_models": {},
        "mrt": [],
        **{name: {} for name in ("gsp_collages", "gsp_runs", "gsp_trainings", "gsp", "gsp_studies", "gsp_classifiers")},
        "models": {"pixels": "images", "encoder": "encoder", "k4": "adaptor/k4", "average": "fusion/average"},
        "mpcl": {},
        "mpcl_detections": {},
        "tll": {},
    }
    values |= changes
    return Lists(**values | {"paths": {task: task for task in values["tasks"]}})


def draw(task: int, label: int, rng: np.random.Generator) -> np.ndarray:
    """A picture whose class is the colour and place of a patch, over noise."""
    image = rng.integers(0, 90, (SIZE, SIZE, 3), dtype=np.uint8)
    place, width = 4 * (label % 4), 8 if task else 20
    image[place : place + 8, 4 : 4 + width, label % 3] = 200 + rng.integers(0, 50)
    return image


def set_split(folder: Path, splits: list[str]) -> None:
    """Gives a task's images other splits of the protocol `classes`, by which they train."""
    table = pq.read_table(folder / "table.parquet")
    for name, values in {"split": splits, "trains": [split == "train" for split in splits]}.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values))
    pq.write_table(table, folder / "table.parquet")


def write_images(folder: Path, classes: int = 6, per_class: int = 8, labelled: bool = True) -> Path:
    """data/images with half of the classes for training."""
    rng = np.random.default_rng(0)
    for t, task in enumerate(TASKS):
        rows = [
            (f"{label}/{i}.png", task, label, str(label), split, 9, 9, 5, f"{i}", i % 4 == 1, split == "train")
            for label in range(classes)
            for split in ["train" if label < classes // 2 else "test"]
            for i in range(per_class)
        ]
        if not labelled:
            rows = [(path, task, -1, "", "train", *rest[:4], False, True) for path, _, _, _, _, *rest in rows]
        (folder / task).mkdir(parents=True)
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), TABLE, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=TABLE), folder / task / "table.parquet")
        pixels = np.stack([draw(t, label, rng) for label in range(classes) for _ in range(per_class)])
        arrays.write(folder / task / "pixels.zarr", pixels)
        (folder / task / "rejected.csv").write_text("path,reason\n")
    return folder


def repeat(images: Path, task: str, times: int) -> None:
    """Makes runs of so many images of a task the same to the last pixel."""
    file = images / task / "pixels.zarr"
    pixels = arrays.open(file)[:]
    shutil.rmtree(file)
    arrays.write(file, pixels[np.arange(len(pixels)) // times * times])


def write_encoder(folder: Path) -> Path:
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    model = Model(CONFIG)
    for block in [model.backbone.patch_embed, *model.backbone.blocks]:
        for parameter in block.parameters():
            parameter.data.mul_(5)  # timm's small start would give all images nearly the same class token
    save(model, folder)
    return folder


def write_features(folder: Path, images: Path, dim: int = 8) -> Path:
    """data/features: random unit vectors, so that no stage is needed before the one under test."""
    for t, task in enumerate(TASKS):
        count = len(arrays.open(images / task / "pixels.zarr"))
        vectors = np.random.default_rng(t).normal(size=(count, dim)).astype(np.float32)
        store_features(folder / task, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return folder


def store_features(folder: Path, vectors: np.ndarray) -> None:
    """A task's features, of a network that nobody knows."""
    folder.mkdir(parents=True)
    arrays.write(folder / "features.zarr", vectors)
    facts = {"digest": "unknown", "side": 1, "widths": [vectors.shape[1]], "blocks": 0, "embedding": vectors.shape[1]}
    (folder / "features.json").write_text(json.dumps(facts))


def run_features(folder: Path, images: Path, encoder: Path, blocks: int = 2, **changes: object) -> Path:
    """data/features as the stage writes them."""
    for task in TASKS:
        params = features.Params(**({"unit_length": True, "dtype": "float16"} | changes))
        features.main(images / task, encoder, folder / task, task=task, params=params, taken=blocks)
    return folder


def adapted(encoder: Path, names: list[str], seed: int, std: float = 0.1, fusion: Fusion = "average") -> Model:
    """The encoder with an adaptor set of each name, all their weights drawn."""
    model, generator = load(encoder), torch.Generator().manual_seed(seed)
    sets = [[Adaptors(model.dim, 4, 1, "average") for _ in model.backbone.blocks] for _ in names]
    for parameter in torch.nn.ModuleList([layer for layers in sets for layer in layers]).parameters():
        parameter.data.normal_(0, std, generator=generator)
    model.insert(fuse(sets, fusion, generator, 1.0), AdaptorConfig(names=names, width=4, fusion=fusion))
    return model.requires_grad_(False).eval()


def write_model(model: Model, folder: Path) -> Path:
    folder.mkdir(parents=True)
    save(model, folder)
    return folder


def cluster(folder: Path, images: Path, features_of: Path, given: Lists, blocks: int = 2) -> list[Path]:
    """The folders of seeds, pseudo-labels and scatters of all granularities, as their stages leave them."""
    places = [folder / name for name in ("seeds", "pseudo_labels", "scatter")]
    values = seeds.Params(whitening="half", whitened_dim=8, largest=1, sample=None, drawn="images")
    seeds.main(images, features_of, places[0], params=values, blocks=blocks, lists=given, seed=0)
    for name in given.granularities:
        read = images, features_of, places[0]
        limit = pseudo_labels.Params(max_iterations=20)
        pseudo_labels.main(*read, places[1] / name, granularity=name, params=limit, lists=given)
        scatter.main(*read, places[1] / name, places[2] / name, granularity=name, blocks=blocks, lists=given)
    return places
