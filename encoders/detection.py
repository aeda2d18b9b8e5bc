"""How well an encoder serves detection and segmentation: Mask R-CNN over it, trained and evaluated on a COCO folder.

    PYTHONPATH=. python encoders/detection.py ENCODER COCO OUTPUT [--steps 90000] [--batch 16] ...

ENCODER is a model folder (`data/mpcl_encoder/<run>`, `encoders/vit48`). COCO holds `annotations/instances_train*.json`,
`annotations/instances_val*.json` and a folder of images named like each (`train2017/`). Writes weights.safetensors,
metrics.json (AP, AP50, AP75 of boxes and masks, in percent) and resumes from OUTPUT/checkpoint after a kill.

A ResNet serves as C4, as in MPCL's Table VI, whose 1x schedule is the default: up to its third group as the map, the
fourth and one more batch norm as the head of boxes and masks. Batch norms train, over all devices together; before the
evaluation their statistics are taken anew, of `--statistics` batches of training. A ViT gives its patch tokens as the
map; it has no batch norms. Needs the extra `detection` (pycocotools).
Several devices: torchrun --nproc-per-node N encoders/detection.py ...
"""

import argparse
import contextlib
import json
import logging
import math
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from pycocotools.mask import encode
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import MultiScaleRoIAlign

from polygrain.compute import device, processes
from polygrain.encoder.config import read_config
from polygrain.encoder.weights import load_weights
from polygrain.mpcl.pretraining.split_norm import has_batch_norm
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.mpcl.whole_norm import see_all_processes, statistics_anew
from polygrain.runner.progress import progress
from polygrain.sources.decode import FORMATS
from polygrain.training import checkpoint
from polygrain.training.loop import Schedule

log = logging.getLogger(__name__)
NAMES = ("AP", "AP50", "AP75")
STEPS_BETWEEN_CHECKPOINTS = 1000


