"""Detection by a pretrained ResNet (MPCL's Table VI, boxes): Faster R-CNN over it, trained and evaluated.

Reads   mpcl_encoder/<run>, a folder of images with boxes in COCO's layout
Writes  weights.safetensors   the detector
        history.csv           epoch, loss
        metrics.json          {AP, AP50, AP75}, fractions
        table.md              the same in percent, for COCO itself beside what the paper prints for such a run
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor
from torchvision.models.detection import FasterRCNN

from polygrain.compute import device
from polygrain.compute.ahead import ahead
from polygrain.config import schema
from polygrain.config.items.mpcl import Pretraining
from polygrain.config.lists import Lists
from polygrain.mpcl.detection import scenes
from polygrain.mpcl.detection.network import build
from polygrain.mpcl.detection.precision import average_precision
from polygrain.mpcl.report.published import Network, Setting, matches, published_rows
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store.tensors import write_weights
from polygrain.training import checkpoint
from polygrain.training.history import write_history
from polygrain.training.loop import Batch, Loader, Schedule, fit

COCO_TESTED = 5000  # images of val2017


class Params(schema.Section):
    epochs: schema.Epochs = Field(description="epochs over the images that show something")
    drops: list[schema.Epochs] = Field(max_length=10, description="epochs after which the rate falls to a tenth")
    warmup: schema.Warmup = Field(description="epochs in which the rate rises to its full value")
    batch: schema.BatchSize = Field(description="images of a batch")
    learning_rate: schema.Rate = Field(description="of SGD with momentum 0.9, for batches of 16")
    weight_decay: schema.Decay = Field(description="of all but norms and biases")
    precision: Literal["float32", "tf32"] = Field(
        description="tf32: on a GPU products with a mantissa of 10 bits; boxes of bfloat16 would be pixels off"
    )
    sides: list[schema.Side] = Field(min_length=1, description="shorter sides, px: drawn in training, the last to test")
    longest: schema.Side = Field(description="largest longer side, px")
    boxes: schema.Count = Field(description="of an image that the head learns from")
    proposals: int = Field(ge=2, description="of an image in training; half as many in an evaluation")


@dataclass(frozen=True)
class Drops(Schedule):
    """A warm-up, then the full rate, and a tenth of it after each drop."""

    drops: tuple[int, ...]

    def factor(self, epoch: int | float) -> float:
        return min(1.0, epoch / max(self.warmup, 1e-9)) * 0.1 ** sum(epoch >= drop for drop in self.drops)


def picture(scene: scenes.Scene) -> Tensor:
    """The image in 0..1."""
    with Image.open(scene.file, formats=("JPEG", "PNG")) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255


def train(model: FasterRCNN, found: list[scenes.Scene], params: Params, seed: int, work: Path) -> checkpoint.History:
    """Trains the model in place and returns the history."""
    where, rate = next(model.parameters()).device, params.learning_rate * params.batch / 16
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) == is_matrix], "weight_decay": decay}
        for is_matrix, decay in ((False, 0.0), (True, params.weight_decay))
    ]

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        torch.manual_seed(seed * 1_000_003 + batch.number)  # boxes and sides are drawn from the global generator
        images, shown = [], []
        for row, pixels in zip(batch.rows.tolist(), batch.content, strict=True):
            boxes, labels = (torch.tensor(found[row].rows[key]) for key in ("boxes", "labels"))
            if torch.rand((), generator=generator) < 0.5:
                pixels, boxes[:, [0, 2]] = pixels.flip(2), pixels.shape[2] - boxes[:, [2, 0]]
            images.append(pixels.to(where))
            shown.append({"boxes": boxes.to(where), "labels": labels.to(where)})
        with device.autocast(where, params.precision):
            return {"loss": sum(model(images, shown).values())}

    model.train()
    loader = Loader(len(found), params.batch, lambda _: lambda rows: [picture(found[i]) for i in rows.tolist()])
    schedule = Drops(params.epochs, params.warmup, 0.0, tuple(params.drops))
    return fit(model, torch.optim.SGD(groups, rate, 0.9), schedule, loader, step, seed, work)


@torch.no_grad()
def evaluate(model: FasterRCNN, found: list[scenes.Scene], precision: device.Precision) -> dict:
    """Average precision on the scenes; a class that was not trained on can only be missed."""
    where, guesses = next(model.parameters()).device, []
    model.eval()
    for _, pixels in ahead(progress(found, "evaluate", unit="image"), picture):
        with device.autocast(where, precision):
            (guess,) = model([pixels.to(where)])
        guesses.append({key: tensor.float().cpu().numpy() for key, tensor in guess.items()})
    return average_precision(guesses, [scene.rows for scene in found])


def printed(run: Pretraining, setting: Setting) -> dict[str, float]:
    """Table VI's numbers of boxes for this very pretraining; {} where it has none."""
    rows = [row for row in published_rows() if row["table"] == "VI" and matches(row, run, setting)]
    return {row["column"]: float(row["value"]) for row in rows}


def table(metrics: dict[str, float], paper: dict[str, float]) -> str:
    """Ours in percent, printed, and the difference in points."""
    text = "| boxes | here | the paper, Table VI | difference |\n|---|---|---|---|\n"
    for name, value in metrics.items():
        known = paper.get(f"box {name}")
        beside = "|" if known is None else f"{known} | {100 * value - known:+.1f}"
        text += f"| {name} | {100 * value:.1f} | {beside} |\n"
    return text


def main(
    encoder: Path,
    path: Path,
    output: Path,
    *,
    name: str,
    params: Params,
    lists: Lists,
    seed: int,
    network: Network,
    epochs: int,
    batch: int,
) -> str:
    item = lists.mpcl_detections[name]
    taught, tested, classes = scenes.read(path)
    torch.manual_seed(seed)
    sizes = {"min_size": tuple(params.sides), "max_size": params.longest, "box_batch_size_per_image": params.boxes}
    model = build(encoder, classes + 1, params.proposals, **sizes).to(device.best())
    work = checkpoint.work_folder("mpcl_detection", name, [item, params, seed], [encoder, path])
    history = train(model, taught, params, seed, work)
    metrics = evaluate(model, tested, params.precision)
    setting = Setting(list(lists.tasks), network["architecture"], epochs, batch)
    paper = printed(lists.mpcl[item.run], setting) if len(tested) == COCO_TESTED else {}
    with outputs.folder(output) as folder:
        write_weights(model, folder / "weights.safetensors")
        write_history(history, folder, ["epoch", "loss"])
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
        (folder / "table.md").write_text(table(metrics, paper), encoding="utf-8")
    return f"images: {len(taught)} to train on, {len(tested)} to test; AP {100 * metrics['AP']:.1f} %"


if __name__ == "__main__":
    command.run(main, Params, network="mpcl_encoder.network", epochs="mpcl_encoder.epochs", batch="mpcl_encoder.batch")