class ResNetMap(nn.Module):
    """A ResNet up to its third group: the map of C4, a sixteenth of the image's side."""

    def __init__(self, resnet: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(resnet.conv1, resnet.bn1, resnet.act1, resnet.maxpool)
        self.groups = nn.Sequential(resnet.layer1, resnet.layer2, resnet.layer3)
        self.out_channels = resnet.feature_info[3]["num_chs"]

    def forward(self, images: Tensor) -> Tensor:
        return self.groups(self.stem(images))


class TokenMap(nn.Module):
    """The patch tokens of a ViT as a map."""

    def __init__(self, vit: nn.Module) -> None:
        super().__init__()
        self.vit, self.out_channels, self.patch = vit, vit.embed_dim, vit.patch_embed.patch_size[0]

    def forward(self, images: Tensor) -> Tensor:
        height, width = (side // self.patch for side in images.shape[-2:])
        tokens = self.vit.forward_features(images)[:, self.vit.num_prefix_tokens :]
        return tokens.transpose(1, 2).unflatten(2, (height, width))


class BoxMaps(MultiScaleRoIAlign):
    """Boxes cut out of the map, each through a ResNet's fourth group and a batch norm.

    Keeps what it found while training: masks are learnt from maps that are there already (`MaskMaps`).
    """

    def __init__(self, group: nn.Sequential, channels: int) -> None:
        super().__init__(["0"], 14, 0)
        self.group = nn.Sequential(*group, nn.BatchNorm2d(channels))
        self.found: tuple[list[Tensor], Tensor] | None = None

    def forward(self, features: dict[str, Tensor], boxes: list[Tensor], sides: list[tuple[int, int]]) -> Tensor:
        maps = self.group(super().forward(features, boxes, sides))
        self.found = (boxes, maps) if self.training else None
        return maps


class MaskMaps(MultiScaleRoIAlign):
    """The maps of boxes for masks. While training these are some of the boxes that `BoxMaps` saw last, and their maps.

    As in the base code, where the fourth group sees a batch once: batch norms would take other statistics from a
    second time, of boxes that show something alone. Its weights are saved at `BoxMaps`, not here.
    """

    def __init__(self, source: BoxMaps) -> None:
        super().__init__(["0"], 14, 0)
        self.source = [source]  # a list, which nn.Module does not look into

    def forward(self, features: dict[str, Tensor], boxes: list[Tensor], sides: list[tuple[int, int]]) -> Tensor:
        (source,) = self.source
        if not self.training:
            return source(features, boxes, sides)
        (seen, maps), source.found = source.found, None
        parts = zip(maps.split([*map(len, seen)]), boxes, seen, strict=True)
        return torch.cat([part[rows(some, known)] for part, some, known in parts])


def rows(some: Tensor, seen: Tensor) -> Tensor:
    """At which rows of `seen` these boxes stand first; equal boxes have equal maps."""
    return (some[:, None] == seen).all(2).int().argmax(1)


class Mean(nn.Module):
    """The mean of a box's map, as the box's feature."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))


def build(folder: Path, classes: int, short: tuple[int, ...], long: int) -> MaskRCNN:
    """Mask R-CNN over the encoder in a folder, which takes images in 0..1; `classes` counts the background.

    `short`: sides of training images to draw from, the last one for evaluation. ValueError for other networks.
    """
    config = read_config(folder)
    is_vit = config.architecture.startswith("vit")
    kwargs = config.kwargs | ({"dynamic_img_size": True} if is_vit else {})
    encoder = TrainableEncoder(config.model_copy(update={"kwargs": kwargs}))
    load_weights(encoder, folder / "weights.safetensors")
    network = encoder.float().requires_grad_(True).backbone
    if not is_vit and not hasattr(network, "layer4"):
        raise ValueError(f"{config.architecture!r} is neither a ResNet nor a ViT; choose an encoder that is")
    features = TokenMap(network) if is_vit else ResNetMap(network)
    channels = features.out_channels
    settings = {
        "rpn_anchor_generator": AnchorGenerator(((32, 64, 128, 256, 512),), ((0.5, 1.0, 2.0),)),
        "min_size": short,
        "max_size": long,
        "image_mean": config.mean,
        "image_std": config.std,
        "size_divisible": features.patch if is_vit else 32,
    }
    if is_vit:
        settings |= {
            "box_roi_pool": MultiScaleRoIAlign(["0"], 7, 0),
            "box_head": TwoMLPHead(channels * 7**2, 1024),
            "box_predictor": FastRCNNPredictor(1024, classes),
            "mask_roi_pool": MultiScaleRoIAlign(["0"], 14, 0),
            "mask_head": MaskRCNNHeads(channels, (256,) * 4, 1),
            "mask_predictor": MaskRCNNPredictor(256, 256, classes),
        }
    else:
        wide = network.num_features
        maps = BoxMaps(network.layer4, wide)
        settings |= {
            "box_roi_pool": maps,
            "box_head": Mean(),
            "box_predictor": FastRCNNPredictor(wide, classes),
            "mask_roi_pool": MaskMaps(maps),
            "mask_head": nn.Identity(),
            "mask_predictor": MaskRCNNPredictor(wide, 256, classes),
        }
    return see_all_processes(MaskRCNN(features, **settings))


class Split:
    """The images of one part of a COCO folder, with boxes, masks and labels from 1."""

    def __init__(self, root: Path, part: str) -> None:
        found = sorted((root / "annotations").glob(f"instances_{part}*.json"))
        if len(found) != 1:
            raise ValueError(f"{root}/annotations holds {len(found)} files instances_{part}*.json; needed is one")
        self.folder = (root / found[0].stem.removeprefix("instances_")).resolve()
        try:
            with contextlib.redirect_stdout(None):
                self.coco = COCO(found[0])
            self.categories = sorted(self.coco.getCatIds())
            self.images = sorted(self.coco.getImgIds())
        except (ValueError, KeyError, AssertionError) as error:
            raise ValueError(f"{found[0]} is not a COCO annotation file ({error})") from error
        if not self.images or not self.categories:
            raise ValueError(f"{found[0]} has {len(self.images)} images and {len(self.categories)} categories")

    def trainable(self) -> list[int]:
        """The images that show something."""
        return [number for number in self.images if self.annotations(number)]

    def annotations(self, number: int) -> list[dict]:
        found = self.coco.loadAnns(self.coco.getAnnIds(number, iscrowd=False))
        return [item for item in found if item["bbox"][2] > 1 and item["bbox"][3] > 1]

    def read(self, number: int) -> tuple[Tensor, dict[str, Tensor]]:
        """An image in 0..1 and what it shows; ValueError where the annotations lead outside the folder."""
        file = (self.folder / self.coco.loadImgs(number)[0]["file_name"]).resolve()
        if not file.is_relative_to(self.folder) or not file.is_file():
            raise ValueError(f"image {number} is {file}, which is not a file in {self.folder}")
        with Image.open(file, formats=FORMATS) as image:
            pixels = torchvision.transforms.functional.pil_to_tensor(image.convert("RGB")).float() / 255
        items = self.annotations(number)
        boxes = torch.tensor([item["bbox"] for item in items], dtype=torch.float32).view(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        masks = [torch.from_numpy(self.coco.annToMask(item)) for item in items]
        empty = torch.zeros(0, *pixels.shape[1:], dtype=torch.uint8)
        labels = [self.categories.index(item["category_id"]) + 1 for item in items]
        return pixels, {
            "boxes": boxes,
            "labels": torch.tensor(labels, dtype=torch.int64),
            "masks": torch.stack(masks) if masks else empty,
        }


def flip(pixels: Tensor, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The mirror image, with its boxes and masks."""
    boxes = target["boxes"].clone()
    boxes[:, [0, 2]] = pixels.shape[2] - target["boxes"][:, [2, 0]]
    return pixels.flip(2), target | {"boxes": boxes, "masks": target["masks"].flip(2)}


def drawn(
    step: int, split: Split, images: list[int], batch: int, where: torch.device
) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """This process's part of a step's batch, half of it mirrored: images, and what they show."""
    generator = torch.Generator().manual_seed(step)
    # Anchors and scales are drawn from the global generator.
    torch.manual_seed(step * processes.count() + processes.rank())
    numbers = torch.randint(len(images), (batch,), generator=generator)[processes.share(batch)]
    mirrored = (torch.rand(batch, generator=generator) < 0.5)[processes.share(batch)]
    pairs = [split.read(images[i]) for i in numbers.tolist()]
    pairs = [flip(*pair) if turn else pair for pair, turn in zip(pairs, mirrored, strict=True)]
    shown = [{name: tensor.to(where) for name, tensor in target.items()} for _, target in pairs]
    return [pixels.to(where) for pixels, _ in pairs], shown


def train(model: MaskRCNN, split: Split, arguments: argparse.Namespace, folder: Path) -> None:
    """SGD for `steps` steps, the rate divided by 10 at two thirds and at eight ninths, as in the 1x schedule."""
    where, images = device.best(), split.trainable()
    if not images:
        raise ValueError(f"no image in {split.folder} has an annotation with a box")
    model.to(where).train()
    learnt = [p for p in model.parameters() if p.requires_grad]
    rate = arguments.rate * arguments.batch / 16
    optimizer = torch.optim.SGD(learnt, rate, momentum=0.9, weight_decay=1e-4)
    history = checkpoint.resume(folder, model, optimizer)
    warmup = Schedule(arguments.steps, min(1000, arguments.steps / 10), 1.0)
    for step in progress(range(len(history), arguments.steps), "train", unit="step"):
        losses = model(*drawn(step, split, images, arguments.batch, where))
        loss = sum(losses.values())
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ValueError(f"the loss became {value} in step {step + 1}: lower --rate, now {arguments.rate}")
        drops = sum(step >= share * arguments.steps for share in (6 / 9, 8 / 9))
        for group in optimizer.param_groups:
            group["lr"] = rate * warmup.factor(step + 1) * 0.1**drops
        optimizer.zero_grad(set_to_none=True)
        (loss / processes.count()).backward()
        processes.add_up([p.grad for p in learnt if p.grad is not None])
        optimizer.step()
        history.append({"loss": value})
        is_due = (step + 1) % STEPS_BETWEEN_CHECKPOINTS == 0 or step + 1 == arguments.steps
        if is_due and processes.rank() == 0:
            checkpoint.save(folder, model, optimizer, history)


@torch.no_grad()
def renew_statistics(model: MaskRCNN, split: Split, arguments: argparse.Namespace) -> None:
    """Statistics of batch norms by the weights as they are now, of the batches that training would see next.

    A checkpoint of the last step is there, from which a killed run comes here again.
    """
    if not (arguments.statistics and has_batch_norm(model)):
        return
    images, where = split.trainable(), next(model.parameters()).device
    steps = range(arguments.steps, arguments.steps + arguments.statistics)
    with statistics_anew(model.train()):
        for step in progress(steps, "statistics", unit="step"):
            model(*drawn(step, split, images, arguments.batch, where))


@torch.inference_mode()
def evaluate(model: MaskRCNN, split: Split) -> dict[str, float]:
    """AP, AP50, AP75 of boxes and masks, in percent."""
    where = next(model.parameters()).device
    model.eval()
    found = []
    for number in progress(split.images, "evaluate", unit="image"):
        pixels, _ = split.read(number)
        (output,) = model([pixels.to(where)])
        for box, label, score, mask in zip(
            *(output[k].cpu() for k in ("boxes", "labels", "scores", "masks")), strict=True
        ):
            left, top, right, bottom = box.tolist()
            region = encode(np.asfortranarray((mask[0] > 0.5).numpy().astype(np.uint8)))
            entry = {"image_id": number, "category_id": split.categories[label - 1], "score": float(score)}
            found.append(entry | {"bbox": [left, top, right - left, bottom - top], "segmentation": region})
    metrics = {}
    for kind in ("bbox", "segm"):
        if not found:
            metrics |= {f"{kind} {name}": 0.0 for name in NAMES}
            continue
        with contextlib.redirect_stdout(None):
            judge = COCOeval(split.coco, split.coco.loadRes(found), kind)
            judge.evaluate(), judge.accumulate(), judge.summarize()
        metrics |= {f"{kind} {name}": 100 * float(judge.stats[i]) for i, name in enumerate(NAMES)}
    return metrics


def main(arguments: argparse.Namespace) -> dict[str, float]:
    """Trains, evaluates, writes; returns the metrics."""
    splits = {part: Split(arguments.coco, part) for part in ("train", "val")}
    if splits["train"].categories != splits["val"].categories:
        raise ValueError(f"{arguments.coco}: the categories of train and val differ")
    torch.manual_seed(0)
    model = build(arguments.encoder, len(splits["train"].categories) + 1, tuple(arguments.short), arguments.long)
    arguments.output.mkdir(parents=True, exist_ok=True)
    train(model, splits["train"], arguments, arguments.output / "checkpoint")
    renew_statistics(model, splits["train"], arguments)
    metrics: dict[str, float] = {}
    if processes.rank() == 0:
        metrics = evaluate(model, splits["val"])
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        save_file(tensors, arguments.output / "weights.safetensors")
        (arguments.output / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
        checkpoint.clear(arguments.output / "checkpoint")
    return metrics


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("coco", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--steps", type=int, default=90_000, help="the 1x schedule")
    parser.add_argument("--batch", type=int, default=16, help="images a step over all devices")
    parser.add_argument("--rate", type=float, default=0.02, help="for 16 images a step")
    parser.add_argument("--short", type=int, nargs="+", default=[640, 672, 704, 736, 768, 800], help="shorter sides")
    parser.add_argument("--long", type=int, default=1333, help="longest side")
    parser.add_argument(
        "--statistics",
        type=int,
        default=200,
        help="batches that batch norms take theirs from anew; 0 keeps the running ones",
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print(json.dumps(main(parse())))
